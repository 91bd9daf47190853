"""One machine as a pure state machine: created by label, commands one after the other, its files kept when asked, destroyed.

A machine dies with the process that holds it, so whoever takes the aggregate over finds it lost: open commands become `ToolCallLost`
(they may have been started once), and nothing is ever started again.

One checkpoint is written at a time, and the newest that is wanted is the next: it answers the older ones too. What follows a command
comes before the next command; what was asked for by itself is written beside one. A machine that is given back is kept first.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from actors.sandbox import install as installs
from gym_bus.event_log import Draft
from gym_bus.runtime.machine import AwaitAnswer, Effect
from schemas.base import Event, Frozen
from schemas.envelope import Envelope
from schemas.events import (
    CheckpointFailed,
    CheckpointRequested,
    CheckpointSaved,
    SandboxCloseRequested,
    SandboxCreated,
    SandboxDestroyed,
    SandboxFailed,
    SandboxInstalled,
    SandboxInstallStarted,
    SandboxLost,
    SandboxRequested,
    SessionClosed,
    SessionFailed,
    ToolCallCompleted,
    ToolCallFailed,
    ToolCallLost,
    ToolCallRequested,
)
from schemas.ids import sandbox_key
from schemas.values import Failure

OVER: Final = "the sandbox was over by then; nothing was started"
DIED: Final = "the process that held the machine died, and the machine with it"
ABANDONED: Final = "the session gave the machine up before the command was answered"


@dataclass(frozen=True, slots=True)
class CreateBox(Effect):
    """Make the machine."""


@dataclass(frozen=True, slots=True)
class RunCommand(Effect):
    """Run one command, at most once."""

    request: ToolCallRequested
    requester_epoch: int
    requester_key: str


@dataclass(frozen=True, slots=True)
class KeepFiles(Effect):
    """Write a checkpoint, for the newest of those that are wanted."""


@dataclass(frozen=True, slots=True)
class DestroyBox(Effect):
    """End the machine."""


class OpenCall(Frozen):
    """A command that has been asked for and not answered."""

    request_id: str
    request: ToolCallRequested
    epoch: int
    key: str


class Wanted(Frozen):
    """A checkpoint that has been asked for and not written."""

    request_id: str
    is_after_call: bool = False


class BoxState(Frozen):
    """What is known of a machine; `covered` are checkpoints that the last one, `outcome`, answers too."""

    request: SandboxRequested
    request_id: str
    key: str
    install: installs.InstallView = installs.InstallView()
    is_created: bool = False
    is_lost: bool = False
    lost_reason: str | None = None
    is_over: bool = False
    is_closing: bool = False
    close_id: str | None = None
    answered: frozenset[str] = frozenset()
    calls: tuple[OpenCall, ...] = ()
    wanted: tuple[Wanted, ...] = ()
    covered: tuple[str, ...] = ()
    outcome: CheckpointSaved | CheckpointFailed | None = None
    kept: int = 0
    late_closes: tuple[str, ...] = ()


class BoxMachine:
    """See `gym_bus.runtime.machine.Machine`."""

    state_type = BoxState
    opened_by: type[Event] = SandboxRequested

    def begin(self, request: Envelope) -> BoxState:
        """Start with the request for a machine."""
        data = request.data
        if not isinstance(data, SandboxRequested):
            raise TypeError(request.type)
        return BoxState(request=data, request_id=request.event_id, key=sandbox_key(request.attempt, data.number))

    def evolve(self, state: BoxState, event: Envelope) -> BoxState:  # noqa: C901, PLR0911, PLR0912  one arm an event
        """Fold one event."""
        data = event.data
        match data:
            case ToolCallRequested() if data.number == state.request.number:
                known = event.event_id in state.answered or any(c.request_id == event.event_id for c in state.calls)
                call = OpenCall(request_id=event.event_id, request=data, epoch=event.epoch, key=event.key)
                return state if known else _with(state, calls=(*state.calls, call))
            case ToolCallCompleted() | ToolCallFailed() | ToolCallLost():
                return _answered(state, data)
            case CheckpointRequested() if data.number == state.request.number:
                known = event.event_id in state.answered or any(w.request_id == event.event_id for w in state.wanted)
                is_known = known or event.event_id in state.covered
                return state if is_known else _with(state, wanted=(*state.wanted, Wanted(request_id=event.event_id)))
            case CheckpointSaved() | CheckpointFailed():
                return _kept(state, data)
            case SandboxInstallStarted() | SandboxInstalled() if event.key == state.key:
                return _with(state, install=installs.note(state.install, data))
            case SandboxCreated() if data.request_id == state.request_id:
                return _with(state, is_created=True)
            case SandboxFailed() if data.request_id == state.request_id:
                return _with(state, is_over=True)
            case SandboxLost() if event.key == state.key:
                return _with(state, is_lost=True, lost_reason=data.reason)
            case SandboxCloseRequested() if data.number == state.request.number and state.is_over:
                is_known = event.event_id in {state.close_id, *state.answered}
                return state if is_known else _with(state, late_closes=(*state.late_closes, event.event_id))
            case SandboxCloseRequested() if data.number == state.request.number:
                return _with(state, is_closing=True, close_id=event.event_id)
            case SessionClosed() | SessionFailed() if not state.is_closing:
                return _with(state, is_closing=True, close_id=event.event_id)
            case SandboxDestroyed() if event.key == state.key:
                late = tuple(close for close in state.late_closes if close != data.request_id)
                answered = state.answered | {data.request_id}
                return _with(state, is_over=True, late_closes=late, answered=answered)
            case _:
                return state

    def taken_over(self, state: BoxState) -> BoxState:
        """The machine is gone with its holder."""
        if not state.is_created:
            return _with(state, install=installs.taken_over(state.install))
        return _with(state, lost_reason=state.lost_reason or DIED) if not state.is_over else state

    def decide(self, state: BoxState, now: datetime) -> Sequence[Draft]:  # noqa: ARG002  nothing here depends on time
        """Answer for what is lost, and for commands whose session is giving the machine up."""
        drafts = _also_answered(state)
        if state.is_over:
            drafts += [_lost(call, OVER) for call in state.calls]
            drafts += [_not_kept(wanted, OVER) for wanted in state.wanted]
            return (*drafts, *(Draft(SandboxDestroyed(request_id=late), late) for late in state.late_closes))
        if not state.is_created:
            drafts += installs.decide(state.request, state.request_id, state.install)
        if not state.lost_reason:
            return (*drafts, *(_lost(call, ABANDONED) for call in state.calls)) if state.is_closing else drafts
        if not state.is_lost:
            drafts.append(Draft(SandboxLost(reason=state.lost_reason), state.request_id))
        drafts += [_lost(call, state.lost_reason) for call in state.calls]
        drafts += [_not_kept(wanted, state.lost_reason) for wanted in state.wanted]
        if state.is_closing and state.close_id:
            drafts.append(Draft(SandboxDestroyed(request_id=state.close_id), state.close_id))
        return drafts

    def pending(self, state: BoxState) -> Sequence[Effect]:
        """Create, then run the oldest open command and keep the files where that is wanted, then destroy."""
        if state.is_over:
            return ()
        if state.lost_reason:
            return (AwaitAnswer("close"),)
        if not state.is_created:
            return installs.pending(state.install) or (CreateBox("create"),)
        keeping = (KeepFiles(f"keep-{state.kept}"),) if state.wanted else ()
        if state.is_closing:
            return keeping or (DestroyBox("destroy"),)
        if state.calls and not any(wanted.is_after_call for wanted in state.wanted):
            first = state.calls[0]
            return (*keeping, RunCommand(f"run-{first.request_id}", first.request, first.epoch, first.key))
        return keeping or (AwaitAnswer("next"),)

    def is_done(self, state: BoxState) -> bool:
        """Say whether the machine is over; a lost one waits to be closed, so that what is still sent to it is answered."""
        return state.is_over

    def crashed(self, state: BoxState, failure: Failure) -> Sequence[Draft]:
        """Answer everyone: no machine, or a machine that cannot be trusted."""
        if state.is_over:
            return ()
        if not state.is_created:
            return (Draft(SandboxFailed(request_id=state.request_id, failure=failure), state.request_id),)
        if not state.lost_reason:
            return (Draft(SandboxLost(reason=failure.message), state.request_id),)
        return ()


def _answered(state: BoxState, data: ToolCallCompleted | ToolCallFailed | ToolCallLost) -> BoxState:
    call = next((c for c in state.calls if c.request_id == data.request_id), None)
    calls = tuple(c for c in state.calls if c.request_id != data.request_id)
    wanted = state.wanted
    if call and call.request.keeps_files and isinstance(data, ToolCallCompleted):
        wanted = (*wanted, Wanted(request_id=data.request_id, is_after_call=True))
    return _with(state, calls=calls, answered=state.answered | {data.request_id}, wanted=wanted)


def _kept(state: BoxState, data: CheckpointSaved | CheckpointFailed) -> BoxState:
    """Note what became of a checkpoint: it is that of the older ones as well."""
    if data.request_id in state.covered:
        covered = tuple(request_id for request_id in state.covered if request_id != data.request_id)
        return _with(state, covered=covered, answered=state.answered | {data.request_id})
    places = [n for n, wanted in enumerate(state.wanted) if wanted.request_id == data.request_id]
    if not places:
        return state
    older = tuple(wanted.request_id for wanted in state.wanted[: places[0]])
    return _with(
        state,
        wanted=state.wanted[places[0] + 1 :],
        covered=(*state.covered, *older),
        outcome=data,
        kept=state.kept + 1,
        answered=state.answered | {data.request_id},
    )


def _also_answered(state: BoxState) -> list[Draft]:
    outcome = state.outcome
    if outcome is None:
        return []
    new = {"stored_bytes": 0} if isinstance(outcome, CheckpointSaved) else {}
    return [Draft(outcome.replaced(request_id=older, **new), older) for older in state.covered]


def _not_kept(wanted: Wanted, reason: str) -> Draft:
    failure = Failure(kind="sandbox_lost", message=reason, stage="tool")
    return Draft(CheckpointFailed(request_id=wanted.request_id, failure=failure), wanted.request_id)


def _lost(call: OpenCall, reason: str) -> Draft:
    return Draft(ToolCallLost(request_id=call.request_id, reason=reason), call.request_id)


def _with(state: BoxState, **changes: object) -> BoxState:
    return state.replaced(**changes)
