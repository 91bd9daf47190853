"""gym-bus: language-model agents on tasks, as an event-sourced actor system on a message bus."""

__version__ = "0.1.0"
