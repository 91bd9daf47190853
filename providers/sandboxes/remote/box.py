"""One machine at somebody else's, as the sandbox actor sees it: commands and files."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import ClassVar, Final, Generic, TypeVar

from gym_bus.blobs import Blobs
from gym_bus.errors import GymBusError, Permanent
from providers.sandboxes.base import BoxLost, ExecResult
from providers.sandboxes.capabilities import JobStatus
from providers.sandboxes.ledger import Ledger
from providers.sandboxes.processes import refusal
from providers.sandboxes.remote import workspaces
from providers.sandboxes.remote.cloud import CloudRefused, Machine
from providers.sandboxes.remote.files import get, put
from providers.sandboxes.remote.jobs import Jobs
from providers.sandboxes.remote.shell import Place, RemoteShell
from providers.sandboxes.snapshots import Taken
from schemas.snapshots import Manifest
from schemas.values import BlobRef

M = TypeVar("M", bound=Machine)
END_TIMEOUT_S: Final = 20.0


class RemoteBox(Generic[M]):
    """See the module. `end` removes the machine, and is called until it has."""

    lives_on_paused: ClassVar[bool] = True
    """Whether a machine that is paused is kept without being renewed."""

    def __init__(
        self, label: str, machine: M, place: Place, ledger: Ledger, end: Callable[[], Awaitable[None]]
    ) -> None:
        self._label = label
        self._machine = machine
        self._place = place
        self._shell = RemoteShell(machine, place)
        self._jobs = Jobs(self._shell, place)
        self._ledger = ledger
        self._end = end
        self._one_at_a_time = asyncio.Lock()
        self._is_lost = False
        self._is_destroyed = False
        self._is_ended = False
        self._ending = asyncio.Lock()
        self._is_paused = False
        self._lifetime_s = place.lifetime_s

    @property
    def is_alive(self) -> bool:
        """Say whether commands can still run, as far as is known."""
        return not self._is_lost and not self._is_destroyed

    async def set_up(self) -> None:
        """Make the machine ready for its first command; raises `CloudRefused`."""
        await self._shell.set_up()

    async def exec(self, command: str, *, key: str, timeout_s: float) -> ExecResult:
        """Run `command`; at its deadline everything in the box is killed, also what earlier commands left running."""
        return await self._exec(command, key, timeout_s, self._place.user)

    async def put(self, source: Path, path: str, *, mode: int = 0o644) -> None:
        """Make the file `path` in the machine of this host's file `source`, or replace it; see `WithFiles`."""
        async with self._in_turn():
            await put(self._machine, self._shell, source, self._at(path), mode)

    async def get(self, path: str, target: Path, *, max_bytes: int) -> int:
        """Write the machine's regular file `path` to this host's new file `target`; see `WithFiles`."""
        async with self._in_turn():
            return await get(self._machine, self._shell, self._at(path), target, max_bytes)

    async def start(self, command: str, *, key: str, timeout_s: float) -> str:
        """Start `command` beside others; see `WithDetached`."""
        with self._beside():
            if refused := refusal(command):
                raise Permanent(f"sandbox {self._label}: {refused.output.strip()}")
            self._ledger.start("tool", key, label=self._label)
            return await self._jobs.start(command, timeout_s)

    async def status(self, job: str) -> JobStatus:
        """Return how a job stands; see `WithDetached`."""
        with self._beside():
            return await self._jobs.status(job)

    async def output_of(self, job: str, offset: int = 0, *, max_bytes: int = 65_536) -> bytes:
        """Return what a job has written from byte `offset` on; see `WithDetached`."""
        with self._beside():
            return await self._jobs.output_of(job, offset, max_bytes)

    async def stop(self, job: str) -> None:
        """End a job's process tree; see `WithDetached`."""
        with self._beside():
            await self._jobs.stop(job)

    async def snapshot(self, blobs: Blobs, previous: Manifest | None = None) -> Taken:
        """Store what is in the workspace; see `WithSnapshots`."""
        async with self._in_turn():
            return await workspaces.snapshot(self._machine, self._shell, self._place, blobs, previous)

    async def restore(self, ref: BlobRef, blobs: Blobs) -> None:
        """Fill an empty workspace with a snapshot; see `WithSnapshots`."""
        async with self._in_turn():
            await workspaces.restore(self._machine, self._shell, self._place, ref, blobs)

    async def renew(self) -> None:
        """Let the machine live on, unless it is paused and does without. That it is gone shows at its next command, too."""
        if self._is_paused and self.lives_on_paused:
            return
        try:
            async with asyncio.timeout(END_TIMEOUT_S):
                await self._machine.renew(self._lifetime_s)
        except (CloudRefused, TimeoutError) as error:
            if isinstance(error, CloudRefused) and error.kind == "gone":
                self._is_lost = True

    async def destroy(self) -> None:
        """End everything in the machine and remove it; safe to repeat."""
        self._is_destroyed = True
        async with self._ending:
            if not self._is_ended:
                await self._end()
                self._is_ended = True

    async def _exec(self, command: str, key: str, timeout_s: float, user: str | None) -> ExecResult:
        async with self._in_turn():
            if refused := refusal(command):
                return refused
            self._ledger.start("tool", key, label=self._label)
            return await self._shell.run(command, timeout_s, user, self._jobs.names)

    @asynccontextmanager
    async def _in_turn(self, *, even_paused: bool = False) -> AsyncGenerator[None, None]:
        """Wait until nothing else is going on in the machine; what its maker refuses then is the machine's loss."""
        async with self._one_at_a_time:
            try:
                with self._beside(even_paused=even_paused):
                    yield
            except asyncio.CancelledError:
                self._is_lost = True  # what was going on is unknown
                await self._give_up()
                raise

    @contextmanager
    def _beside(self, *, even_paused: bool = False) -> Generator[None, None, None]:
        """Do something in the machine while other things go on in it."""
        if not self.is_alive:
            raise BoxLost(f"sandbox {self._label} is gone; nothing was started")
        if self._is_paused and not even_paused:
            raise Permanent(f"sandbox {self._label} is paused; nothing was started")
        try:
            yield
        except CloudRefused as error:
            told = error.in_box(self._label)
            if isinstance(told, BoxLost):
                self._is_lost = True
            raise told from error

    async def _give_up(self) -> None:
        try:
            async with asyncio.timeout(END_TIMEOUT_S):
                await self._end()
        except (GymBusError, TimeoutError):
            return  # `destroy` tries again, and nobody renews it

    def _at(self, path: str) -> str:
        return path if path.startswith("/") else f"{self._place.workspace}/{path}"
