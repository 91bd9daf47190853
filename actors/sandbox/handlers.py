"""What the sandbox actor does outside: making machines, running commands in them, ending them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from actors.sandbox.box import BoxState, CreateBox, DestroyBox, RunCommand
from gym_bus.errors import GymBusError
from gym_bus.event_log import Draft
from gym_bus.runtime.drive import Drive, Outcome
from gym_bus.subjects import CLAIM, event_subject
from providers.sandboxes.base import Box, BoxLost, CreateFailed, SandboxProvider, SandboxUnavailable
from schemas.config import SandboxConfig
from schemas.events import (
    SandboxCreated,
    SandboxDestroyed,
    SandboxFailed,
    SandboxLost,
    ToolCallCompleted,
    ToolCallFailed,
)
from schemas.values import Failure


class BoxHandlers:
    """The handlers of a box's effects; `provider_for` gives the provider of a configuration, `place` is this host's id."""

    def __init__(self, provider_for: Callable[[SandboxConfig], SandboxProvider], place: str) -> None:
        """Make machines with what `provider_for` returns, at `place`."""
        self._provider_for = provider_for
        self._place = place

    async def create(self, drive: Drive[BoxState], effect: CreateBox) -> Outcome:  # noqa: ARG002  nothing to know but the state
        """Make the machine."""
        request_id = drive.state.request_id
        try:
            provider = self._provider_for(drive.state.request.sandbox)
            drive.held = await provider.create(drive.aggregate.label)
        except SandboxUnavailable as error:
            failure = Failure(kind="sandbox_unavailable", message=str(error), stage="seed")
        except (CreateFailed, GymBusError) as error:
            failure = Failure(kind="sandbox_create_failed", message=str(error), stage="seed")
        else:
            return Draft(SandboxCreated(request_id=request_id, place=self._place, provider=provider.name), request_id)
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
        box: Box = drive.held
        request = effect.request
        try:
            result = await box.exec(request.command, key=request_id, timeout_s=request.timeout_s)
        except BoxLost as error:
            return Draft(SandboxLost(reason=str(error)), drive.state.request_id)
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

    async def destroy(self, drive: Drive[BoxState], effect: DestroyBox) -> Outcome:  # noqa: ARG002  nothing to know but the state
        """End the machine; open commands have been answered as lost by then."""
        box: Box | None = drive.held
        if box is not None:
            await box.destroy()
            drive.held = None
        close_id = drive.state.close_id or drive.state.request_id
        return Draft(SandboxDestroyed(request_id=close_id), close_id)

    def table(self) -> dict[type[Any], Any]:
        """Return which handler does which effect."""
        return {CreateBox: self.create, RunCommand: self.run, DestroyBox: self.destroy}
