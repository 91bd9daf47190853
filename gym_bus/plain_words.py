"""What pydantic says of a value, for whoever wrote it in YAML or JSON, where there are lists and no tuples."""

from __future__ import annotations


def plainly(message: str) -> str:
    """Return a message of pydantic's in those words."""
    return message.removeprefix("Value error, ").replace("valid tuple", "list").replace("Tuple should", "List should")
