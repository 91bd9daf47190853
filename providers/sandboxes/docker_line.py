"""Lines of text to and from a process in a container, over one hijacked connection to the engine."""

from __future__ import annotations

from contextlib import suppress
from typing import Final

import aiohttp
from aiodocker.stream import Stream

from providers.sandboxes.base import BoxLost

LINE_MAX_BYTES: Final = 4096
BROKEN: Final = (aiohttp.ClientError, OSError, RuntimeError, AssertionError)
"""What aiodocker's streams raise once the other side has hung up; some of it they only assert."""


class Line:
    """Owns `stream`. Whatever is wrong with the connection is its end."""

    def __init__(self, stream: Stream) -> None:
        self._stream = stream
        self._heard = bytearray()
        self._is_over = False

    async def open(self) -> None:
        """Connect."""
        await self._stream.__aenter__()

    async def write(self, text: str) -> None:
        """Send `text`, if anybody is there: who wants to know reads the answer."""
        with suppress(*BROKEN):
            await self._stream.write_in(text.encode())

    async def read(self) -> str | None:
        """Return the next line of its output, None at the end; raises `BoxLost` if it is longer than any line we know."""
        while b"\n" not in self._heard:
            try:
                message = None if self._is_over else await self._stream.read_out()
            except BROKEN:
                message = None
            if message is None:
                self._is_over = True
                return None
            if message.stream == 1:
                self._heard += message.data
            if len(self._heard) > LINE_MAX_BYTES and b"\n" not in self._heard:
                raise BoxLost("a process of the sandbox's own said something that is not in the protocol")
        line, _, rest = self._heard.partition(b"\n")
        self._heard = rest
        return line.decode(errors="replace")

    async def hang_up(self) -> None:
        """Close the connection, and with it the process's input; does not wait for anything, safe to repeat."""
        self._is_over = True
        with suppress(*BROKEN):
            await self._stream.close()
