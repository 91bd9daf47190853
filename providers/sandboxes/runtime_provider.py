"""Boxes made by the command line of a container runtime: Apptainer, Enroot. A shell stands in each, as process 1 of its namespace.

What the runtime is given in secret goes through its environment, never through its arguments, which everybody on this host can read.
These runtimes do not end with us, so each box has a keeper; and they run as us: root is root in their boxes as well.
"""

from __future__ import annotations

import asyncio
import os
import re
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Final, Protocol

from providers.sandboxes.base import BoxLost, Capability, CreateFailed, SandboxUnavailable
from providers.sandboxes.bubblewrap_argv import ENVIRONMENT
from providers.sandboxes.in_the_making import InTheMaking
from providers.sandboxes.keeper import MARK, Keeper
from providers.sandboxes.ledger import Ledger
from providers.sandboxes.local_box import LocalBox
from providers.sandboxes.marks import kill_marked
from providers.sandboxes.processes import ulimits
from providers.sandboxes.removal import remove_tree
from providers.sandboxes.rooms import Room, Rooms
from providers.sandboxes.standing_shell import StandingShell
from schemas.sandboxes import SandboxLimits

SHELL: Final = "/bin/sh"
HOST_VARIABLES: Final = ("HOME", "USER", "LOGNAME", "LANG", "XDG_RUNTIME_DIR", "TMPDIR")
"""What a runtime may see of our environment, besides PATH."""
WORDS_MAX: Final = 500
RUN_TIMEOUT_S: Final = 600.0


class Runtime(Protocol):
    """How one runtime is told to make a box."""

    @property
    def name(self) -> str:
        """Return the configuration's type."""
        ...

    @property
    def bounds_memory(self) -> bool:
        """Say whether the runtime bounds the memory and the processes of a box as a whole."""
        ...

    async def prepare(self, room: Room, state: Path) -> None:
        """Do what comes before the first process, keeping files under `state`; raises `CreateFailed`, `SandboxUnavailable`."""
        ...

    def command(self, room: Room, state: Path) -> list[str]:
        """Return the arguments that become a box with a shell in it."""
        ...

    def environment(self, variables: Mapping[str, str], state: Path) -> dict[str, str]:
        """Return the runtime's own environment, in which `variables` are handed to the box."""
        ...

    def exported(self, variables: Mapping[str, str]) -> Mapping[str, str]:
        """Return those of `variables` that the box's shell has to set by itself."""
        ...

    async def clear(self, room: Room, state: Path) -> None:
        """Remove what `prepare` made for one box."""
        ...


