"""From a type string to its class, and from old versions to the current one.

An event's version is the last part of its type (`run_started.v1`). A class is never removed; when a field changes meaning, a
new version is added and an upcaster lifts the old data. Stored bytes are never rewritten.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from schemas import events
from schemas.base import Event

EVENT_TYPES: Final[Mapping[str, type[Event]]] = {
    cls.TYPE: cls for name in events.__all__ if issubclass(cls := getattr(events, name), Event)
}

Upcaster = Callable[[dict[str, Any]], tuple[str, dict[str, Any]]]
"""Takes the data of an old version, returns the next version's type and data. Pure."""

UPCASTERS: Final[dict[str, Upcaster]] = {}


def upcast(
    type_: str, data: dict[str, Any], upcasters: Mapping[str, Upcaster] = UPCASTERS
) -> tuple[str, dict[str, Any]]:
    """Lift `data` of `type_` as far as the upcasters go; each step is one version."""
    while step := upcasters.get(type_):
        type_, data = step(data)
    return type_, data
