"""Harnesses: agents that bring their own loop, run in a machine against the model gateway, and read as they go on."""
