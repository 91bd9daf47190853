"""What a client gets of one call: how the answer begins, then piece by piece; and what it says by leaving."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Final

PIECES_MAX: Final = 256
"""A client that reads slowly holds its own call up, and nobody else's memory."""


@dataclass(frozen=True, slots=True)
class Head:
    """How an answer begins."""

    status: int
    headers: dict[str, str]


@dataclass
class Outlet:
    """See the module."""

    head: asyncio.Future[Head] = field(default_factory=lambda: asyncio.get_running_loop().create_future())
    has_left: asyncio.Event = field(default_factory=asyncio.Event)
    _pieces: asyncio.Queue[bytes | None] = field(default_factory=lambda: asyncio.Queue(PIECES_MAX))

    @property
    def has_begun(self) -> bool:
        """Return whether the client has got anything yet."""
        return self.head.done()

    def begin(self, status: int, headers: dict[str, str]) -> None:
        """Say how the answer begins, once."""
        if not self.head.done():
            self.head.set_result(Head(status, headers))

    async def put(self, piece: bytes) -> None:
        """Hand a piece over, waiting for room; what is for a client that has left is thrown away."""
        if piece and not self.has_left.is_set():
            await self._pieces.put(piece)

    async def end(self) -> None:
        """Say that this was all."""
        if not self.has_left.is_set():
            await self._pieces.put(None)

    def leave(self) -> None:
        """Say that the client is gone."""
        if not self.has_left.is_set():
            self.has_left.set()
            while not self._pieces.empty():
                self._pieces.get_nowait()
            self._pieces.put_nowait(None)

    async def pieces(self) -> AsyncIterator[bytes]:
        """Yield what the client gets."""
        while (piece := await self._pieces.get()) is not None:
            yield piece
