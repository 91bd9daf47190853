"""What the sandbox actor does outside: making machines, running commands in them, keeping their files, ending them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Final

import structlog

from actors.sandbox.admission import Admission
from actors.sandbox.box import BoxState, CreateBox, DestroyBox, KeepFiles, RunCommand
from actors.sandbox.held import HeldBox
from gym_bus.blobs import Blobs
from gym_bus.errors import GymBusError
from gym_bus.event_log import Draft
from gym_bus.runtime.drive import Drive, Outcome
from gym_bus.subjects import CLAIM, event_subject
from providers.sandboxes.base import BoxLost, BoxReplaced, CreateFailed, SandboxProvider, SandboxUnavailable
from providers.sandboxes.phases import PhaseChanged, enter
from schemas.config import NetworkPolicy, SandboxConfig
from schemas.events import (
    CheckpointFailed,
    SandboxCreated,
    SandboxDestroyed,
    SandboxFailed,
    SandboxLost,
    SandboxRequested,
    ToolCallCompleted,
    ToolCallFailed,
)
from schemas.values import Failure

log = structlog.get_logger(__name__)

KEPT_WITHIN_S: Final = 900.0
RESTORED_WITHIN_S: Final = 900.0
ENDED_WITHIN_S: Final = 60.0
ENDED_AFTER_S: Final = (1.0, 5.0, 30.0, 120.0, 600.0)


class BoxHandlers:
    """The handlers of a box's effects; `provider_for` gives the provider of a configuration, `place` is this host's id."""

    def __init__(
        self, provider_for: Callable[[SandboxConfig], SandboxProvider], place: str, blobs: Blobs, admission: Admission
    ) -> None:
        """Make machines with what `provider_for` returns, at `place`, as `admission` allows; keep their files in `blobs`."""
        self._provider_for = provider_for
        self._place = place
        self._blobs = blobs
        self._admission = admission
        self._ending: set[asyncio.Task[None]] = set()

    async def create(self, drive: Drive[BoxState], effect: CreateBox) -> Outcome:  # noqa: ARG002  nothing to know but the state
        """Make the machine, with the files of a checkpoint if it follows one that was lost."""
        request, request_id = drive.state.request, drive.state.request_id
        try:
            provider = self._provider_for(request.sandbox)
            await self._admission.enter(drive.aggregate.label, request.sandbox)
            held = HeldBox(await provider.create(drive.aggregate.label), self._blobs)
            drive.held = held
            if request.restore:
                async with asyncio.timeout(RESTORED_WITHIN_S):
                    await held.restore(request.restore)
            if change := _phase_of(request):
                await held.enter(change)
        except SandboxUnavailable as error:
            failure = Failure(kind="sandbox_unavailable", message=str(error), stage="seed")
        except (CreateFailed, GymBusError, OSError, TimeoutError) as error:
            failure = Failure(kind="sandbox_create_failed", message=str(error) or "out of time", stage="seed")
        else:
            able = tuple(sorted(provider.capabilities))
            created = SandboxCreated(
                request_id=request_id,
                place=self._place,
                provider=provider.name,
                capabilities=able,
                phase=change.phase if change else None,
                allow=change.allow if change else (),
            )
            return Draft(created, request_id)
        await self._end(drive)
        return Draft(SandboxFailed(request_id=request_id, failure=failure), request_id)

    async def run(self, drive: Drive[BoxState], effect: RunCommand) -> Outcome:
        """Run one command unless its asker has been replaced meanwhile."""
        request_id = effect.id.removeprefix("run-")
        session = drive.aggregate.sibling("harness", effect.requester_key)
        claim = await drive.shell.log.bus.last(event_subject(session, CLAIM))
        if claim and claim.sequence > effect.requester_epoch:
            failure = Failure(
                kind="stale", message="the session has another owner since; nothing was started", stage="tool"
            )
            return Draft(ToolCallFailed(request_id=request_id, failure=failure), request_id)
        held: HeldBox = drive.held
        request = effect.request
        try:
            result = await held.box.exec(request.command, key=request_id, timeout_s=request.timeout_s)
        except BoxLost as error:
            return await self._lost(drive, error)
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
        try:
            async with asyncio.timeout(KEPT_WITHIN_S):
                saved = await held.keep(request_id)
        except BoxLost as error:
            return await self._lost(drive, error)
        except (GymBusError, OSError, TimeoutError) as error:
            message = str(error) or f"not written after {KEPT_WITHIN_S:g} s"
            failure = Failure(kind="checkpoint_failed", message=message, stage="tool")
            return Draft(CheckpointFailed(request_id=request_id, failure=failure), request_id)
        return Draft(saved, request_id)

    async def destroy(self, drive: Drive[BoxState], effect: DestroyBox) -> Outcome:  # noqa: ARG002  nothing to know but the state
        """End the machine; open commands have been answered as lost by then."""
        network = _network_of(drive)
        await self._end(drive)
        close_id = drive.state.close_id or drive.state.request_id
        return Draft(SandboxDestroyed(request_id=close_id, **network), close_id)

    def abandon(self, drive: Drive[BoxState]) -> None:
        """End a machine whose drive is over before its time: whoever goes on with the aggregate states it as lost."""
        if drive.held is None:
            self._admission.leave(drive.aggregate.label)
        else:
            ending = asyncio.get_running_loop().create_task(self._end_quietly(drive))
            self._ending.add(ending)
            ending.add_done_callback(self._ending.discard)

    async def _lost(self, drive: Drive[BoxState], error: BoxLost) -> Draft:
        """End what is left of a machine that is gone, and state that it is."""
        lost = SandboxLost(reason=str(error), is_replaced=isinstance(error, BoxReplaced), **_network_of(drive))
        self.abandon(drive)
        return Draft(lost, drive.state.request_id)

    async def _end_quietly(self, drive: Drive[BoxState]) -> None:
        """End a machine that nobody waits for, however long that takes to come about; after our death it is the reaper's."""
        for wait_s in ENDED_AFTER_S:
            try:
                async with asyncio.timeout(ENDED_WITHIN_S):
                    await self._end(drive)
            except (GymBusError, OSError, TimeoutError) as error:
                log.warning("sandbox_not_ended", sandbox=drive.aggregate.label, reason=str(error) or "out of time")
                await asyncio.sleep(wait_s)
            else:
                return

    async def _end(self, drive: Drive[BoxState]) -> None:
        held: HeldBox | None = drive.held
        if held is not None:
            await held.box.destroy()
            drive.held = None
        self._admission.leave(drive.aggregate.label)

    def table(self) -> dict[type[Any], Any]:
        """Return which handler does which effect."""
        return {CreateBox: self.create, RunCommand: self.run, KeepFiles: self.keep, DestroyBox: self.destroy}


def _phase_of(request: SandboxRequested) -> PhaseChanged | None:
    """Return the phase that a machine begins in; None for one whose configuration says nothing of hosts."""
    policy = getattr(request.sandbox, "network", None)
    return enter(policy, None, request.phase) if isinstance(policy, NetworkPolicy) else None


def _network_of(drive: Drive[BoxState]) -> dict[str, Any]:
    held: HeldBox | None = drive.held
    return held.network() if held else {}
