"""What boxes on this host have in common: their commands in order, their files, their snapshots, what goes on beside, their end.

A provider brings a `Shell`, which runs commands in its machine, and a room in which the machine's workspace is.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from functools import partial
from pathlib import Path
from typing import Generic, Protocol, TypeVar

from gym_bus.blobs import Blobs
from providers.sandboxes.base import BoxLost, CreateFailed, ExecResult, SandboxUnavailable
from providers.sandboxes.box_files import BoxFiles
from providers.sandboxes.capabilities import JobStatus
from providers.sandboxes.jobs import Jobs
from providers.sandboxes.ledger import Ledger
from providers.sandboxes.processes import refusal
from providers.sandboxes.room_snapshots import RoomSnapshots
from providers.sandboxes.rooms import Room
from providers.sandboxes.side_shell import SideShell
from providers.sandboxes.snapshots import Taken
from schemas.sandboxes import SandboxLimits
from schemas.snapshots import Manifest
from schemas.values import BlobRef

Alone = Callable[[], AbstractAsyncContextManager[None]]


class Shell(Protocol):
    """What runs the commands of one box, one at a time."""

    @property
    def is_alive(self) -> bool:
        """Say whether commands can still run, as far as is known."""
        ...

    @property
    def room(self) -> Room:
        """Return the room whose workspace and pipes the box sees."""
        ...

    async def run(self, command: str, timeout_s: float) -> ExecResult:
        """Run one command; raises `BoxLost`."""
        ...

    async def break_off(self) -> None:
        """Let everything end at once, after a command of which nothing is known any more; does not wait."""
        ...

    async def end(self) -> None:
        """End everything and wait for that; safe to repeat."""
        ...

    def side(self, limits: SandboxLimits, alone: Alone) -> SideShell:
        """Return the shell for what goes on beside commands; `alone` waits until no command runs, and keeps others waiting."""
        ...


ShellT = TypeVar("ShellT", bound=Shell)


class LocalBox(Generic[ShellT]):
    """One machine, driven by a `Shell`. `forget` is called once, when no process of it is left."""

    def __init__(
        self, label: str, shell: ShellT, limits: SandboxLimits, ledger: Ledger, forget: Callable[[], Awaitable[None]]
    ) -> None:
        self._label = label
        self._shell = shell
        self._ledger = ledger
        self._forget = forget
        self._one_at_a_time = asyncio.Lock()
        self._ending = asyncio.Lock()
        self._is_destroyed = False
        self._is_ended = False
        self._side = shell.side(limits, self._alone)
        self._files = BoxFiles(self._side, self._alone)
        self._jobs = Jobs(self._side, limits)
        self._snapshots = RoomSnapshots(shell.room)

    @property
    def is_alive(self) -> bool:
        """Say whether commands can still run, as far as is known: what was killed idly is missed at the next one."""
        return self._shell.is_alive

    async def exec(self, command: str, *, key: str, timeout_s: float) -> ExecResult:
        """Run `command`; at its deadline everything in the box is killed, also what earlier commands left running."""
        return await self._exec(command, key, partial(self._shell.run, command, timeout_s))

    async def _exec(self, command: str, key: str, run: Callable[[], Awaitable[ExecResult]]) -> ExecResult:
        async with self._one_at_a_time:
            self._ready("nothing was started")
            if refused := refusal(command):
                return refused
            self._ledger.start("tool", key, label=self._label)
            try:
                done = await run()
            except (BoxLost, CreateFailed, SandboxUnavailable) as error:
                await self._shell.break_off()
                raise BoxLost(f"sandbox {self._label}: {error}") from error
            except asyncio.CancelledError:
                await self._shell.break_off()  # what the command did is unknown, and so is the state of the shell
                raise
            if done.ended_by in {"timeout", "signal"}:
                self._side.all_was_killed()
            return done

    async def put(self, source: Path, path: str, *, mode: int = 0o644) -> None:
        """See `WithFiles`."""
        self._ready("nothing was written")
        with self._named():
            await self._files.put(source, path, mode=mode)

    async def get(self, path: str, target: Path, *, max_bytes: int) -> int:
        """See `WithFiles`."""
        self._ready("nothing was read")
        with self._named():
            return await self._files.get(path, target, max_bytes=max_bytes)

    async def start(self, command: str, *, key: str, timeout_s: float) -> str:
        """See `WithDetached`. A job ends too when a command meets its deadline: everything in the box is killed then."""
        self._ready("nothing was started")
        with self._named():
            starting = partial(self._ledger.start, "tool", key, label=self._label)
            return await self._jobs.start(command, timeout_s, starting)

    async def status(self, job: str) -> JobStatus:
        """See `WithDetached`."""
        self._check("its jobs with it")
        return self._jobs.status(job)

    async def output_of(self, job: str, offset: int = 0, *, max_bytes: int = 65_536) -> bytes:
        """See `WithDetached`. Of each job the first `limits.job_output_mib` are kept."""
        self._check("what its jobs printed with it")
        return await self._jobs.output_of(job, offset, max_bytes)

    async def stop(self, job: str) -> None:
        """See `WithDetached`."""
        self._ready("its jobs as they are")
        await self._jobs.stop(job)

    async def snapshot(self, blobs: Blobs, previous: Manifest | None = None) -> Taken:
        """See `WithSnapshots`."""
        async with self._one_at_a_time:
            if self._is_destroyed:
                raise BoxLost(f"sandbox {self._label} is gone, and its files with it")
            return await self._snapshots.take(blobs, previous)

    async def restore(self, ref: BlobRef, blobs: Blobs) -> None:
        """See `WithSnapshots`."""
        async with self._one_at_a_time:
            self._ready("nothing was restored")
            await self._snapshots.restore(ref, blobs)

    async def destroy(self) -> None:
        """End everything in the machine and remove its files; safe to repeat, and to try again if it failed."""
        self._is_destroyed = True
        async with self._ending:
            if self._is_ended:
                return
            self._side.close()
            await self._leave()
            await self._shell.end()
            self._is_ended = True
            self._jobs.close()
            await self._forget()

    def _check(self, otherwise: str) -> None:
        """Raise `BoxLost` for a box that is gone."""
        if self._is_destroyed or not self.is_alive:
            raise BoxLost(f"sandbox {self._label} is gone; {otherwise}")

    def _ready(self, otherwise: str) -> None:
        """Raise `BoxLost` for a box that is gone, and what a provider adds for one that does nothing at the moment."""
        self._check(otherwise)

    @asynccontextmanager
    async def _alone(self) -> AsyncGenerator[None, None]:
        async with self._one_at_a_time:
            self._ready("nothing was started")
            yield

    async def _leave(self) -> None:
        """Give back what the box was given from outside, before it ends."""

    @contextmanager
    def _named(self) -> Generator[None, None, None]:
        """Say which box it was."""
        try:
            yield
        except (BoxLost, CreateFailed, SandboxUnavailable) as error:
            raise BoxLost(f"sandbox {self._label}: {error}") from error
