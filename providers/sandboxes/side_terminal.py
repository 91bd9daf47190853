"""An interactive command in a box, behind a pseudo-terminal that script(1) makes in there."""

from __future__ import annotations

import asyncio
import os
import re
import shlex
from contextlib import ExitStack, suppress
from typing import Final

from gym_bus.errors import Permanent
from providers.sandboxes.base import BoxLost
from providers.sandboxes.command_output import command_output
from providers.sandboxes.marks import kill_marked
from providers.sandboxes.named_pipes import named_pipe, readable, write_all
from providers.sandboxes.output import CHUNK_BYTES
from providers.sandboxes.side_shell import MARK, SideShell, exit_code_of

BEGIN_TIMEOUT_S: Final = 15.0
TYPE_TIMEOUT_S: Final = 15.0
WORDS_BYTES: Final = 1024
_SIGNALS: Final = 'set -- env --default-signal=INT,QUIT; "$@" true 2>/dev/null || set --'
"""What a shell starts in the background ignores these for ever, unless env(1) knows better."""


class SideTerminal:
    """See `Terminal`. What nobody reads stays in the pipe, and its writer waits."""

    def __init__(self, side: SideShell) -> None:
        self._side = side
        self._held = ExitStack()
        self._input, self._keys = self._held.enter_context(named_pipe(side.room, "in"))
        self._nonce, self._screen = self._held.enter_context(named_pipe(side.room, "out"))
        self._done: asyncio.Future[int | None] = asyncio.get_running_loop().create_future()
        self._device = ""
        self._shown = b""
        self._is_open = True

    @classmethod
    async def open(cls, side: SideShell, command: str, rows: int, columns: int) -> SideTerminal:
        """Start `command`; raises `BoxLost`, `Permanent`."""
        terminal = cls(side)
        try:
            await terminal._begin(command, rows, columns)
        except BaseException:
            await terminal.close()
            raise
        return terminal

    async def write(self, content: bytes) -> None:
        """Type; raises `Permanent` if it is over, or does not take what is typed."""
        self._check()
        try:
            async with asyncio.timeout(TYPE_TIMEOUT_S):
                await write_all(self._keys, content, or_done=self._done)
        except TimeoutError as error:
            raise Permanent("the command behind the terminal takes nothing more: read what it shows") from error

    async def read(self, *, within_s: float) -> bytes:
        """Return what has been shown since the last read; empty after `within_s`, or at its end."""
        self._check()
        if shown := self._take():
            return shown
        with suppress(TimeoutError):
            async with asyncio.timeout(within_s):
                await readable(self._screen, or_done=self._done)
        return self._take()

    async def resize(self, rows: int, columns: int) -> None:
        """Tell the command how large its terminal is."""
        self._check()
        with command_output(self._side.room, WORDS_BYTES) as (nonce, _):
            size = f"stty rows {rows} cols {columns} <{self._device}"
            await asyncio.wait([await self._side.begin(size, nonce, is_bounded=True)], timeout=BEGIN_TIMEOUT_S)

    async def close(self) -> int | None:
        """End it with its process tree; return the exit code if it had ended by itself. Safe to repeat."""
        code = self._done.result() if self._done.done() else None
        if self._is_open:
            self._is_open = False
            await asyncio.to_thread(kill_marked, f"{MARK}={self._nonce}")
            os.close(self._keys)
            os.close(self._screen)
            self._held.close()
        return code

    async def _begin(self, command: str, rows: int, columns: int) -> None:
        inner = f"tty; stty rows {rows} cols {columns}; TERM=xterm exec /bin/sh -c {shlex.quote(command)}"
        script = f'{_SIGNALS}; exec "$@" script -qefc {shlex.quote(inner)} /dev/null'
        reads = f"{self._side.view}/{self._input}"
        self._done = await self._side.begin(script, self._nonce, reads=reads, is_bounded=True)
        with suppress(TimeoutError):
            async with asyncio.timeout(BEGIN_TIMEOUT_S):
                while b"\n" not in self._shown and not self._done.done():
                    await readable(self._screen, or_done=self._done)
                    self._shown += self._take()
        device, _, self._shown = self._shown.partition(b"\n")
        if not re.fullmatch(rb"/dev/pts/\d+", device.strip()):
            if not self._done.done() and await exit_code_of(self._done) is None:
                raise BoxLost("everything in the sandbox was killed")
            raise Permanent(
                f"no terminal could be made in the sandbox: {device[:WORDS_BYTES].decode(errors='replace')}"
            )
        self._device = device.strip().decode()

    def _take(self) -> bytes:
        shown, self._shown = self._shown, b""
        with suppress(BlockingIOError):
            shown += os.read(self._screen, CHUNK_BYTES)
        return shown

    def _check(self) -> None:
        if not self._is_open:
            raise Permanent("the terminal is closed")
