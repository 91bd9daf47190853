"""What a bubblewrap box is made of, laid out before anybody asks for the box.

To move a process into a control group takes up to some hundredths of a second, in which the kernel waits for all processors. So one
room is ready, with its views and its group, and in that group a process that waits for a word to become the box. Nothing of the
box runs yet. It is cleared away when no box was asked for during `IDLE_S`: a host knows a provider for each configuration of a
sandbox, of which a set of tasks may have as many as tasks. What a dead owner leaves of it goes with its rooms and groups; the process
itself leaves at the end of its input.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from providers.sandboxes.bubblewrap_argv import ENVIRONMENT, with_filter
from providers.sandboxes.control_groups import BoxGroup
from providers.sandboxes.processes import pipe
from providers.sandboxes.rooms import Room, Rooms
from providers.sandboxes.seccomp import filter_to_read

WAITING: Final = ("/bin/sh", "-c", 'read -r go && exec "$@"', "sh")
"""A process that becomes the command that follows, once it is told to; what it is told after that is the command's to read."""
AFTER_S: Final = 0.005
"""How long the next box waits for what the last one is asked first."""
MADE_LEAST: Final = 2
"""Of a configuration that one box is made of there is rarely a second: each task of a set may have its own."""
IDLE_S: Final = 10.0
GO: Final = b"go\n"


@dataclass(frozen=True, slots=True)
class Laid:
    """The parts of a box: its room, the command that becomes it, the group that bounds its memory."""

    room: Room
    command: list[str]
    memory: BoxGroup | None


class Spare:
    """Keeps the parts of one box ready; `lay` makes them, in any thread; raises `OSError`."""

    def __init__(self, rooms: Rooms, lay: Callable[[], Laid]) -> None:
        self._rooms = rooms
        self._lay = lay
        self._next: asyncio.Task[tuple[Laid, subprocess.Popen[bytes]]] | None = None
        self._clearing: set[asyncio.Task[None]] = set()
        self._idle: asyncio.TimerHandle | None = None
        self._is_closed = False
        self._made = 0

    def refill(self) -> None:
        """Count a box that was made, and have the parts of the next one laid out, unless they are there.

        That it cannot be done will show when they are asked for.
        """
        self._made += 1
        if self._is_closed or self._made < MADE_LEAST:
            return
        if self._next is None:
            self._next = asyncio.create_task(self._filled())
        self._be_idle()

    async def taken(self) -> tuple[Laid, subprocess.Popen[bytes]] | None:
        """Return what was ready, as a process that is becoming the box; None if nothing was."""
        if self._next is None or not self._next.done():
            return None
        filled, self._next = self._next, None
        if filled.cancelled() or filled.exception():
            return None
        laid, process = filled.result()
        try:
            laid.room.spare_mark.unlink()
            os.write(pipe(process.stdin).fileno(), GO)
        except OSError:
            await self._cleared(laid, process)
            return None
        return laid, process

    async def aclose(self) -> None:
        """Remove what is ready."""
        self._is_closed = True
        if self._idle:
            self._idle.cancel()
        self._let_go()
        if self._clearing:
            await asyncio.wait(self._clearing)

    def _be_idle(self) -> None:
        """Let go of what is ready unless this is called again for `IDLE_S`."""
        if self._idle:
            self._idle.cancel()
        self._idle = asyncio.get_running_loop().call_later(IDLE_S, self._let_go)

    def _let_go(self) -> None:
        filled, self._next = self._next, None
        if filled:
            clearing = asyncio.create_task(self._cleared_of(filled))
            self._clearing.add(clearing)
            clearing.add_done_callback(self._clearing.discard)

    async def _cleared_of(self, filled: asyncio.Task[tuple[Laid, subprocess.Popen[bytes]]]) -> None:
        await asyncio.wait([filled])
        if not filled.cancelled() and not filled.exception():
            await self._cleared(*filled.result())

    async def _filled(self) -> tuple[Laid, subprocess.Popen[bytes]]:
        await asyncio.sleep(AFTER_S)
        laid = await asyncio.to_thread(self._lay)
        process = None
        try:
            process = spawned([*WAITING, *laid.command])
            if laid.memory:
                await asyncio.to_thread(laid.memory.add, [process.pid])
        except BaseException:
            await self._cleared(laid, process)
            raise
        return laid, process

    async def _cleared(self, laid: Laid, process: subprocess.Popen[bytes] | None) -> None:
        if process:
            process.kill()
            await asyncio.to_thread(process.communicate)
        if laid.memory:
            await laid.memory.remove()
        await self._rooms.remove(laid.room)


def spawned(command: list[str]) -> subprocess.Popen[bytes]:
    """Start a box, or what becomes one. This thread must outlive it: its end is what the kernel takes for the end of the parent."""
    with filter_to_read() as seccomp:
        return subprocess.Popen(  # noqa: S603  our own arguments
            with_filter(command, seccomp),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            bufsize=0,
            cwd="/",
            env=ENVIRONMENT,
            pass_fds=(seccomp,),
        )
