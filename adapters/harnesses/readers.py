"""Readers: from the bytes of a harness's file to items, piece by piece. What a harness's records mean is a function of its own."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final, Protocol

from adapters.harnesses.lines import LINE_MAX_BYTES, Faults, JsonLines, parsed
from adapters.harnesses.trajectory import Item

ITEMS_MAX: Final = 100_000
KINDS_MAX: Final = 256
DOCUMENT_MAX_BYTES: Final = 64 * 1024 * 1024

Record = dict[str, Any]
Interpret = Callable[[Record], Iterable[Item] | None]
"""Says what a record means: no items for what says nothing new, None for a kind that is not known."""


class Reader(Protocol):
    """Reads one file of one launch. `unknown` counts records by kinds that nobody here knows, `faults` what was not understood."""

    unknown: Counter[str]
    faults: Faults

    def feed(self, content: bytes) -> list[Item]:
        """Return the items of what was written since the last time."""
        ...

    def end(self) -> list[Item]:
        """Return what is left when nothing more will be written."""
        ...


class LineReader:
    """Reads a file of JSON lines; a record that says what it should not is counted, and the next one is read."""

    def __init__(self, interpret: Interpret, line_max_bytes: int = LINE_MAX_BYTES) -> None:
        """Understand records by `interpret`."""
        self.unknown: Counter[str] = Counter()
        self.faults = Faults()
        self._lines = JsonLines(self.faults, line_max_bytes)
        self._interpret = interpret
        self._count = 0

    def feed(self, content: bytes) -> list[Item]:
        """See `Reader`."""
        return self._items(self._lines.feed(content))

    def end(self) -> list[Item]:
        """See `Reader`."""
        return self._items(self._lines.end())

    def _items(self, records: Iterator[Record]) -> list[Item]:
        found: list[Item] = []
        for record in records:
            found += understood(self, self._interpret, record)
        room = ITEMS_MAX - self._count
        self.faults.too_many += max(len(found) - room, 0)
        self._count += min(len(found), room)
        return found[:room]


class DocumentReader:
    """Reads one JSON document that is written anew each time; it is understood as a whole, at the end."""

    def __init__(self, records_of: Callable[[Record], Iterable[object]], interpret: Interpret) -> None:
        """Understand a document as the records that `records_of` finds in it."""
        self.unknown: Counter[str] = Counter()
        self.faults = Faults()
        self._records_of = records_of
        self._interpret = interpret
        self._content = bytearray()

    def feed(self, content: bytes) -> list[Item]:
        """Keep it; see `Reader`."""
        self._content += content[: max(DOCUMENT_MAX_BYTES - len(self._content), 0)]
        return []

    def end(self) -> list[Item]:
        """See `Reader`."""
        if len(self._content) >= DOCUMENT_MAX_BYTES:
            self.faults.oversized += 1
            return []
        document = parsed(bytes(self._content), self.faults) if self._content else None
        if document is None:
            return []
        try:
            records = [record for record in self._records_of(document) if isinstance(record, dict)]
        except SHAPES:
            self.faults.unexpected += 1
            return []
        return [item for record in records for item in understood(self, self._interpret, record)][:ITEMS_MAX]


SHAPES: Final = (KeyError, TypeError, ValueError, AttributeError, IndexError, RecursionError, OverflowError)
"""What reading a field raises that is not there, or is something else."""


def understood(reader: Reader, interpret: Interpret, record: Record) -> list[Item]:
    """Return a record's items; what it does not say, or says in an unknown way, is counted in `reader`."""
    try:
        items = interpret(record)
        found = None if items is None else list(items)
    except SHAPES:
        reader.faults.unexpected += 1
        return []
    if found is None:
        kind = str(record.get("type", record.get("role", "?")))[:100]
        reader.unknown[kind if kind in reader.unknown or len(reader.unknown) < KINDS_MAX else "others"] += 1
        return []
    return found


def text_of(content: object) -> str:
    """Return the words of a content field: a string, or a list of parts of which those with a `text` count."""
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        return "".join(
            str(part["text"]) for part in content if isinstance(part, dict) and isinstance(part.get("text"), str)
        )
    return ""


def as_text(arguments: object) -> str:
    """Return a call's arguments as text: as they are, or written as JSON if the harness has parsed them."""
    return arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)


def word(value: object) -> str | None:
    """Return a name as it stands in a record, None for anything else."""
    return value if isinstance(value, str) else None


def number(value: object) -> int | None:
    """Return a count as it stands in a record, None for anything else."""
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None
