"""What an agent's command says beside the protocol: what it writes to its error output, and lines that are no JSON."""

from __future__ import annotations

import asyncio
import json
import logging
import os
from contextlib import suppress

KEPT_MAX_BYTES = 600
ENDS_WITHIN_S = 1.0


class Hearing(logging.Handler):
    """Keeps the end of it. The protocol's library logs the lines that it cannot read, with why."""

    def __init__(self) -> None:
        """Hear nothing yet."""
        super().__init__()
        self._kept = bytearray()
        self._listening: asyncio.Task[None] | None = None

    @property
    def text(self) -> str:
        """Return the last lines of what was said, in one."""
        lines = self._kept.decode(errors="replace").splitlines()
        return "; ".join(line.strip() for line in lines if line.strip())

    def begin(self, stream: asyncio.StreamReader | None) -> None:
        """Listen to the error output of a command, and pass it on to our own."""
        if stream is not None:
            self._listening = asyncio.create_task(self._listen(stream))

    async def end(self) -> None:
        """Wait until all is heard of a command that has ended; what it left behind may hold its output for longer."""
        if self._listening is not None:
            await asyncio.wait({self._listening}, timeout=ENDS_WITHIN_S)

    def emit(self, record: logging.LogRecord) -> None:
        """Take in a line that is no JSON."""
        error = record.exc_info[1] if record.exc_info else None
        if isinstance(error, json.JSONDecodeError):
            self._keep(error.doc[-KEPT_MAX_BYTES:].encode(errors="replace") + b"\n")

    async def _listen(self, stream: asyncio.StreamReader) -> None:
        while piece := await stream.read(65536):
            self._keep(piece)
            with suppress(OSError):
                os.write(2, piece)

    def _keep(self, piece: bytes) -> None:
        self._kept += piece
        del self._kept[: max(len(self._kept) - KEPT_MAX_BYTES, 0)]
