"""What the sandbox actor does outside: making machines, running commands in them, keeping their files, ending them."""

from __future__ import annotations

import asyncio
from typing import Any, Final

from actors.sandbox.asking import refusal_of
from actors.sandbox.box import CreateBox, DestroyBox, KeepFiles, RunCommand
from actors.sandbox.box_state import BoxState
from actors.sandbox.door import Doors
from actors.sandbox.failures import SEED_ERRORS, seed_failure
from actors.sandbox.held import HeldBox
from actors.sandbox.making import Maker
from actors.sandbox.staging import contents_of, stage
from actors.sandbox.tooling import Tooling
from adapters.harnesses.launching import launchable, prepare
from gym_bus.errors import GymBusError
from gym_bus.event_log import Draft
from gym_bus.runtime.drive import Drive, Outcome
from providers.sandboxes.base import BoxLost, BoxReplaced
from providers.sandboxes.phases import phase_of
from providers.sandboxes.snapshots import TooLarge
from schemas.events import (
    CheckpointFailed,
    SandboxCreated,
    SandboxDestroyed,
    SandboxFailed,
    SandboxLost,
    ToolCallCompleted,
    ToolCallFailed,
)
from schemas.sandboxes import workspace_begins
from schemas.values import Failure

KEPT_WITHIN_S: Final = 900.0
RESTORED_WITHIN_S: Final = 900.0


class BoxHandlers:
    """The handlers of a box's effects; `place` is this host's id."""

    def __init__(self, maker: Maker, place: str, doors: Doors, tooling: Tooling) -> None:
        """Drive what `maker` makes, at `place`; `doors` lead to the gateway, `tooling` has the programs of agents."""
        self._maker = maker
        self._doors = doors
        self._tooling = tooling
        self._place = place

    async def create(self, drive: Drive[BoxState], effect: CreateBox) -> Outcome:  # noqa: ARG002  nothing to know but the state
        """Make the machine, unless it was made to be made ready, with the files of a checkpoint if it follows one that was lost."""
        request, request_id = drive.state.request, drive.state.request_id
        try:
            wanted = await self._tooling.sandbox_for(request)
            held, provider = await self._maker.made(drive, wanted, request.warm_sandboxes)
            if request.restore:
                if request.install or workspace_begins(wanted):
                    await held.clear(f"{request_id}/clear")
                async with asyncio.timeout(RESTORED_WITHIN_S):
                    await held.restore(request.restore, request.restore_home)
            if request.staged:
                await stage(held.box, request.staged.at, contents_of(request.staged))
            if change := phase_of(request.sandbox, request.phase, held.phase):
                await held.enter(change)
            url = None
            if request.gateway:
                url = await self._doors.open(held.box, request.sandbox, request.gateway, request_id)
            if request.harness:
                await prepare(launchable(held.box))
        except SEED_ERRORS as error:
            failure = seed_failure(error)
        else:
            able = tuple(sorted(provider.capabilities))
            created = SandboxCreated(
                request_id=request_id,
                place=self._place,
                provider=provider.name,
                capabilities=able,
                phase=change.phase if change else None,
                allow=change.allow if change else (),
                gateway_url=url,
                label=held.label,
                is_warm=held.is_warm,
            )
            return Draft(created, request_id)
        await self._maker.end(drive)
        return Draft(SandboxFailed(request_id=request_id, failure=failure), request_id)

    async def run(self, drive: Drive[BoxState], effect: RunCommand) -> Outcome:
        """Run one command unless its asker has been replaced, or has lost its right to the machine, meanwhile."""
        request, requester = effect.request, effect.requester
        request_id = effect.id.removeprefix("run-")
        if failure := await refusal_of(drive, requester, effect.requester_epoch, request.right):
            return Draft(ToolCallFailed(request_id=request_id, failure=failure), request_id)
        held: HeldBox = drive.held
        try:
            result = await held.box.exec(request.command, key=request_id, timeout_s=request.timeout_s)
        except BoxLost as error:
            return await self.lost(drive, error)
        done = ToolCallCompleted(
            request_id=request_id,
            exit_code=result.exit_code,
            output=result.output,
            output_bytes=result.output_bytes,
            truncated=result.truncated,
            ended_by=result.ended_by,
            duration_s=round(result.duration_s, 4),
        )
        return Draft(done, request_id)

    async def keep(self, drive: Drive[BoxState], effect: KeepFiles) -> Outcome:  # noqa: ARG002  nothing to know but the state
        """Write a checkpoint for the newest that is wanted; what goes wrong with it is no fault of the machine's."""
        held: HeldBox = drive.held
        request_id = drive.state.wanted[-1].request_id
        with_home = any(wanted.with_home for wanted in drive.state.wanted)
        try:
            async with asyncio.timeout(KEPT_WITHIN_S):
                saved = await held.keep(request_id, with_home=with_home)
        except BoxLost as error:
            return await self.lost(drive, error)
        except TooLarge as error:  # what is in the machine is the agent's doing, and will not change
            failure = Failure(kind="checkpoint_failed", message=str(error), stage="tool", terminal=True)
            return Draft(CheckpointFailed(request_id=request_id, failure=failure), request_id)
        except (GymBusError, OSError, TimeoutError) as error:
            message = str(error) or f"not written after {KEPT_WITHIN_S:g} s"
            failure = Failure(kind="checkpoint_failed", message=message, stage="tool")
            return Draft(CheckpointFailed(request_id=request_id, failure=failure), request_id)
        return Draft(saved, request_id)

    async def destroy(self, drive: Drive[BoxState], effect: DestroyBox) -> Outcome:  # noqa: ARG002  nothing to know but the state
        """End the machine; open commands have been answered as lost by then."""
        network = _network_of(drive)
        await self._maker.end(drive)
        close_id = drive.state.close_id or drive.state.request_id
        return Draft(SandboxDestroyed(request_id=close_id, **network), close_id)

    async def lost(self, drive: Drive[BoxState], error: BoxLost) -> Draft:
        """End what is left of a machine that is gone, and state that it is."""
        lost = SandboxLost(reason=str(error), is_replaced=isinstance(error, BoxReplaced), **_network_of(drive))
        self._maker.abandon(drive)
        return Draft(lost, drive.state.request_id)

    def table(self) -> dict[type[Any], Any]:
        """Return which handler does which effect."""
        return {CreateBox: self.create, RunCommand: self.run, KeepFiles: self.keep, DestroyBox: self.destroy}


def _network_of(drive: Drive[BoxState]) -> dict[str, Any]:
    held: HeldBox | None = drive.held
    return held.network() if held else {}