class RuntimeProvider:
    """See the module."""

    def __init__(
        self,
        runtime: Runtime,
        limits: SandboxLimits,
        variables: Mapping[str, str],
        ledger_path: str | None,
        work_dir: Path,
    ) -> None:
        self._runtime = runtime
        self._limits = limits
        self._variables = {**{k: v for k, v in ENVIRONMENT.items() if k != "HOME"}, **variables}
        self._ledger = Ledger(ledger_path)
        self._rooms = Rooms(work_dir.absolute())
        self._boxes: dict[str, LocalBox[StandingShell]] = {}
        self._making = InTheMaking()

    @property
    def name(self) -> str:
        """Return the provider's configuration type."""
        return self._runtime.name

    @property
    def capabilities(self) -> frozenset[Capability]:
        """Return what every machine of this provider can do beyond `Box`."""
        return frozenset({"detached", "files", "snapshots"})

    async def check(self) -> None:
        """Make a box, run a command, destroy it; raise `SandboxUnavailable` with the runtime's own words if that fails."""
        try:
            room = self._rooms.make("check", os.getuid(), self._limits.disk_mib)
            try:
                shell, keeper = await self._begin("check", room)
                try:
                    await shell.run("true", timeout_s=10)
                finally:
                    await shell.end()
                    await self._forget(room, keeper)
            finally:
                await self._rooms.remove(room)
        except (CreateFailed, BoxLost, OSError) as error:
            raise SandboxUnavailable(f"{self.name} cannot make a sandbox here: {error}") from error

    async def create(self, label: str) -> LocalBox[StandingShell]:
        """Make the machine `label`; raises `CreateFailed`, or `SandboxUnavailable` if the runtime or the image is missing."""
        with self._making.one(label, self._boxes):
            return await self._create(label)

    async def _create(self, label: str) -> LocalBox[StandingShell]:
        try:
            room = self._rooms.make(label, os.getuid(), self._limits.disk_mib)
        except OSError as error:
            raise CreateFailed(f"sandbox {label}: no directory can be made for it: {error}") from error
        try:
            shell, keeper = await self._begin(label, room)
        except BaseException:
            await self._rooms.remove(room)
            raise

        async def forget() -> None:
            try:
                await self._forget(room, keeper)
                await self._rooms.remove(room)
            finally:  # not before: who closes the provider waits for what is still in here
                del self._boxes[label]

        box = self._boxes[label] = LocalBox(label, shell, self._limits, self._ledger, forget)
        return box

    async def reap(self) -> int:
        """Kill what dead processes left running, and remove their directories."""
        return await asyncio.to_thread(self._rooms.reap, self._bury)

    async def aclose(self) -> None:
        """Destroy every machine still alive."""
        await self._making.aclose()
        async with asyncio.TaskGroup() as group:
            for box in list(self._boxes.values()):
                group.create_task(box.destroy())
        self._ledger.close()
        state = self._state if self._rooms.is_made else None
        await asyncio.to_thread(self._rooms.close)
        if state and state.exists():
            await asyncio.to_thread(remove_tree, state)

    @property
    def _state(self) -> Path:
        """Return the directory for what the runtime itself keeps for this process."""
        return _state_of(self._rooms.own)

    async def _forget(self, room: Room, keeper: Keeper) -> None:
        await keeper.end()
        await self._runtime.clear(room, self._state)

    def _bury(self, owner: Path) -> None:
        kill_marked(f"{MARK}={owner.name}/")
        if (state := _state_of(owner)).exists():
            remove_tree(state)

    async def _begin(self, label: str, room: Room) -> tuple[StandingShell, Keeper]:
        """Start a box and wait for its shell; no process is left if that fails."""
        mark = f"{room.path.parent.name}/{room.path.name}"
        if found := re.search(r"[:,\s]", str(room.path)):
            raise SandboxUnavailable(f"{room.path} cannot be mounted by {self.name}: it holds {found[0]!r}")
        await self._runtime.prepare(room, self._state)
        keeper, shell = Keeper(mark), None
        try:
            with tempfile.TemporaryFile() as words:
                shell = self._spawn(room, mark, words)
                try:
                    await shell.start()
                except CreateFailed as error:
                    await asyncio.to_thread(kill_marked, f"{MARK}={mark}")
                    words.seek(0)
                    said = words.read(64 * 1024).decode(errors="replace").strip()[-WORDS_MAX:]
                    raise CreateFailed(f"sandbox {label}: {error}: {said}") from error
        except BaseException as error:
            if shell:
                await asyncio.to_thread(kill_marked, f"{MARK}={mark}")
                await shell.end()
            await self._forget(room, keeper)
            if isinstance(error, OSError):
                raise CreateFailed(f"sandbox {label}: {self.name} could not be started: {error}") from error
            raise
        return shell, keeper

    def _spawn(self, room: Room, mark: str, words: IO[bytes]) -> StandingShell:
        """Start the runtime, which becomes a shell in the box; it complains to `words`."""
        variables = {**self._variables, MARK: mark}
        exported = {"HOME": "/box", **self._runtime.exported(self._variables)}
        process = subprocess.Popen(  # noqa: S603  our own arguments; labels are only part of a path
            self._runtime.command(room, self._state),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=words,
            bufsize=0,
            cwd="/",
            env={**self._runtime.environment(variables, self._state), MARK: mark},
        )
        exports = "; ".join(f"export {name}={shlex.quote(value)}" for name, value in exported.items())
        bounds = f"{exports}; {ulimits(self._limits, processes=False, memory=not self._runtime.bounds_memory)}"
        return StandingShell(process, room, self._limits, program=SHELL, bounds=bounds)


def program(binary: str, advice: str) -> str:
    """Return where a program is; raises `SandboxUnavailable` with `advice`."""
    if found := shutil.which(binary):
        return found
    raise SandboxUnavailable(f"{binary} is not installed or not on the PATH. {advice}")


def host_environment() -> dict[str, str]:
    """Return what of our environment a runtime may see."""
    found = {name: os.environ[name] for name in HOST_VARIABLES if name in os.environ}
    return {"PATH": os.environ.get("PATH", os.defpath), **found}


async def run_once(command: list[str], environment: Mapping[str, str]) -> None:
    """Run a runtime's command to its end; raises `CreateFailed` with its words."""
    process = await asyncio.create_subprocess_exec(
        *command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        cwd="/",
        env=dict(environment),
    )
    try:
        async with asyncio.timeout(RUN_TIMEOUT_S):
            _, said = await process.communicate()
    except BaseException:
        process.kill()
        await process.wait()
        raise
    if process.returncode:
        words = said.decode(errors="replace").strip()[-WORDS_MAX:]
        raise CreateFailed(f"`{' '.join(command[:2])}` failed with {process.returncode}: {words}")


def _state_of(owner: Path) -> Path:
    return owner.parent / f"runtime-{owner.name}"
