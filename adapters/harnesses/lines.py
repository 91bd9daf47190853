"""JSON lines as they come, in pieces of any size, from a file that nobody can trust: bounded, counted, never an exception."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

LINE_MAX_BYTES: Final = 8 * 1024 * 1024


@dataclass(slots=True)
class Faults:
    """What was not understood: lines that are no JSON object, too long, cut at the end; records of other fields; items too many.

    `replaced` is how often a file was not what had been read of it any more.
    """

    malformed: int = 0
    oversized: int = 0
    cut: int = 0
    unexpected: int = 0
    too_many: int = 0
    replaced: int = 0

    @property
    def total(self) -> int:
        """Return how many there are of all kinds."""
        return self.malformed + self.oversized + self.cut + self.unexpected + self.too_many + self.replaced


class JsonLines:
    """Splits bytes into records. Of a line that is longer than `line_max_bytes` nothing is kept."""

    def __init__(self, faults: Faults, line_max_bytes: int = LINE_MAX_BYTES) -> None:
        """Count in `faults`."""
        self._faults = faults
        self._max = line_max_bytes
        self._pieces: list[bytes] = []
        self._size = 0
        self._is_skipping = False

    def feed(self, content: bytes) -> Iterator[dict[str, Any]]:
        """Yield the records that are whole now."""
        *whole, rest = content.split(b"\n")
        for line in whole:
            if not line and not self._size:
                continue
            self._add(line)
            if (record := self._ended()) is not None:
                yield record
        self._add(rest)

    def end(self) -> Iterator[dict[str, Any]]:
        """Yield what stands behind the last line's end, if that is a record; else it was cut. What is fed then begins a line."""
        if self._size and not self._is_skipping:
            malformed = self._faults.malformed
            if (record := self._ended()) is not None:
                yield record
            elif self._faults.malformed > malformed:
                self._faults.malformed, self._faults.cut = malformed, self._faults.cut + 1
        self._pieces.clear()
        self._size, self._is_skipping = 0, False

    def _add(self, piece: bytes) -> None:
        self._size += len(piece)
        if self._size > self._max and not self._is_skipping:
            self._is_skipping = True
            self._pieces.clear()
            self._faults.oversized += 1
        if piece and not self._is_skipping:
            self._pieces.append(piece)

    def _ended(self) -> dict[str, Any] | None:
        line, was_skipping = b"".join(self._pieces).strip(), self._is_skipping
        self._pieces.clear()
        self._size, self._is_skipping = 0, False
        return None if was_skipping or not line else parsed(line, self._faults)


def parsed(content: bytes, faults: Faults) -> dict[str, Any] | None:
    """Return a JSON object, None for what is none; bytes that are no text are replaced."""
    try:
        record = json.loads(content.decode(errors="replace"))
    except (ValueError, RecursionError):
        record = None
    if not isinstance(record, dict):
        faults.malformed += 1
        return None
    return record
