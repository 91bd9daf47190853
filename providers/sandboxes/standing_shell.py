"""A shell that stands in a box and runs one command after the other, each in a shell of its own.

The protocol: we write `run 'COMMAND' NONCE` to the standing shell's input; a child of it becomes `/bin/sh -c COMMAND`
with nothing as input and the named pipe NONCE as output; when that child is over, the standing shell says `NONCE
EXITCODE` on its own output, which no command inherits. Whoever else holds the named pipe is not waited for.

A command cannot forge this: it does not know the next nonce, and it cannot reach the standing shell's files or memory
through /proc although both are the same user, because the kernel treats a process whose program nobody may read as not
dumpable. As process 1 of its namespace the standing shell cannot be killed from inside either. A wrong word from it is
the end of the box.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import shlex
import subprocess
from collections.abc import Mapping
from typing import Final

from providers.sandboxes.base import BoxLost, CreateFailed, ExecResult
from providers.sandboxes.bubblewrap_argv import PIPES_IN_BOX, SHELL_IN_BOX
from providers.sandboxes.command_output import command_output
from providers.sandboxes.control_groups import UNIFIED, BoxGroup, Groups, unified_hierarchy
from providers.sandboxes.freezing import Freezer, GroupFreezer, SignalFreezer
from providers.sandboxes.local_box import Alone
from providers.sandboxes.named_pipes import write_all
from providers.sandboxes.processes import (
    children,
    descendants,
    exited,
    exports,
    is_first,
    kill,
    out_of_memory,
    pipe,
    result,
    ulimits,
)
from providers.sandboxes.rooms import Room
from providers.sandboxes.side_shell import SideShell
from schemas.sandboxes import SandboxLimits

START_TIMEOUT_S: Final = 60.0
KILL_TIMEOUT_S: Final = 10.0
END_TIMEOUT_S: Final = 10.0
BURY_PAUSE_S: Final = 0.002
_KILLED: Final = "killed"


class StandingShell:
    """Drives the shell in `process`, whose input and output are pipes to us. Not for two commands at a time."""

    def __init__(
        self,
        process: subprocess.Popen[bytes],
        room: Room,
        limits: SandboxLimits,
        *,
        memory: BoxGroup | None = None,
        freezes_in: Groups | None = None,
        program: str = SHELL_IN_BOX,
        bounds: str | None = None,
    ) -> None:
        """Speak to `process`; `program` is what it became, `bounds` shell text that sets a command's limits.

        `memory` is the group that bounds the memory of the box as a whole; groups to freeze it in are made by `freezes_in`.
        """
        self._process = process
        self._groups = freezes_in
        self._memory = memory
        self._program = program
        self._freezer: Freezer | None = None
        self._frozen: BoxGroup | None = None
        self._bounds = bounds or ulimits(limits, processes=True, memory=memory is None)
        self.room = room
        self._limits = limits
        self._loop = asyncio.get_running_loop()
        self._input, self._status = pipe(process.stdin).fileno(), pipe(process.stdout).fileno()
        self._said = asyncio.StreamReader(limit=4096)
        self._is_busy = False
        self.is_alive = True
        os.set_blocking(self._input, False)
        os.set_blocking(self._status, False)
        self._loop.add_reader(self._status, self._listen)

    async def start(self, *, within_s: float = START_TIMEOUT_S, moves: bool = True) -> None:
        """Teach the shell how to run commands and wait until it answers; raises `CreateFailed`.

        It `moves` into the group that bounds its memory, unless it was started in there.
        """
        nonce = secrets.token_hex(8)
        run = (
            f'exec 2>/dev/null\nrun() {{ ({self._bounds}; exec /bin/sh -c "$1")'
            f' </dev/null >{PIPES_IN_BOX}/"$2" 2>&1; echo "$2 $?"; }}\n'
            'aside() { (eval "$1") </dev/null >/dev/null 2>&1 & echo "$2 0"; }\n'
        )
        try:
            async with asyncio.timeout(within_s):
                await self._write(f"{run}echo {nonce} $$\n")
                if await self._answer(nonce) != 1:  # `kill -9 -1` has to stay in there
                    raise CreateFailed("it has no process namespace of its own")
            if self._memory and moves:
                await asyncio.to_thread(self._memory.add, [await self.first_pid()])
        except (TimeoutError, BoxLost) as error:
            raise CreateFailed("its first process did not start") from error
        except OSError as error:
            raise CreateFailed(f"its memory cannot be bounded: {error}") from error

    async def first_pid(self) -> int:
        """Return the pid, as this machine sees it, of the box's first process; raises `BoxLost` if there is none."""
        for pid in children(self._process.pid):
            if is_first(pid):
                return pid
        raise BoxLost("the sandbox's first process is gone")

    async def run(self, command: str, timeout_s: float) -> ExecResult:
        """Run one command; raises `BoxLost` if the shell dies or says what it should not."""
        started, self._is_busy, code, deaths = self._loop.time(), True, None, self._deaths()
        with command_output(self.room, self._limits.output_bytes) as (nonce, reader):
            try:
                async with asyncio.timeout(timeout_s):
                    await self._write(f"run {shlex.quote(command)} {nonce}\n")
                    code = await self._answer(nonce)
            except TimeoutError:
                await self._kill_tree(nonce)
            output = reader.finish()
            self._is_busy = False
        duration_s = self._loop.time() - started
        if code and self._deaths() > deaths:
            return out_of_memory(code, output, duration_s)
        return result(code, output, duration_s)

    def _reason(self) -> str:
        """Return what is known about a box whose first process is gone."""
        if self._deaths():
            return "the sandbox's first process is gone: the sandbox had no memory left"
        return "the sandbox's first process is gone"

    def _deaths(self) -> int:
        return self._memory.deaths() if self._memory else 0

    async def set_environment(self, variables: Mapping[str, str]) -> None:
        """Put variables into the environment of every later command; raises `BoxLost`. Not while a command runs."""
        nonce = secrets.token_hex(8)
        try:
            async with asyncio.timeout(KILL_TIMEOUT_S):
                await self._write(f"{exports(variables)}echo {nonce} 0\n")
                await self._answer(nonce)
        except TimeoutError as error:
            raise BoxLost("the sandbox's first process does not answer") from error

    async def end(self) -> None:
        """End the shell and with it every process of its namespace; safe to repeat."""
        self._hang_up()
        if self._is_busy:
            self.kill()
        pipe(self._process.stdin).close()  # an idle shell leaves at the end of its input, and the kernel ends the rest
        if self._process.poll() is None and not await exited(self._process.pid, END_TIMEOUT_S):
            self.kill()
            await exited(self._process.pid, END_TIMEOUT_S)
        self._process.poll()
        for group in (self._memory, self._frozen):
            if group:
                await group.remove()

    async def freeze(self) -> None:
        """Stop all processes of the box where they are; raises `BoxLost`."""
        if self._freezer is None:
            self._freezer = self._freezer_of()
        await self._freezer.freeze()

    async def thaw(self) -> None:
        """Let them go on."""
        if self._freezer:
            await self._freezer.thaw()

    def _freezer_of(self) -> Freezer:
        """Return the kernel's if this host lets us, else that of signals."""

        def pids() -> list[int]:
            return descendants(self._process.pid)

        if self._memory and self._memory.version == UNIFIED:
            return GroupFreezer(self._memory, pids)
        if self._groups:
            self._frozen = self._groups.make(self.room.path.name, unified_hierarchy())
        return GroupFreezer(self._frozen, pids) if self._frozen else SignalFreezer(pids)

    def side(self, limits: SandboxLimits, alone: Alone) -> SideShell:  # noqa: ARG002  they are the shell's own
        """Return the shell for what goes on beside commands, a child of this one: its memory is out of their reach as well."""

        async def launch(line: str) -> None:
            nonce = secrets.token_hex(8)
            async with alone(), asyncio.timeout(START_TIMEOUT_S):
                await self._write(f"aside {shlex.quote(line)} {nonce}\n")
                await self._answer(nonce)

        return SideShell(self.room, launch, view=PIPES_IN_BOX, program=self._program, bounds=self._bounds)

    async def break_off(self) -> None:
        """Let everything end, at once."""
        self._hang_up()
        self.kill()

    def kill(self) -> None:
        """Kill the box's first process, and so all of them; bwrap follows."""
        if self._process.returncode is not None:
            return
        for pid in children(self._process.pid) or [self._process.pid]:
            kill(pid)

    async def _write(self, text: str) -> None:
        try:
            await write_all(self._input, text.encode())
        except BrokenPipeError as error:
            raise BoxLost("the sandbox's first process is gone") from error

    def _listen(self) -> None:
        try:
            data = os.read(self._status, 4096)
        except BlockingIOError:
            return
        if data:
            self._said.feed_data(data)
        else:
            self._hang_up()

    def _hang_up(self) -> None:
        if self.is_alive:
            self.is_alive = False
            self._loop.remove_reader(self._status)
            self._said.feed_eof()
            pipe(self._process.stdout).close()

    async def _answer(self, nonce: str) -> int:
        """Return the number said after `nonce`; the caller sets the deadline."""
        try:
            line = await self._said.readline()
        except ValueError:  # longer than any line of the protocol
            line = b"?"
        word, _, number = line.decode(errors="replace").rstrip("\n").partition(" ")
        if not line:
            raise BoxLost(self._reason())
        if word != nonce or not number.isdecimal():
            raise BoxLost("the sandbox's first process said something that is not in the protocol")
        return int(number)

    async def _kill_tree(self, nonce: str) -> None:
        """Kill everything in the box but its first process; raises `BoxLost` if that does not come about in time.

        The shell waits for its child, so the order to kill all is left in its input, and the child is killed from here.
        """
        try:
            async with asyncio.timeout(KILL_TIMEOUT_S):
                await self._write(f"kill -9 -1; echo {_KILLED}{nonce} 0\n")
                for pid in (pid for first in children(self._process.pid) for pid in children(first)):
                    kill(pid)
                await self._answer(nonce)
                await self._answer(f"{_KILLED}{nonce}")
                await self._bury(nonce)
        except TimeoutError as error:
            raise BoxLost(f"a command could not be killed within {KILL_TIMEOUT_S} s of its deadline") from error

    async def _bury(self, nonce: str) -> None:
        """Wait until what was killed is gone: the dead count as processes until the shell has waited for a child of its own."""
        while descendants(await self.first_pid()):
            await self._write(f"(:); echo {nonce} 0\n")
            await self._answer(nonce)
            await asyncio.sleep(BURY_PAUSE_S)
