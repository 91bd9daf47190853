"""Making machines and ending them, for whatever drive holds one: within what this host has room for, and never leaving one behind."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Final

import structlog

from actors.sandbox.admission import Admission
from actors.sandbox.held import HeldBox
from actors.sandbox.warm import WarmPools
from gym_bus.blobs import Blobs
from gym_bus.errors import GymBusError
from gym_bus.runtime.drive import Drive
from providers.sandboxes.base import SandboxProvider
from schemas.sandboxes import SandboxConfig

log = structlog.get_logger(__name__)

ENDED_WITHIN_S: Final = 60.0
ENDED_AFTER_S: Final = (1.0, 5.0, 30.0, 120.0, 600.0)


class Maker:
    """See the module. What a drive holds is its `held`, a `HeldBox`."""

    def __init__(
        self,
        provider_for: Callable[[SandboxConfig], SandboxProvider],
        blobs: Blobs,
        admission: Admission,
        warm: WarmPools,
        note_run: Callable[[str, SandboxConfig], None],
    ) -> None:
        """Make machines with what `provider_for` returns, as `admission` allows, or take them from `warm`; keep files in `blobs`.

        `note_run` is told of each run before a machine is made for it.
        """
        self._provider_for = provider_for
        self._blobs = blobs
        self._admission = admission
        self._warm = warm
        self._note_run = note_run
        self._ending: set[asyncio.Task[None]] = set()

    async def make(self, drive: Drive[Any], sandbox: SandboxConfig, warm: int = 0) -> tuple[HeldBox, SandboxProvider]:
        """Make the machine of a drive's aggregate, or take one that is ready if the run keeps `warm` of them.

        Raises what `Admission.enter` and `SandboxProvider.create` do.
        """
        label = drive.aggregate.label
        self._note_run(drive.aggregate.run_id, sandbox)
        if (made := await self._warm.take(drive.aggregate.run_id, sandbox, warm)) is not None:
            self._admission.hand_over(made.label, label)
            held = drive.held = HeldBox(made.box, self._blobs, made.label, is_warm=True)
            return held, made.provider
        provider = self._provider_for(sandbox)
        await self._admission.enter(label, sandbox)
        held = HeldBox(await provider.create(label), self._blobs, label)
        drive.held = held
        return held, provider

    async def made(self, drive: Drive[Any], sandbox: SandboxConfig, warm: int = 0) -> tuple[HeldBox, SandboxProvider]:
        """Return the drive's machine, which is made if it has none yet; raises what `make` does."""
        if drive.held is not None:
            return drive.held, self._provider_for(sandbox)
        return await self.make(drive, sandbox, warm)

    async def end(self, drive: Drive[Any]) -> None:
        """End the drive's machine, if it has one; safe to repeat."""
        held: HeldBox | None = drive.held
        if held is not None:
            await held.box.destroy()
            drive.held = None
        self._admission.leave(drive.aggregate.label)

    def abandon(self, drive: Drive[Any]) -> None:
        """End the machine of a drive that is over before its time, or whose machine is gone, in the background."""
        if drive.held is None:
            self._admission.leave(drive.aggregate.label)
            return
        ending = asyncio.get_running_loop().create_task(self._end_quietly(drive))
        self._ending.add(ending)
        ending.add_done_callback(self._ending.discard)

    async def _end_quietly(self, drive: Drive[Any]) -> None:
        """End a machine that nobody waits for, however long that takes to come about; after our death it is the reaper's."""
        for wait_s in ENDED_AFTER_S:
            try:
                async with asyncio.timeout(ENDED_WITHIN_S):
                    await self.end(drive)
            except (GymBusError, OSError, TimeoutError) as error:
                log.warning("sandbox_not_ended", sandbox=drive.aggregate.label, reason=str(error) or "out of time")
                await asyncio.sleep(wait_s)
            else:
                return
