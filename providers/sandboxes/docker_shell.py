"""The shell that stands in a container, in one exec of the engine, and the lease on the container's first process.

The protocol is that of `StandingShell` with two words more: the shell says `NONCE began` before a command, so that a shell which had
been killed while it stood idle is told apart from one that died of a command, and after the exit code it says how many processes
the kernel has killed so far because the container had no memory left (memory events of its cgroup, version 1 or 2).

A command runs as the same user as the shell and can kill it, or say false things in its name: that is told as its own end by a
signal, or as the loss of its box. It harms no other box, and the container's first process is out of its reach.

At a deadline, and whenever the shell is gone, the first process clears the container: everything in its pid namespace but itself
is killed, also what has left the command's session and group. Then another exec makes another shell.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import shlex
import signal
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final

from aiodocker.containers import DockerContainer

from gym_bus.errors import Permanent
from providers.sandboxes.base import BoxLost, CreateFailed, ExecResult
from providers.sandboxes.bubblewrap_argv import PIPES_IN_BOX
from providers.sandboxes.command_output import command_output
from providers.sandboxes.docker_container import CLEAR, CLEARED
from providers.sandboxes.docker_engine import GONE, Engine, EngineRefused
from providers.sandboxes.docker_line import Line
from providers.sandboxes.docker_owners import remove
from providers.sandboxes.docker_terminal import EngineTerminal
from providers.sandboxes.local_box import Alone
from providers.sandboxes.output import Output
from providers.sandboxes.processes import KILLED, exports, in_namespace_of, out_of_memory, result, ulimits
from providers.sandboxes.rooms import Room
from providers.sandboxes.side_shell import SideShell
from schemas.sandboxes import SandboxLimits

START_TIMEOUT_S: Final = 60.0
KILL_TIMEOUT_S: Final = 10.0
TRIES: Final = 40
PAUSE_S: Final = 0.05
BEGAN: Final = "began"
_FUNCTIONS: Final = """
deaths() {{
    deaths=0
    for file in /sys/fs/cgroup/memory.events /sys/fs/cgroup/memory/memory.oom_control; do
        [ -r $file ] && while read -r name value; do [ "$name" = oom_kill ] && deaths=$value; done <$file
    done
}}
run() {{
    echo "$2 {began}"
    (
        {ulimits}
        echo 500 2>/dev/null >/proc/self/oom_score_adj
        exec /bin/sh -c "$1"
    ) </dev/null >{pipes}/"$2" 2>&1
    code=$?
    deaths
    echo "$2 $code $deaths"
}}
"""
"""What the shell is taught. Memory and processes are bounded by the container; commands are killed for memory before the shell is."""


class _Misspoken(BoxLost):
    """A shell did not say what a shell of ours says."""


class ContainerShell:
    """Drives the shells of one container. Not for two commands at a time."""

    def __init__(self, engine: Engine, container: DockerContainer, room: Room, limits: SandboxLimits) -> None:
        self._engine = engine
        self._container = container
        self.room = room
        self._limits = limits
        self._loop = asyncio.get_running_loop()
        self._lease = Line(container.attach(stdin=True, stdout=True))
        self._shell: Line | None = None
        self._deaths = 0
        self._is_shared = False
        self._variables: dict[str, str] = {}
        self.is_alive = True

    async def start(self) -> None:
        """Take the lease, start the container and a shell in it; raises `CreateFailed` or `SandboxUnavailable`."""
        await self._engine.ask("attaching to a container", self._lease.open())
        await self._engine.ask("starting a container", self._container.start())
        try:
            await self._stand()
        except BoxLost as error:
            raise CreateFailed(f"a container did not start: {error}") from error

    async def run(self, command: str, timeout_s: float) -> ExecResult:
        """Run one command; raises `BoxLost` if the container is gone, was restarted, or does not do as it is told."""
        return await self._run(self._stand, command, timeout_s)

    async def run_as(self, user: str, command: str, timeout_s: float) -> ExecResult:
        """Run one command as another user, in a shell for it alone; raises the same, and `Permanent` if there is no such user."""
        self._is_shared = True
        shell: Line | None = None

        async def stand() -> Line:
            nonlocal shell
            shell = await self._teach_as(user)
            return shell

        try:
            return await self._run(stand, command, timeout_s, is_for_all=True)
        finally:
            if shell:
                await shell.hang_up()

    async def _run(
        self, stand: Callable[[], Awaitable[Line]], command: str, timeout_s: float, *, is_for_all: bool = False
    ) -> ExecResult:
        for _ in range(TRIES):
            shell, deaths = await stand(), self._deaths
            with command_output(self.room, self._limits.output_bytes, is_for_all=is_for_all) as (nonce, reader):
                started = self._loop.time()
                try:
                    async with asyncio.timeout(timeout_s):
                        await shell.write(f"run {shlex.quote(command)} {nonce}\n")
                        has_begun = await self._hear(shell, nonce, BEGAN) is not None
                        code = await self._hear(shell, nonce) if has_begun else None
                except TimeoutError:
                    await self._clear()
                    return result(None, reader.finish(), self._loop.time() - started)
                duration_s = self._loop.time() - started
                if code is None:
                    await self._clear()
                if not has_begun:  # the shell was killed before, by what an earlier command left running
                    continue
                return await self._ended(code, reader.finish(), duration_s, deaths)
        raise BoxLost("its shell is killed whenever it stands")

    async def _teach_as(self, user: str) -> Line:
        try:
            shell = await self._teach(user)
        except _Misspoken:  # Docker's word for it comes in the shell's place
            shell = None
        except EngineRefused as error:
            if "user" in str(error):  # podman's word for it
                raise Permanent(f"no command can run as {user!r}: {error}") from error
            raise
        if shell is None:
            raise Permanent(f"no command can run as {user!r}: its image has no such user, or it cannot start a shell")
        return shell

    async def _ended(self, code: int | None, output: Output, duration_s: float, deaths: int) -> ExecResult:
        """Return what came of a command that began; without a code it took the shell along, and the next one counts deaths."""
        if code is None:
            await self._stand()
        if code != 0 and self._deaths > deaths:
            return out_of_memory(KILLED if code is None else code, output, duration_s)
        return result(KILLED if code is None else code, output, duration_s)

    async def set_environment(self, variables: Mapping[str, str]) -> None:
        """Put variables into the environment of every later command, of this shell and of those after it; raises `BoxLost`."""
        self._variables |= variables
        if shell := self._shell:
            nonce = secrets.token_hex(8)
            try:
                async with asyncio.timeout(KILL_TIMEOUT_S):
                    await shell.write(f'{exports(self._variables)}deaths; echo "{nonce} 0 $deaths"\n')
                    if await self._hear(shell, nonce) is None:
                        await self._clear()  # it was killed; the next one is told when it starts
            except TimeoutError as error:
                raise BoxLost("its shell does not answer") from error

    async def first_pid(self) -> int:
        """Return the pid of the container's first process as the engine sees it, which is on this host; raises `BoxLost`."""
        try:
            state = (await self._engine.ask("looking at a container", self._container.show()))["State"]
        except EngineRefused as error:
            raise BoxLost("the container is gone" if error.status in GONE else str(error)) from error
        if not state.get("Running") or not state.get("Pid"):
            raise BoxLost(f"the container ended with {state.get('ExitCode')}")
        return int(state["Pid"])

    async def freeze(self) -> None:
        """Let the engine stop all of the container's processes. Should we die meanwhile, it waits for the next host to reap it."""
        await self._engine.ask("pausing a container", self._container.pause())

    async def thaw(self) -> None:
        """Let the engine go on with them."""
        await self._engine.ask("resuming a container", self._container.unpause())

    async def terminal(self, command: str, rows: int, columns: int) -> EngineTerminal:
        """Start an interactive command beside the others; raises `BoxLost`, `CreateFailed`."""
        return await EngineTerminal.open(
            self._engine, self._container, self._limits, command, rows, columns, self._variables
        )

    def side(self, limits: SandboxLimits, alone: Alone) -> SideShell:  # noqa: ARG002  the engine starts it beside a command
        """Return the shell for what goes on beside commands, in an exec of its own."""
        return SideShell(
            self.room, self._launch, view=PIPES_IN_BOX, program="/bin/sh",
            bounds=ulimits(limits, processes=False, memory=False),
        )  # fmt: skip

    async def _launch(self, line: str) -> None:
        exec_ = await self._engine.ask(
            "starting a shell", self._container.exec(["/bin/sh", "-c", line], stdout=False, stderr=False)
        )
        await self._engine.ask("starting a shell", exec_.start(detach=True))

    async def break_off(self) -> None:
        """Let the container end by itself, at once: what runs in it is unknown. Does not wait for the engine."""
        self.is_alive = False
        await self._lease.hang_up()
        if self._shell:
            await self._shell.hang_up()

    async def end(self) -> None:
        """Kill and remove the container, and wait until the engine says that it is gone; safe to repeat."""
        self.is_alive = False
        try:
            await remove(self._engine, self._container)
        finally:
            await self.break_off()

    async def _stand(self) -> Line:
        """Return a shell that answers; another one if the last was killed. What was killed may take a moment to make room."""
        trouble = "its shell does not start"
        for _ in range(TRIES):
            if self._shell:
                return self._shell
            try:
                shell = await self._teach()
            except EngineRefused as error:
                trouble = str(error)
                if error.status in GONE:
                    break
            else:
                if shell:
                    self._shell = shell
                    continue
            await asyncio.sleep(PAUSE_S)
        raise BoxLost(trouble)

    async def _teach(self, user: str = "") -> Line | None:
        """Start a shell and teach it how to run commands; None if it ended meanwhile."""
        made = self._container.exec(["/bin/sh"], stdin=True, stderr=False, user=user)
        exec_ = await self._engine.ask("starting a shell", made)
        shell, nonce = Line(exec_.start()), secrets.token_hex(8)
        functions = _FUNCTIONS.format(
            ulimits=ulimits(self._limits, processes=False, memory=False), pipes=PIPES_IN_BOX, began=BEGAN
        )
        try:
            await self._engine.ask("starting a shell", shell.open())
            async with asyncio.timeout(START_TIMEOUT_S):
                await shell.write(f'{functions}{exports(self._variables)}deaths; echo "{nonce} 0 $deaths"\n')
                code = await self._hear(shell, nonce)
        except TimeoutError as error:
            await shell.hang_up()
            raise BoxLost("its shell does not answer") from error
        except BaseException:
            await shell.hang_up()
            raise
        if code is None:
            await shell.hang_up()
            return None
        return shell

    async def _hear(self, shell: Line, nonce: str, word: str | None = None) -> int | None:
        """Return the exit code that is said after `nonce` (0 for `word`), None if the shell is gone; the caller sets the deadline."""
        match (await shell.read() or "").split(" "):
            case [said, began] if said == nonce and began == word:
                return 0
            case [said, code, deaths] if said == nonce and not word and code.isdecimal() and deaths.isdecimal():
                self._deaths = int(deaths)
                return int(code)
            case [""]:
                return None
            case _:
                raise _Misspoken("its shell said something that is not in the protocol")

    async def _clear(self) -> None:
        """Kill everything in the container but its first process; raises `BoxLost` if that does not come about in time."""
        shell, self._shell = self._shell, None
        try:
            async with asyncio.timeout(KILL_TIMEOUT_S):
                await self._engine.ask("clearing a container", self._container.kill(signal=CLEAR))
                while shell and await shell.read() is not None:
                    pass
                while (said := await self._lease.read()) != CLEARED:
                    if said is None:
                        raise BoxLost(await self._reason())
                if self._is_shared:
                    await asyncio.to_thread(_kill_strangers, await self.first_pid(), self.room.uid)
        except EngineRefused as error:
            raise BoxLost(await self._reason()) from error
        except TimeoutError as error:
            raise BoxLost(f"it could not be cleared within {KILL_TIMEOUT_S:g} s; was it paused?") from error
        finally:
            if shell:
                await shell.hang_up()

    async def _reason(self) -> str:
        """Return what the engine knows about a container whose first process is gone."""
        try:
            state = (await self._engine.ask("looking at a container", self._container.show()))["State"]
        except EngineRefused as error:
            return "the container is gone" if error.status in GONE else str(error)
        except CreateFailed as error:
            return str(error)
        if state["Running"]:
            return "the container was restarted: what ran in it is gone"
        if state.get("OOMKilled"):
            return "the container was killed because it had no memory left"
        return f"the container ended with {state.get('ExitCode')}"


def _kill_strangers(first: int, uid: int) -> None:
    """Kill the processes of a container that other users than `uid` have, whom its first process has no power over. Blocking."""
    for _ in range(TRIES):
        found = [pid for pid in in_namespace_of(first) if pid != first and _user_of(pid) not in {uid, None}]
        if not found:
            return
        for number in (signal.SIGSTOP, signal.SIGKILL):
            for pid in found:
                with suppress(ProcessLookupError):
                    os.kill(pid, number)


def _user_of(pid: int) -> int | None:
    """Return whose process it is; None if it is gone, buried or not."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return None
    state, uids = (status.partition(f"\n{name}:")[2].split("\n")[0].split() for name in ("State", "Uid"))
    return None if state[0] in "ZX" else int(uids[1])
