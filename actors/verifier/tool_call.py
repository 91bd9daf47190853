"""One call of a tool of a task as a pure state machine, and what executes it.

Each call is an aggregate of its own: its claim says that it was started. What was started by a worker that is gone, and may have had an
effect outside of the log, is stated as lost.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

from gym_bus.errors import GymBusError
from gym_bus.event_log import Draft
from gym_bus.runtime.drive import Drive, Outcome
from gym_bus.runtime.machine import Effect
from gym_bus.subjects import event_subject
from schemas.base import Event, Frozen
from schemas.envelope import Envelope
from schemas.environment import BuiltIn, Execution, RemoteTool
from schemas.events import (
    EnvironmentSeeded,
    SessionClosed,
    SessionFailed,
    TaskToolCallCompleted,
    TaskToolCallFailed,
    TaskToolCallLost,
    TaskToolCallRequested,
)
from schemas.ids import session_key
from schemas.values import Failure
from tools.task_tools import Ran, run_built_in

TEXT_MAX_BYTES: Final = 256 * 1024
CallRemote = Callable[[RemoteTool, Mapping[str, Any]], Awaitable[Ran]]


@dataclass(frozen=True, slots=True)
class ExecuteCall(Effect):
    """Execute the call."""


class ToolCallState(Frozen):
    """What is known of a call; `may_have_run` if a worker that is gone had it."""

    request: TaskToolCallRequested
    request_id: str
    asked_at: datetime
    may_have_run: bool = False
    is_over: bool = False


class ToolCallMachine:
    """See `gym_bus.runtime.machine.Machine`."""

    state_type = ToolCallState
    opened_by: type[Event] = TaskToolCallRequested

    def begin(self, request: Envelope) -> ToolCallState:
        """Start with the request."""
        data = request.data
        if not isinstance(data, TaskToolCallRequested):
            raise TypeError(request.type)
        return ToolCallState(request=data, request_id=request.event_id, asked_at=request.recorded_at)

    def evolve(self, state: ToolCallState, event: Envelope) -> ToolCallState:
        """Fold one event."""
        match event.data:
            case TaskToolCallCompleted() | TaskToolCallFailed() | TaskToolCallLost() as data if (
                data.request_id == state.request_id
            ):
                return state.replaced(is_over=True)
            case _:
                return state

    def taken_over(self, state: ToolCallState) -> ToolCallState:
        """Remember that somebody else had begun."""
        return state.replaced(may_have_run=True)

    def decide(self, state: ToolCallState, now: datetime) -> Sequence[Draft]:  # noqa: ARG002
        """Decide nothing: what came of the call is its handler's outcome."""
        del state
        return ()

    def pending(self, state: ToolCallState) -> Sequence[Effect]:
        """Execute it, once."""
        return () if state.is_over else (ExecuteCall("call"),)

    def is_done(self, state: ToolCallState) -> bool:
        """Say whether the call has been answered."""
        return state.is_over

    def crashed(self, state: ToolCallState, failure: Failure) -> Sequence[Draft]:
        """Say that nobody knows what came of it."""
        if state.is_over:
            return ()
        lost = TaskToolCallLost(request_id=state.request_id, number=state.request.number, reason=failure.message)
        return (Draft(lost, state.request_id),)


class ToolCallHandlers:
    """The handler of a call."""

    def __init__(self, call_remote: CallRemote) -> None:
        """Reach servers of tools by `call_remote`, which raises a `GymBusError` if it never asked, and anything else if it may have."""
        self._call_remote = call_remote

    async def execute(self, drive: Drive[ToolCallState], effect: ExecuteCall) -> Outcome:  # noqa: ARG002  all is in the state
        """Execute the call and say what came of it."""
        state = drive.state
        execution = await self._execution(drive)
        if isinstance(execution, Failure):
            failed = TaskToolCallFailed(
                request_id=state.request_id, number=state.request.number, failure=execution.replaced(stage="tool")
            )
            return Draft(failed, state.request_id)
        if state.may_have_run and not isinstance(execution, BuiltIn):
            return _lost(state, "the worker that had begun it is gone", 0.0)
        return await self._executed(drive, execution)

    async def _executed(self, drive: Drive[ToolCallState], execution: Execution) -> Draft:
        state, clock = drive.state, drive.shell.clock
        request, began = state.request, clock.monotonic()
        try:
            if isinstance(execution, BuiltIn):
                ran = run_built_in(execution, request.arguments)
            else:
                async with asyncio.timeout(_left_s(state, clock.now())):
                    ran = await self._call_remote(execution, request.arguments)
        except GymBusError as error:
            failure = Failure(kind="tool_unreachable", message=str(error)[:2000], stage="tool")
            failed = TaskToolCallFailed(request_id=state.request_id, number=request.number, failure=failure)
            return Draft(failed, state.request_id)
        except TimeoutError:
            return _lost(state, f"no answer within {request.timeout_s:g} s", clock.monotonic() - began)
        except Exception as error:  # noqa: BLE001  the tool may have been executed: that is all that is known
            return _lost(state, f"{type(error).__name__}: {error}"[:2000], clock.monotonic() - began)
        done = _completed(state, ran, clock.monotonic() - began)
        return Draft(done, state.request_id)

    async def _execution(self, drive: Drive[ToolCallState]) -> Execution | Failure:
        """Return how the tool is executed, or why nobody wants that any more."""
        state, where, log = drive.state, drive.aggregate, drive.shell.log
        if _left_s(state, drive.shell.clock.now()) <= 0:
            return Failure(kind="stale", message=f"it was not begun within {state.request.timeout_s:g} s")
        session = where.sibling("harness", session_key(drive.attempt))
        for kind in (SessionClosed, SessionFailed):
            if await log.last(event_subject(session, kind.subject_kind())):
                return Failure(kind="stale", message="the session is over")
        course = where.sibling("collector", "_")
        seeded = await log.last(event_subject(course, EnvironmentSeeded.subject_kind()))
        tools = seeded.data.environment.tools if seeded and isinstance(seeded.data, EnvironmentSeeded) else {}
        if state.request.tool not in tools:
            return Failure(kind="unsupported", message=f"the task has no tool {state.request.tool!r}", terminal=True)
        return tools[state.request.tool]

    def table(self) -> dict[type[Any], Any]:
        """Return which handler does which effect."""
        return {ExecuteCall: self.execute}


def _left_s(state: ToolCallState, now: datetime) -> float:
    return (state.asked_at + timedelta(seconds=state.request.timeout_s) - now).total_seconds()


def _lost(state: ToolCallState, reason: str, duration_s: float) -> Draft:
    lost = TaskToolCallLost(
        request_id=state.request_id, number=state.request.number, reason=reason, duration_s=round(duration_s, 4)
    )
    return Draft(lost, state.request_id)


def _completed(state: ToolCallState, ran: Ran, duration_s: float) -> TaskToolCallCompleted:
    encoded = ran.text.encode(errors="replace")
    return TaskToolCallCompleted(
        request_id=state.request_id,
        number=state.request.number,
        tool=state.request.tool,
        text=encoded[:TEXT_MAX_BYTES].decode(errors="ignore"),
        is_error=ran.is_error,
        truncated=len(encoded) > TEXT_MAX_BYTES,
        record=ran.record,
        duration_s=round(duration_s, 4),
    )
