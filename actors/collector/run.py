"""A run as a pure state machine: planned, conducted, perhaps paused or cancelled, finished."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from pydantic import Field

from gym_bus.event_log import Draft
from gym_bus.runtime.machine import AwaitAnswer, Effect
from schemas.base import Event, Frozen
from schemas.envelope import Envelope
from schemas.events import (
    RequestParked,
    RunCancelled,
    RunCancelRequested,
    RunFinished,
    RunPaused,
    RunRequested,
    RunResumed,
    RunResumeRequested,
    RunStarted,
    Snapshot,
)
from schemas.values import Failure


@dataclass(frozen=True, slots=True)
class MakePlan(Effect):
    """Load the tasks and put the rollouts in order."""


@dataclass(frozen=True, slots=True)
class Conduct(Effect):
    """Start rollouts, count what comes of them, and say when the run is over or has to pause."""


@dataclass(frozen=True, slots=True)
class AwaitStore(Effect):
    """Wait until the store has room again."""


class Progress(Frozen):
    """Which rollouts are over (a bit for each in the order of the plan, base64), and how they count; read the log from `read_after`."""

    done: str = ""
    counts: Mapping[str, int] = Field(default_factory=dict)
    read_after: int = 0

    def bits(self) -> bytes:
        """Return the bits as bytes, the first rollout in the lowest bit of the first byte."""
        return base64.b64decode(self.done)


class RunState(Frozen):
    """What is known of a run. `asks` are control requests that have not been answered."""

    request: RunRequested
    request_id: str
    started: RunStarted | None = None
    started_id: str | None = None
    started_sequence: int = 0
    paused: RunPaused | None = None
    paused_id: str | None = None
    pauses: int = 0
    cancelled: str | None = None
    progress: Progress = Progress()
    finished: RunFinished | None = None
    cancel_asks: tuple[tuple[str, str], ...] = ()
    resume_asks: tuple[tuple[str, str], ...] = ()
    answered: frozenset[str] = frozenset()


class RunMachine:
    """See `gym_bus.runtime.machine.Machine`."""

    state_type = RunState
    opened_by: type[Event] = RunRequested

    def begin(self, request: Envelope) -> RunState:
        """Start with the command line's request."""
        data = request.data
        if not isinstance(data, RunRequested):
            raise TypeError(request.type)
        return RunState(request=data, request_id=request.event_id)

    def evolve(self, state: RunState, event: Envelope) -> RunState:  # noqa: PLR0911  one arm an event
        """Fold one event."""
        data = event.data
        match data:
            case RunStarted():
                return _with(state, started=data, started_id=event.event_id, started_sequence=event.sequence)
            case RunCancelRequested() if event.event_id not in state.answered:
                return _with(state, cancel_asks=_plus(state.cancel_asks, event.event_id, data.reason))
            case RunResumeRequested() if event.event_id not in state.answered:
                return _with(state, resume_asks=_plus(state.resume_asks, event.event_id, data.config_digest))
            case RunPaused() if event.event_id != state.paused_id:
                return _with(state, paused=data, paused_id=event.event_id, pauses=state.pauses + 1)
            case RunResumed():
                asks = tuple(a for a in state.resume_asks if a[0] != data.request_id)
                return _answered(_with(state, paused=None, resume_asks=asks), data.request_id)
            case RunCancelled():
                asks = tuple(a for a in state.cancel_asks if a[0] != data.request_id)
                return _answered(_with(state, paused=None, cancelled=data.reason, cancel_asks=asks), data.request_id)
            case RequestParked():
                cancels = tuple(a for a in state.cancel_asks if a[0] != data.request_id)
                resumes = tuple(a for a in state.resume_asks if a[0] != data.request_id)
                return _answered(_with(state, cancel_asks=cancels, resume_asks=resumes), data.request_id)
            case RunFinished():
                return _with(state, finished=data)
            case Snapshot() if "progress" in data.state.get("state", {}):
                return _with(state, progress=Progress.model_validate(data.state["state"]["progress"]))
            case _:
                return state

    def taken_over(self, state: RunState) -> RunState:
        """What the earlier owner knew is read from the log again."""
        return state

    def decide(self, state: RunState, now: datetime) -> Sequence[Draft]:  # noqa: ARG002  nothing here depends on time
        """Answer control requests."""
        if state.finished:
            late = [(i, "run_cancel_requested.v1") for i, _ in state.cancel_asks]
            late += [(i, "run_resume_requested.v1") for i, _ in state.resume_asks]
            failure = Failure(kind="parked", message=f"the run is {state.finished.state} already", terminal=True)
            return [Draft(RequestParked(request_id=i, request_type=t, tries=1, failure=failure), i) for i, t in late]
        if state.cancel_asks:
            return [Draft(RunCancelled(request_id=i, reason=reason), i) for i, reason in state.cancel_asks]
        if state.resume_asks:
            return [self._resume(state, i, config_digest) for i, config_digest in state.resume_asks]
        return ()

    def _resume(self, state: RunState, request_id: str, config_digest: str) -> Draft:
        if config_digest != state.request.config_digest:
            message = (
                f"the run's configuration is {state.request.config_digest}, not {config_digest}: start a new run for it"
            )
            failure = Failure(kind="parked", message=message, terminal=True)
            parked = RequestParked(
                request_id=request_id, request_type="run_resume_requested.v1", tries=1, failure=failure
            )
            return Draft(parked, request_id)
        return Draft(RunResumed(request_id=request_id, reason="asked for"), request_id)

    def pending(self, state: RunState) -> Sequence[Effect]:
        """Plan, then conduct; while paused, wait for whoever can help."""
        if state.finished:
            return ()
        if not state.started:
            return (MakePlan("plan"),)
        if state.paused and state.paused.kind == "store":
            return (AwaitStore(f"store-{state.pauses}"), AwaitAnswer("resume"))
        if state.paused:
            return (AwaitAnswer("resume"),)
        return (Conduct(f"conduct-{state.pauses}"),)

    def is_done(self, state: RunState) -> bool:
        """Say whether the run is over and every control request answered."""
        return state.finished is not None and not state.cancel_asks and not state.resume_asks

    def crashed(self, state: RunState, failure: Failure) -> Sequence[Draft]:
        """Pause, so that nothing is lost and somebody looks."""
        if state.finished or state.paused:
            return ()
        if not state.started:
            return (never_started(state, failure),)
        return (Draft(RunPaused(kind="failure", reason=failure.message), state.started_id, str(state.pauses)),)


def never_started(state: RunState, failure: Failure) -> Draft:
    """Return the end of a run that could not be planned: nothing was planned, so nothing is missing."""
    finished = RunFinished(
        request_id=state.request_id, state="failed", planned=0, scored=0, failed=0, masked=0, missing=0, failure=failure
    )
    return Draft(finished, state.request_id)


def _plus(asks: tuple[tuple[str, str], ...], request_id: str, text: str) -> tuple[tuple[str, str], ...]:
    return asks if any(a[0] == request_id for a in asks) else (*asks, (request_id, text))


def _answered(state: RunState, request_id: str) -> RunState:
    return _with(state, answered=state.answered | {request_id})


def _with(state: RunState, **changes: object) -> RunState:
    return state.replaced(**changes)
