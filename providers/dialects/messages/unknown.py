"""Fields inside a block or a tool that nobody here knows: read into `others` by a path, and put back by it.

A path is one of the conversation and not of the body: `turns.3.parts.1.caller`, `tools.0.defer_loading`, `usage.service_tier`. So
it stays true when messages become turns. The field's own name stands after the last dot; dots of its own are escaped.
"""

from __future__ import annotations

from typing import Any

from providers.dialects.fields import Fields, escaped, unescaped, where


class Found:
    """Collects unknown fields while something is read; `fields` has them by their paths."""

    def __init__(self, fields: dict[str, Any] | None = None, path: str = "") -> None:
        """Collect into `fields`, below `path`."""
        self.fields: dict[str, Any] = {} if fields is None else fields
        self.path = path

    def inside(self, name: str) -> Found:
        """Return the collector for what lies in `name`; it collects into the same place."""
        return Found(self.fields, where(self.path, name))

    def keep(self, name: str, value: Any) -> None:
        """Remember one field."""
        self.fields[where(self.path, name)] = value

    def keep_rest(self, fields: Fields) -> None:
        """Remember all that was not taken from `fields`."""
        for name, value in fields.rest().items():
            self.keep(escaped(name), value)

    def with_rest(self, fields: Fields) -> dict[str, Any]:
        """Return all that was found, after what was not taken from the body itself."""
        return {**{escaped(name): value for name, value in fields.rest().items()}, **self.fields}

    def merge(self, other: Found, at: str) -> None:
        """Take over what `other` found, below `at`."""
        for name, value in other.fields.items():
            self.keep(where(at, name), value)


class Unplaced:
    """The unknown fields of one conversation while it is written: each is put where it was found."""

    def __init__(self, others: dict[str, Any]) -> None:
        """Begin with `others` as they were read."""
        self._by_owner: dict[str, dict[str, Any]] = {}
        for path, value in others.items():
            owner, _, name = path.rpartition(".")
            self._by_owner.setdefault(owner, {})[unescaped(name)] = value

    def onto(self, target: dict[str, Any], path: str) -> None:
        """Put the fields that belong to `path` into `target`."""
        target.update(self._by_owner.pop(path, {}))

    def rest(self) -> dict[str, Any]:
        """Return the fields that nobody asked for, by their whole names: those of the body itself."""
        return {where(owner, name): value for owner, named in self._by_owner.items() for name, value in named.items()}
