"""What a command printed, within bounds: the head and the tail are kept, the middle is counted."""

from __future__ import annotations

import asyncio
import os
from dataclasses import dataclass
from typing import Final

CHUNK_BYTES: Final = 65_536
"""One read; also the most that is in a pipe once the command that filled it is over."""


@dataclass(frozen=True, slots=True)
class Output:
    """`text` is at most the bound long in UTF-8; `size` counts all bytes that were printed."""

    text: str
    size: int
    truncated: bool


class BoundedOutput:
    """Takes any amount of bytes, holds at most about `limit` of them: half from the beginning, half from the end."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._head = bytearray()
        self._tail = bytearray()
        self._size = 0

    def feed(self, data: bytes) -> None:
        """Take the next bytes."""
        self._size += len(data)
        if room := self._limit - len(self._head):
            self._head += data[:room]
            data = data[room:]
        if data:
            self._tail += data
            if len(self._tail) > 2 * self._limit:  # trimmed now and then, not at every feed
                del self._tail[: -self._limit]

    def skip(self, count: int) -> None:
        """Count bytes that somebody else has left out already."""
        self._size += count

    def result(self) -> Output:
        """Return what was kept; a note stands where bytes were left out."""
        if self._size <= self._limit:
            text = self._head.decode(errors="replace")
            clipped = _clip(text, self._limit)
            return Output(clipped, self._size, truncated=len(clipped) < len(text))
        note = f"\n[… {self._size - self._limit} bytes left out …]\n"
        room = max(self._limit - len(note.encode()), 0)
        kept = self._head + self._tail
        head = _clip(kept[: room // 2].decode(errors="replace"), room // 2)
        tail = _clip(kept[len(kept) - (room - room // 2) :].decode(errors="replace"), room - room // 2)
        return Output(_clip(head + note + tail, self._limit), self._size, truncated=True)


def _clip(text: str, limit: int) -> str:
    """Return at most `limit` bytes of `text`: what is no UTF-8 grows threefold when it is replaced."""
    encoded = text.encode()
    return text if len(encoded) <= limit else encoded[:limit].decode(errors="ignore")


class PipeReader:
    """Collects what arrives on a pipe while the event loop runs. Owns `fd`, which must not block."""

    def __init__(self, fd: int, limit: int) -> None:
        self._fd = fd
        self._output = BoundedOutput(limit)
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(fd, self._read)
        self._is_listening = True

    def _read(self) -> int:
        try:
            data = os.read(self._fd, CHUNK_BYTES)
        except BlockingIOError:
            return 0
        if data:
            self._output.feed(data)
        else:
            self._ignore()
        return len(data)

    def _ignore(self) -> None:
        if self._is_listening:
            self._loop.remove_reader(self._fd)
            self._is_listening = False

    def finish(self) -> Output:
        """Take what is in the pipe and close it, without waiting for those who still hold its other end."""
        drained = 0
        while drained < CHUNK_BYTES and (count := self._read()):
            drained += count
        self.close()
        return self._output.result()

    def close(self) -> None:
        """Stop reading; safe to repeat."""
        if self._fd >= 0:
            self._ignore()
            os.close(self._fd)
            self._fd = -1
