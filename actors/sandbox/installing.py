"""Running an install: in a fresh machine, within what its phase lets it reach, and nothing left of one in which it failed."""

from __future__ import annotations

import time
from typing import Any

from actors.sandbox.box_state import BoxState
from actors.sandbox.failures import SEED_ERRORS, seed_failure
from actors.sandbox.held import HeldBox
from actors.sandbox.install import InstallBox, is_good
from actors.sandbox.making import Maker
from actors.sandbox.tooling import Tooling
from gym_bus.event_log import Draft
from gym_bus.runtime.drive import Drive, Outcome
from providers.sandboxes.base import BoxLost
from providers.sandboxes.phases import PhaseChanged, phase_of
from schemas.events import SandboxFailed, SandboxInstalled
from schemas.readiness import Install


class InstallHandlers:
    """The handler of an install; the machine in which it ended well is the drive's from then on."""

    def __init__(self, maker: Maker, tooling: Tooling) -> None:
        """Install in what `maker` makes; `tooling` has the programs of agents."""
        self._maker = maker
        self._tooling = tooling

    async def install(self, drive: Drive[BoxState], effect: InstallBox) -> Outcome:
        """Make the machine and run the command in it, once."""
        request, request_id = drive.state.request, drive.state.request_id
        if request.install is None:
            return None
        try:
            wanted = await self._tooling.sandbox_for(request)
            held, _ = await self._maker.made(drive, wanted, request.warm_sandboxes)
            change = phase_of(request.sandbox, "install", held.phase)
            if change:
                await held.enter(change)
        except SEED_ERRORS as error:
            await self._maker.end(drive)
            return Draft(SandboxFailed(request_id=request_id, failure=seed_failure(error)), request_id)
        installed = await _run(held, request.install, change, request_id, effect.number)
        if not is_good(installed):
            await self._maker.end(drive)
        return Draft(installed, request_id, str(effect.number))

    def table(self) -> dict[type[Any], Any]:
        """Return which handler does which effect."""
        return {InstallBox: self.install}


async def _run(
    held: HeldBox, install: Install, change: PhaseChanged | None, request_id: str, number: int
) -> SandboxInstalled:
    """Return how the command ended; it may have been run in part where the machine was lost with it."""
    began = time.monotonic()
    said: dict[str, Any]
    try:
        result = await held.box.exec(install.command, key=f"{request_id}/install-{number}", timeout_s=install.timeout_s)
    except BoxLost as error:
        duration_s = round(time.monotonic() - began, 4)
        said = {"exit_code": None, "output": "", "output_bytes": 0, "duration_s": duration_s, "lost": str(error)}
    else:
        said = {
            "exit_code": result.exit_code,
            "output": result.output,
            "output_bytes": result.output_bytes,
            "truncated": result.truncated,
            "ended_by": result.ended_by,
            "duration_s": round(result.duration_s, 4),
        }
    return SandboxInstalled(
        number=number,
        phase=change.phase if change else None,
        allow=change.allow if change else (),
        **said,
        **held.network(),
    )
