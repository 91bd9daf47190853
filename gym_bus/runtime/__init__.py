"""The actor runtime: pure machines, the drives that run them, the workers that take requests, and who is alive."""
