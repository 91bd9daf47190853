"""Objects of the Gemini API read field by field. Clients may write `mime_type` for `mimeType`, as for every name."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

from providers.dialects.base import Unexpressible
from providers.dialects.fields import Fields, as_object, escaped, where

SPELLED: Final = re.compile(r"(?<=[a-z0-9])_([a-z])")


def object_at(value: Any, path: str) -> Fields:
    """Return the object `value`, which lies at `path`, with its fields' names in one spelling."""
    found: dict[str, Any] = {}
    for name, inner in as_object(value, path).items():
        spelled = SPELLED.sub(lambda match: match[1].upper(), name)
        if spelled in found:
            raise Unexpressible(where(path, spelled), "is given twice, in both spellings")
        found[spelled] = inner
    return Fields(found, path)


def inner(fields: Fields, name: str) -> Fields | None:
    """Take an object to be read field by field."""
    value = fields.take(name)
    return None if value is None else object_at(value, fields.at(name))


def needed(fields: Fields, name: str) -> Fields:
    """Take an object that must be there."""
    found = inner(fields, name)
    if found is None:
        raise Unexpressible(fields.at(name), "is missing")
    return found


def each(fields: Fields, name: str) -> Iterator[Fields]:
    """Take a list of objects; nothing if it is absent."""
    for n, value in enumerate(fields.list(name) or ()):
        yield object_at(value, f"{fields.at(name)}.{n}")


def whole(fields: Fields, name: str) -> int | None:
    """Take a whole number, which JavaScript may have written as 64.0."""
    value = fields.number(name)
    if isinstance(value, float) and not value.is_integer():
        raise Unexpressible(fields.at(name), "want a whole number")
    return None if value is None else int(value)


def words(fields: Fields, name: str) -> tuple[str, ...] | None:
    """Take a list of strings."""
    listed = fields.list(name)
    for n, text in enumerate(listed or ()):
        if not isinstance(text, str):
            raise Unexpressible(f"{fields.at(name)}.{n}", "want a string")
    return None if listed is None else tuple(listed)


def keep(fields: Fields, others: dict[str, Any]) -> None:
    """Note all that was not taken, by its whole path: it is refused, or left out by name, where it goes."""
    others.update({fields.at(escaped(name)): value for name, value in fields.rest().items()})
