"""A box on this host with namespaces of its own: it can be given a way out, a list of hosts to reach, and be stopped where it is."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Protocol, TypeVar

from gym_bus.blobs import Blobs
from gym_bus.errors import Permanent
from providers.sandboxes.base import BoxLost
from providers.sandboxes.egress import Egress
from providers.sandboxes.ledger import Ledger
from providers.sandboxes.local_box import LocalBox, Shell
from providers.sandboxes.snapshots import Taken
from providers.sandboxes.way_out import PORT, WayOut
from schemas.network import Host
from schemas.sandboxes import SandboxLimits
from schemas.snapshots import Manifest


class EnclosedShell(Shell, Protocol):
    """What runs the commands of a box whose first process this host knows."""

    async def first_pid(self) -> int:
        """Return the pid, as this host sees it, of the box's first process; raises `BoxLost`."""
        ...

    async def set_environment(self, variables: Mapping[str, str]) -> None:
        """Put variables into the environment of every later command; raises `BoxLost`. Not while one runs."""
        ...

    async def freeze(self) -> None:
        """Stop everything in the box where it is; raises `BoxLost`, or `CreateFailed` in the engine's words."""
        ...

    async def thaw(self) -> None:
        """Let it go on; raises the same."""
        ...


EnclosedT = TypeVar("EnclosedT", bound=EnclosedShell)


class EnclosedBox(LocalBox[EnclosedT]):
    """See the module. `private` are hosts whose addresses need not be public; `egress` tells what was tried."""

    _ways_out: tuple[WayOut, ...] = ()
    _is_paused = False

    def __init__(
        self,
        label: str,
        shell: EnclosedT,
        limits: SandboxLimits,
        ledger: Ledger,
        forget: Callable[[], Awaitable[None]],
        private: Sequence[Host] = (),
    ) -> None:
        super().__init__(label, shell, limits, ledger, forget)
        self._keeping = asyncio.Lock()
        self.egress = Egress(shell.room.path, self.open_way_out, self._set_environment, private=private)

    async def open_way_out(self, gateway: Path, port: int = PORT) -> str:
        """See `WithWayOut`."""
        self._ready("no way out was made")
        with self._named():
            self._ways_out += (await WayOut.open(await self._shell.first_pid(), gateway, port),)
        return f"http://127.0.0.1:{port}"

    async def snapshot(self, blobs: Blobs, previous: Manifest | None = None) -> Taken:
        """See `WithSnapshots`. While a command or a job runs, everything in the box stands still for as long as it takes to copy.

        The first time takes a tenth of a second more where the kernel has to take processes into a group to stop them.
        """
        async with self._keeping:
            is_busy = self._one_at_a_time.locked() or self._jobs.is_running
            if not is_busy or self._is_paused:
                return await super().snapshot(blobs, previous)
            self._check("its files were not kept")
            with self._named():
                began = time.monotonic()
                await self._shell.freeze()
                try:
                    taken = await self._snapshots.take(blobs, previous)
                finally:
                    await self._shell.thaw()
            return replace(taken, paused_s=round(time.monotonic() - began, 4))

    async def allow(self, hosts: Sequence[str], phase: str = "") -> None:
        """See `WithEgress`."""
        self._check("it reaches nothing")
        with self._named():
            await self.egress.allow(hosts, phase)

    async def pause(self) -> None:
        """See `WithPause`. Commands, jobs and files are refused until it goes on; the clock of a job's time limit is not stopped."""
        async with self._one_at_a_time:
            self._check("nothing was stopped")
            if not self._is_paused:
                with self._named():
                    await self._shell.freeze()
                self._is_paused = True

    async def resume(self) -> None:
        """See `WithPause`."""
        async with self._one_at_a_time:
            self._check("nothing goes on")
            await self._thaw()

    def _ready(self, otherwise: str) -> None:
        super()._ready(otherwise)
        if self._is_paused:
            raise Permanent(f"sandbox {self._label} is paused; {otherwise}: resume it first")

    async def _thaw(self) -> None:
        if self._is_paused:
            with self._named():
                await self._shell.thaw()
            self._is_paused = False

    async def _set_environment(self, variables: Mapping[str, str]) -> None:
        async with self._one_at_a_time:
            self._ready("nothing was set")
            await self._shell.set_environment(variables)
        await self._side.set_environment(variables)

    async def _leave(self) -> None:
        await self.egress.close()
        for way in self._ways_out:
            await way.close()
        with suppress(BoxLost):
            await self._thaw()
