"""What is stored and exchanged: envelope, events, tasks, configuration. Frozen models without behaviour."""
