"""Objects inside one another."""

from __future__ import annotations

from typing import Any


def nested(levels: int) -> dict[str, Any]:
    """Return an object of so many levels."""
    value: dict[str, Any] = {}
    for _ in range(levels - 1):
        value = {"items": value}
    return value
