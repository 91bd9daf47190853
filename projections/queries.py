"""The SQL files beside this package, by name.

The statements of `sql/ingest` name what they take out of stored bytes as `head(x, 'type')` and `field(x, 'turn')`.
The names are replaced by positions here, when the text is loaded, and `fields()` by the list of what the statement
names: as SQL macros they would cost five times as much to plan, for every batch.
"""

from __future__ import annotations

import functools
import re
from importlib import resources
from typing import Final

_NAMED: Final = re.compile(r"\b(head|field)\(x, '([^']+)'\)")
_TYPES: Final = "-- types: "


@functools.cache
def text(name: str) -> str:
    """Return the text of `projections/sql/<name>.sql`."""
    return (resources.files("projections") / "sql" / f"{name}.sql").read_text(encoding="utf-8")


@functools.cache
def names(folder: str) -> tuple[str, ...]:
    """Return the names of the files of one folder, sorted, without their ending."""
    files = (resources.files("projections") / "sql" / folder).iterdir()
    return tuple(sorted(f.name.removesuffix(".sql") for f in files if f.name.endswith(".sql")))


def _expand(statement: str) -> str:
    """Put positions in the place of the names a statement uses, and the list of their paths in that of `fields()`."""
    names = list(dict.fromkeys((m[1], m[2]) for m in _NAMED.finditer(statement)))
    paths = ", ".join(f"'$.{name}'" for _, name in names)
    statement = statement.replace("fields()", f"[{paths}]")
    return _NAMED.sub(lambda m: f"x[{names.index((m[1], m[2])) + 1}]", statement)


@functools.cache
def ingest(name: str) -> str:
    """Return the text of a statement of `sql/ingest`, names replaced by positions."""
    return _expand(text(f"ingest/{name}"))


@functools.cache
def typed_inserts() -> tuple[tuple[frozenset[str], str], ...]:
    """Return the statements that fill the typed tables, each with the event types that it is about."""
    parts = text("ingest/insert_typed").split(_TYPES)[1:]
    split = (part.partition("\n") for part in parts)
    return tuple((frozenset(types.split()), _expand(statement)) for types, _, statement in split)
