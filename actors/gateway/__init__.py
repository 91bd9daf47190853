"""The model gateway: the only HTTP face that sandboxes see. Agents speak four dialects to it; every call is an event."""
