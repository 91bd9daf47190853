"""A sandbox that protects nothing: commands run on this machine with this user's rights, in a directory of their own.

What belongs to a box carries its mark in the environment, so that also what left its process group is found and killed.
A keeper process per box does that when we die; only what cleans its environment *and* leaves its group escapes.
"""

from __future__ import annotations

import asyncio
import os
import re
import signal
import subprocess
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final

from providers.sandboxes.base import BoxLost, Capability, CreateFailed, ExecResult, SandboxUnavailable
from providers.sandboxes.ledger import Ledger
from providers.sandboxes.output import PipeReader
from providers.sandboxes.processes import exited, kill, pipe, refusal, result, ulimits
from providers.sandboxes.rooms import Room, Rooms
from schemas.config import SandboxLimits, UnsafeLocal

MARK: Final = "GYM_BUS_BOX"
END_TIMEOUT_S: Final = 10.0
_KEEPER: Final = (
    "read -r _; for round in 1 2 3; do "
    'for p in $(grep -lzxsF -e "$1" /proc/[0-9]*/environ); do p=${p#/proc/}; kill -9 "${p%/environ}"; done; done'
)


def marked(mark: str) -> list[int]:
    """Return the processes whose environment holds `mark`, a `NAME=value` or the beginning of one. Blocking."""
    pattern = re.compile(rb"(^|\0)" + re.escape(mark.encode()))
    found: list[int] = []
    for path in Path("/proc").glob("[0-9]*/environ"):
        try:
            if pattern.search(path.read_bytes()):
                found.append(int(path.parent.name))
        except (PermissionError, FileNotFoundError, ProcessLookupError):
            continue
    return found


def kill_marked(mark: str) -> None:
    """Kill the processes of `mark` until there are none, looking again for what they started meanwhile. Blocking."""
    for _ in range(20):
        if not (pids := marked(mark)):
            return
        for pid in pids:
            kill(pid)


class UnsafeLocalBox:
    """One directory, and whatever was started in it. `forget` is called once, when nothing is left of it."""

    def __init__(
        self, label: str, room: Room, limits: SandboxLimits, ledger: Ledger, forget: Callable[[], Awaitable[None]]
    ) -> None:
        self._label = label
        self._room = room
        self._limits = limits
        self._ledger = ledger
        self._forget = forget
        self._mark = f"{room.path.parent.name}/{room.path.name}"
        self._one_at_a_time = asyncio.Lock()
        self._groups: list[int] = []
        self._keeper = subprocess.Popen(  # noqa: S603  a constant script
            ["/bin/sh", "-c", _KEEPER, "keeper", f"{MARK}={self._mark}"],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            env={"PATH": "/usr/bin:/bin"},
        )
        self._is_destroyed = False

    @property
    def is_alive(self) -> bool:
        """Say whether commands can still run."""
        return not self._is_destroyed

    async def exec(self, command: str, *, key: str, timeout_s: float) -> ExecResult:
        """Run `command`; at its deadline everything that belongs to the box is killed."""
        async with self._one_at_a_time:
            if self._is_destroyed:
                raise BoxLost(f"sandbox {self._label} was destroyed; nothing was started")
            if refused := refusal(command):
                return refused
            self._ledger.start("tool", key, label=self._label)
            return await self._run(command, timeout_s)

    async def _run(self, command: str, timeout_s: float) -> ExecResult:
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

    def _spawn(self, command: str, output: int) -> subprocess.Popen[bytes]:
        work = str(self._room.work)
        try:
            return subprocess.Popen(  # noqa: S603  running what the model wrote is what this is for
                ["/bin/sh", "-c", f'{ulimits(self._limits, processes=False)}; exec /bin/sh -c "$1"', "sh", command],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
                cwd=work,
                env={"PATH": os.defpath, "HOME": work, "LANG": "C.UTF-8", "TMPDIR": work, MARK: self._mark},
            )
        except OSError as error:
            raise BoxLost(f"sandbox {self._label}: /bin/sh could not be started in {work}: {error}") from error
        finally:
            os.close(output)

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

    async def destroy(self) -> None:
        """End everything in the machine and remove its files; safe to repeat."""
        if self._is_destroyed:
            return
        self._is_destroyed = True
        await self._kill_all()
        self._keeper.kill()
        pipe(self._keeper.stdin).close()
        await exited(self._keeper.pid, END_TIMEOUT_S)
        self._keeper.poll()
        await self._forget()


class UnsafeLocalProvider:
    """Makes boxes that are mere directories under `work_dir`."""

    def __init__(self, config: UnsafeLocal, work_dir: Path) -> None:
        self._limits = config.limits
        self._ledger = Ledger(config.ledger_path)
        self._rooms = Rooms(work_dir.absolute())
        self._boxes: dict[str, UnsafeLocalBox] = {}

    @property
    def name(self) -> str:
        """Return the provider's configuration type."""
        return "unsafe_local"

    @property
    def capabilities(self) -> frozenset[Capability]:
        """Return what every machine of this provider can do beyond `Box`."""
        return frozenset()

    async def check(self) -> None:
        """Raise `SandboxUnavailable` if this is no Linux."""
        if not Path("/proc/self/environ").exists():  # noqa: ASYNC240  no disk behind it
            raise SandboxUnavailable("sandbox=unsafe_local needs Linux with /proc; use sandbox=inline here")

    async def create(self, label: str) -> UnsafeLocalBox:
        """Make the machine `label`; raises `CreateFailed`."""
        if label in self._boxes:
            raise CreateFailed(f"sandbox {label} exists already")
        try:
            room = self._rooms.make(label, os.getuid())
        except OSError as error:
            raise CreateFailed(f"sandbox {label}: {error}") from error

        async def forget() -> None:
            del self._boxes[label]
            await self._rooms.remove(room)

        box = self._boxes[label] = UnsafeLocalBox(label, room, self._limits, self._ledger, forget)
        return box

    async def reap(self) -> int:
        """Kill what dead processes left running, and remove their directories."""
        return await asyncio.to_thread(self._rooms.reap, lambda owner: kill_marked(f"{MARK}={owner.name}/"))

    async def aclose(self) -> None:
        """Destroy every machine still alive."""
        async with asyncio.TaskGroup() as group:
            for box in list(self._boxes.values()):
                group.create_task(box.destroy())
        self._ledger.close()
        await asyncio.to_thread(self._rooms.close)
