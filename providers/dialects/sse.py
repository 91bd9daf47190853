"""Server-sent events, split out of bytes as they arrive, and put together (WHATWG HTML, section 9.2).

Lines end at LF, CR or CRLF and nowhere else: U+2028, U+0085 and their like occur inside of JSON strings, and libraries that split by
Python's idea of a line tear such events apart.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from providers.dialects.base import Malformed

EVENT_MAX_BYTES: Final = 16 * 1024 * 1024
_LINE_END: Final = re.compile(rb"\r\n|\n|\r")


@dataclass(frozen=True, slots=True)
class ServerEvent:
    """One event: its name if it has one, its data, and the bytes it came in, blank line included."""

    name: str | None
    data: str
    raw: bytes


class EventSplitter:
    """Takes bytes, gives events. What has come of an unfinished event waits for the rest, at most `max_bytes` of it."""

    def __init__(self, max_bytes: int = EVENT_MAX_BYTES) -> None:
        """Begin at the start of a stream."""
        self._max = max_bytes
        self._rest = bytearray()
        self._seen = 0  # where the line begins that is not whole yet
        self._searched = 0  # up to where there is no line's end in it

    def feed(self, chunk: bytes) -> list[ServerEvent]:
        """Return the events that are whole with `chunk`; raises `Malformed` for one that is too large, or no UTF-8."""
        self._rest += chunk
        events = []
        while (end := self._end_of_event()) is not None:
            raw = bytes(self._rest[:end])
            del self._rest[:end]
            self._seen = self._searched = 0
            if event := _parsed(raw):
                events.append(event)
        if len(self._rest) > self._max:
            msg = f"an event of more than {self._max:,} bytes"
            raise Malformed(msg)
        return events

    @property
    def is_torn(self) -> bool:
        """Return whether something of an event has come that never became whole."""
        return bool(self._rest.strip())

    def _end_of_event(self) -> int | None:
        """Return where the first blank line ends, looking only at what is new.

        A CR at the very end may yet become a CRLF. A blank line has ended all the same: the LF after it would be another one.
        """
        while match := _LINE_END.search(self._rest, self._searched):
            if match.start() == self._seen:
                return match.end()
            if match.end() == len(self._rest) and match.group() == b"\r":
                self._searched = match.start()
                return None
            self._seen = self._searched = match.end()
        self._searched = len(self._rest)
        return None


def _parsed(raw: bytes) -> ServerEvent | None:
    """Return the event of some lines; None if they hold no data (a comment, a bare name)."""
    try:
        text = raw.decode()
    except UnicodeDecodeError as error:
        msg = f"an event that is not UTF-8: {error}"
        raise Malformed(msg) from error
    if (
        text.startswith("data: ")
        and text.endswith("\n\n")
        and "\n" not in (data_only := text[6:-2])
        and "\r" not in data_only
    ):
        return ServerEvent(None, data_only, raw)  # as nearly all are
    name, data = None, []
    for line in re.split(r"\r\n|\n|\r", text.removeprefix("\ufeff")):
        field, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if field == "event":
            name = value
        elif field == "data":
            data.append(value)
    return ServerEvent(name, "\n".join(data), raw) if data else None


def event_bytes(data: str, name: str | None = None) -> bytes:
    """Return one event as bytes."""
    head = f"event: {name}\n" if name else ""
    body = "".join(f"data: {line}\n" for line in re.split(r"\r\n|\n|\r", data))
    return f"{head}{body}\n".encode()
