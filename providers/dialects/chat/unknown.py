"""Fields that nobody here knows: kept under their path in the body as it is written here, and put back there.

Chat Completions has more fields than any list of them. A path is the names on the way joined by dots
(`messages.2.tool_calls.0.extra_content`), so that another dialect that refuses one names its place. A dot in an unknown
field's own name is written `~1` and a tilde `~0`, as in a JSON pointer.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

from providers.dialects.base import Unexpressible
from providers.dialects.fields import Fields, escaped, unescaped

T = TypeVar("T", bound=str)


class Unknown:
    """Collects what was left over while a body was read."""

    def __init__(self) -> None:
        """Begin with nothing."""
        self.fields: dict[str, Any] = {}

    def keep(self, fields: Fields) -> None:
        """Keep all that has not been taken from `fields`."""
        for name, value in fields.rest().items():
            self.keep_value(fields, name, value)

    def keep_value(self, fields: Fields, name: str, value: Any) -> None:
        """Keep one field that was taken and turned out to say something that nobody here knows."""
        self.fields[fields.at(escaped(name))] = value


def put_back(body: dict[str, Any], unknown: Mapping[str, Any]) -> None:
    """Set each field of `unknown` at its path in `body`; raises `Unexpressible` for a path that leads nowhere."""
    places = [(_holder(body, path), value) for path, value in unknown.items()]
    for (holder, name), value in places:
        holder[name] = value


def _holder(body: dict[str, Any], path: str) -> tuple[dict[str, Any], str]:
    """Return the object that a field lies in, and the field's name."""
    *steps, name = path.split(".")
    node: Any = body
    for step in steps:
        node = _child(node, step)
    if not isinstance(node, dict):
        raise Unexpressible(path, "is a path that leads nowhere in this body")
    return node, unescaped(name)


def _child(node: Any, step: str) -> Any:
    if isinstance(node, dict):
        return node.get(step)
    is_place = isinstance(node, list) and step.isdecimal() and len(step) <= len(str(len(node)))
    return node[int(step)] if is_place and int(step) < len(node) else None


def one_of(fields: Fields, name: str, allowed: Iterable[T]) -> T | None:
    """Take a string that must be one of `allowed`."""
    value = fields.text(name)
    if value is None:
        return None
    known = tuple(allowed)
    for option in known:
        if option == value:
            return option
    raise Unexpressible(fields.at(name), f"want one of {', '.join(known)}, found {value[:80]!r}")


def finite(fields: Fields, name: str) -> float | None:
    """Take a number that is one: not infinite, not NaN, not beyond what a float holds."""
    value = fields.number(name)
    try:
        is_finite = value is None or math.isfinite(value)
    except OverflowError:
        is_finite = False
    if not is_finite:
        raise Unexpressible(fields.at(name), "want a finite number")
    return value


def needed_fields(fields: Fields, name: str) -> Fields:
    """Take an object that must be there, to be read field by field."""
    inner = fields.fields(name)
    if inner is None:
        raise Unexpressible(fields.at(name), "is missing")
    return inner
