"""Reading a JSON object field by field: each is taken once and checked, and what is left over is unknown.

A wrong type is an `Unexpressible` that names the field by its whole path. A field that is null counts as absent.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, TypeVar

from providers.dialects.base import Unexpressible

T = TypeVar("T")


def where(path: str, name: str | int) -> str:
    """Return the path of `name` inside `path`."""
    return f"{path}.{name}" if path else str(name)


def escaped(name: str) -> str:
    """Return an unknown field's own name as it stands in a path: its dots as `~1` and tildes as `~0`, as in a JSON pointer."""
    return name.replace("~", "~0").replace(".", "~1")


def unescaped(name: str) -> str:
    """Return the name that `escaped` made fit for a path."""
    return name.replace("~1", ".").replace("~0", "~")


def as_object(value: Any, path: str) -> dict[str, Any]:
    """Return `value` if it is an object."""
    if not isinstance(value, dict):
        raise Unexpressible(path or "body", f"want an object, found {_kind(value)}")
    return value


class Fields:
    """See the module."""

    def __init__(self, value: Any, path: str = "") -> None:
        """Read `value`, which lies at `path` in the body."""
        self._left = dict(as_object(value, path))
        self.path = path

    def at(self, name: str | int) -> str:
        """Return the path of a field."""
        return where(self.path, name)

    def has(self, name: str) -> bool:
        """Return whether a field is there, and not null."""
        return self._left.get(name) is not None

    def take(self, name: str) -> Any:
        """Return a field of any type, None if it is absent."""
        return self._left.pop(name, None)

    def _taken(self, name: str, type_: type[T] | tuple[type[T], ...], wanted: str) -> T | None:
        value = self.take(name)
        if value is None:
            return None
        is_number_wanted = type_ is not bool
        if not isinstance(value, type_) or (is_number_wanted and isinstance(value, bool)):
            raise Unexpressible(self.at(name), f"want {wanted}, found {_kind(value)}")
        return value

    def text(self, name: str) -> str | None:
        """Take a string."""
        return self._taken(name, str, "a string")

    def needed_text(self, name: str) -> str:
        """Take a string that must be there."""
        value = self.text(name)
        if value is None:
            raise Unexpressible(self.at(name), "is missing")
        return value

    def flag(self, name: str) -> bool | None:
        """Take true or false."""
        return self._taken(name, bool, "true or false")

    def integer(self, name: str) -> int | None:
        """Take a whole number."""
        return self._taken(name, int, "a whole number")

    def number(self, name: str) -> float | None:
        """Take a number, as it was written: 1 stays 1."""
        return self._taken(name, (int, float), "a number")

    def object(self, name: str) -> dict[str, Any] | None:
        """Take an object."""
        value = self.take(name)
        return None if value is None else as_object(value, self.at(name))

    def fields(self, name: str) -> Fields | None:
        """Take an object to be read field by field."""
        value = self.object(name)
        return None if value is None else Fields(value, self.at(name))

    def list(self, name: str) -> list[Any] | None:
        """Take a list."""
        return self._taken(name, list, "a list")

    def each(self, name: str) -> Iterator[Fields]:
        """Take a list of objects to be read field by field; nothing if it is absent."""
        for n, value in enumerate(self.list(name) or ()):
            yield Fields(value, f"{self.at(name)}.{n}")

    def rest(self) -> dict[str, Any]:
        """Return what has not been taken, null fields left out."""
        return {name: value for name, value in self._left.items() if value is not None}


def _kind(value: Any) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "true or false"
        case int() | float():
            return "a number"
        case str():
            return "a string"
        case list():
            return "a list"
        case _:
            return "an object"
