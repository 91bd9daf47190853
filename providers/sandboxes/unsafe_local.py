"""A sandbox that protects nothing: commands run on this machine with this user's rights, in a directory of their own.

What belongs to a box carries its mark in the environment, so that also what left its process group is found and killed.
A keeper process per box does that when we die; only what cleans its environment *and* leaves its group escapes.
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
from pathlib import Path

from providers.sandboxes.base import BoxLost, Capability, CreateFailed, ExecResult, SandboxUnavailable
from providers.sandboxes.in_the_making import InTheMaking
from providers.sandboxes.keeper import END_TIMEOUT_S, MARK, Keeper
from providers.sandboxes.ledger import Ledger
from providers.sandboxes.local_box import Alone, LocalBox
from providers.sandboxes.marks import kill_marked
from providers.sandboxes.output import PipeReader
from providers.sandboxes.processes import exited, result, ulimits
from providers.sandboxes.rooms import Room, Rooms
from providers.sandboxes.side_shell import SideShell
from schemas.sandboxes import SandboxLimits, UnsafeLocal


class UnsafeShell:
    """Runs commands in a directory, and kills whatever they started."""

    def __init__(self, room: Room, limits: SandboxLimits) -> None:
        self.room = room
        self._limits = limits
        self._mark = f"{room.path.parent.name}/{room.path.name}"
        self._groups: list[int] = []
        self._launched: list[subprocess.Popen[bytes]] = []
        self._keeper = Keeper(self._mark)
        self.is_alive = True

    async def run(self, command: str, timeout_s: float) -> ExecResult:
        """Run one command; at its deadline everything that belongs to the box is killed."""
        loop = asyncio.get_running_loop()
        started = loop.time()
        read_end, write_end = os.pipe2(os.O_CLOEXEC)
        os.set_blocking(read_end, False)
        reader = PipeReader(read_end, self._limits.output_bytes)
        try:
            process = self._spawn(command, write_end)
            self._groups.append(process.pid)
            try:
                is_over = await exited(process.pid, timeout_s)
            except asyncio.CancelledError:
                await self._end(process)
                raise
            if not is_over:
                await self._end(process)
            status, output = process.wait(END_TIMEOUT_S), reader.finish()
        finally:
            reader.close()
        code = (status if status >= 0 else 128 - status) if is_over else None
        return result(code, output, loop.time() - started)

    async def break_off(self) -> None:
        """Do nothing: each command has a shell of its own, and a cancelled one has been killed."""

    def side(self, limits: SandboxLimits, alone: Alone) -> SideShell:  # noqa: ARG002  it is a process like any other
        """Return the shell for what goes on beside commands."""

        async def launch(line: str) -> None:
            self._bury()
            self._launched.append(self._popen(["/bin/sh", "-c", line], subprocess.DEVNULL))

        bounds = ulimits(limits, processes=False)
        return SideShell(self.room, launch, view=str(self.room.pipes), program="/bin/sh", bounds=bounds)

    def _spawn(self, command: str, output: int) -> subprocess.Popen[bytes]:
        script = f'{ulimits(self._limits, processes=False)}; exec /bin/sh -c "$1"'
        try:
            return self._popen(["/bin/sh", "-c", script, "sh", command], output)
        finally:
            os.close(output)

    def _popen(self, arguments: list[str], output: int) -> subprocess.Popen[bytes]:
        work = str(self.room.work)
        try:
            return subprocess.Popen(  # noqa: S603  running what the model wrote is what this is for
                arguments,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
                cwd=work,
                env={"PATH": os.defpath, "HOME": work, "LANG": "C.UTF-8", "TMPDIR": work, MARK: self._mark},
            )
        except OSError as error:
            raise BoxLost(f"/bin/sh could not be started in {work}: {error}") from error

    def _bury(self) -> None:
        self._launched = [process for process in self._launched if process.poll() is None]

    async def _end(self, process: subprocess.Popen[bytes]) -> None:
        await self._kill_all()
        await exited(process.pid, END_TIMEOUT_S)
        process.poll()

    async def _kill_all(self) -> None:
        for group in self._groups:
            try:
                os.killpg(group, signal.SIGKILL)
            except (ProcessLookupError, PermissionError):
                continue
        self._groups.clear()
        await asyncio.to_thread(kill_marked, f"{MARK}={self._mark}")

    async def end(self) -> None:
        """End everything that was started in the directory; safe to repeat."""
        if not self.is_alive:
            return
        self.is_alive = False
        await self._kill_all()
        await self._keeper.end()
        for process in self._launched:
            if process.poll() is None:
                await exited(process.pid, END_TIMEOUT_S)
                process.poll()


class UnsafeLocalBox(LocalBox[UnsafeShell]):
    """One directory, and whatever was started in it."""


class UnsafeLocalProvider:
    """Makes boxes that are mere directories under `work_dir`."""

    def __init__(self, config: UnsafeLocal, work_dir: Path) -> None:
        self._limits = config.limits
        self._ledger = Ledger(config.ledger_path)
        self._rooms = Rooms(work_dir.absolute())
        self._boxes: dict[str, UnsafeLocalBox] = {}
        self._making = InTheMaking()

    @property
    def name(self) -> str:
        """Return the provider's configuration type."""
        return "unsafe_local"

    @property
    def capabilities(self) -> frozenset[Capability]:
        """Return what every machine of this provider can do beyond `Box`."""
        return frozenset({"detached", "files", "snapshots"})

    async def check(self) -> None:
        """Raise `SandboxUnavailable` if this is no Linux."""
        if not Path("/proc/self/environ").exists():  # noqa: ASYNC240  no disk behind it
            raise SandboxUnavailable("sandbox=unsafe_local needs Linux with /proc; use sandbox=inline here")

    async def create(self, label: str) -> UnsafeLocalBox:
        """Make the machine `label`; raises `CreateFailed`."""
        with self._making.one(label, self._boxes):
            return await self._create(label)

    async def _create(self, label: str) -> UnsafeLocalBox:
        try:
            room = self._rooms.make(label, os.getuid(), self._limits.disk_mib)
            shell = UnsafeShell(room, self._limits)
        except OSError as error:
            raise CreateFailed(f"sandbox {label}: {error}") from error

        async def forget() -> None:
            try:
                await self._rooms.remove(room)
            finally:  # not before: who closes the provider waits for what is still in here
                del self._boxes[label]

        box = self._boxes[label] = UnsafeLocalBox(label, shell, self._limits, self._ledger, forget)
        return box

    async def reap(self) -> int:
        """Kill what dead processes left running, and remove their directories."""
        return await asyncio.to_thread(self._rooms.reap, lambda owner: kill_marked(f"{MARK}={owner.name}/"))

    async def aclose(self) -> None:
        """Destroy every machine still alive."""
        await self._making.aclose()
        async with asyncio.TaskGroup() as group:
            for box in list(self._boxes.values()):
                group.create_task(box.destroy())
        self._ledger.close()
        await asyncio.to_thread(self._rooms.close)
