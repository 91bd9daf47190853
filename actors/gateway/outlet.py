"""What a client gets of one call: how the answer begins, then piece by piece; and what it says by leaving."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

PIECES_MAX: Final = 256
"""A client that reads slowly holds its own call up, and nobody else's memory."""
READS_WITHIN_S: Final = 60.0
"""A client that takes nothing for so long is as good as gone."""


@dataclass(frozen=True, slots=True)
class Head:
    """How an answer begins."""

    status: int
    headers: dict[str, str]


@dataclass(frozen=True, slots=True)
class Ready:
    """What may be sent now: the head if it is the beginning, bytes, and whether that was all."""

    head: Head | None
    body: bytes
    is_last: bool


@dataclass
class Outlet:
    """See the module. `was_cut` says that an answer ends in the middle, because its client did not read it."""

    has_left: bool = False
    has_begun: bool = False
    was_cut: bool = False
    on_left: Callable[[], object] | None = None
    _pieces: asyncio.Queue[Head | bytes | None] = field(default_factory=lambda: asyncio.Queue(PIECES_MAX))

    def begin(self, status: int, headers: dict[str, str]) -> None:
        """Say how the answer begins, once."""
        if not self.has_begun:
            self.has_begun = True
            if not self.has_left:
                self._pieces.put_nowait(Head(status, headers))

    async def put(self, piece: bytes) -> None:
        """Hand a piece over, waiting for room; what is for a client that has left, or does not read, is thrown away."""
        if piece and not self.has_left:
            await self._put(piece)

    async def end(self) -> None:
        """Say that this was all."""
        if not self.has_left:
            await self._put(None)

    async def _put(self, piece: bytes | None) -> None:
        if not self._pieces.full():
            self._pieces.put_nowait(piece)
            return
        try:
            async with asyncio.timeout(READS_WITHIN_S):
                await self._pieces.put(piece)
        except TimeoutError:
            self.was_cut = True
            self.leave()

    def leave(self) -> None:
        """Say that the client is gone."""
        if not self.has_left:
            self.has_left = True
            while not self._pieces.empty():
                self._pieces.get_nowait()
            self._pieces.put_nowait(None)
            if self.on_left:
                self.on_left()

    async def take(self) -> Ready:
        """Wait for something to send; return all that is there, in one piece."""
        head: Head | None = None
        body: list[bytes] = []
        piece = await self._pieces.get()
        while True:
            match piece:
                case Head():
                    head = piece
                case None:
                    return Ready(head, b"".join(body), is_last=True)
                case _:
                    body.append(piece)
            if self._pieces.empty():
                return Ready(head, b"".join(body), is_last=False)
            piece = self._pieces.get_nowait()
