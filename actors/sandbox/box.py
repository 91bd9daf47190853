"""One machine as a pure state machine: created by label, commands one after the other, its files kept when asked, destroyed.

A machine dies with the process that holds it, so whoever takes the aggregate over finds it lost: open commands become `ToolCallLost`
(they may have been started once), and nothing is ever started again.

One checkpoint is written at a time, and the newest that is wanted is the next: it answers the older ones too. What follows a command
comes before the next command; what was asked for by itself is written beside one. A machine that is given back is kept first.

Nothing is done for anybody but its owner and who has borrowed it (`lending.py`); of others' events none is believed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from actors.sandbox import install as installs
from actors.sandbox import launches
from actors.sandbox.box_state import ABOUT_A_MACHINE, BoxState, OpenCall, Wanted, asked, set_aside, stated
from actors.sandbox.lending import Lending, asker_of
from gym_bus.event_log import Draft
from gym_bus.runtime.machine import AwaitAnswer, Effect
from schemas.base import Event
from schemas.envelope import Envelope
from schemas.events import (
    CheckpointFailed,
    CheckpointSaved,
    RequestParked,
    SandboxDestroyed,
    SandboxFailed,
    SandboxLost,
    SandboxRequested,
    SessionClosed,
    SessionFailed,
    ToolCallLost,
    ToolCallRequested,
)
from schemas.ids import sandbox_key
from schemas.values import Failure, Party

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
    requester: Party


@dataclass(frozen=True, slots=True)
class KeepFiles(Effect):
    """Write a checkpoint, for the newest of those that are wanted."""


@dataclass(frozen=True, slots=True)
class DestroyBox(Effect):
    """End the machine."""


class BoxMachine:
    """See `gym_bus.runtime.machine.Machine`."""

    state_type = BoxState
    opened_by: type[Event] = SandboxRequested

    def begin(self, request: Envelope) -> BoxState:
        """Start with the request for a machine."""
        data = request.data
        if not isinstance(data, SandboxRequested):
            raise TypeError(request.type)
        lending = Lending(owner=asker_of(request))
        key = sandbox_key(request.attempt, data.number)
        return BoxState(request=data, request_id=request.event_id, key=key, lending=lending)

    def evolve(self, state: BoxState, event: Envelope) -> BoxState:
        """Fold one event: what the machine itself states, what it is asked, and that its owner's session is over."""
        if (event.actor, event.key) == ("sandbox", state.key):
            return stated(state, event)
        if event.actor == "sandbox" and isinstance(event.data, RequestParked):
            return set_aside(state, event.data.request_id)
        if isinstance(event.data, SessionClosed | SessionFailed):
            is_owners = asker_of(event) == state.lending.owner
            is_end = is_owners and not state.is_closing
            return state.replaced(is_closing=True, close_id=event.event_id) if is_end else state
        is_own_request = event.event_id == state.request_id
        is_about = isinstance(event.data, ABOUT_A_MACHINE) and event.data.number == state.request.number
        return asked(state, event) if is_about and not is_own_request else state

    def taken_over(self, state: BoxState) -> BoxState:
        """The machine is gone with its holder."""
        if not state.is_created:
            return state.replaced(install=installs.taken_over(state.install))
        return state if state.is_over else state.replaced(lost_reason=state.lost_reason or DIED)

    def decide(self, state: BoxState, now: datetime) -> Sequence[Draft]:  # noqa: ARG002  nothing here depends on time
        """Answer for what is lost, refused or changes hands, and for commands whose session is giving the machine up."""
        gone = OVER if state.is_over else state.lost_reason or (ABANDONED if state.is_closing else None)
        drafts = [*_also_answered(state), *state.lending.answers(gone, is_ready=state.is_created)]
        if state.is_over:
            drafts += [_lost(call, OVER) for call in state.calls]
            drafts += launches.lost(state.launches, OVER)
            drafts += [_not_kept(wanted, OVER) for wanted in state.wanted]
            return (*drafts, *(Draft(SandboxDestroyed(request_id=late), late) for late in state.late_closes))
        if not state.is_created:
            drafts += installs.decide(state.request, state.request_id, state.install)
        if not state.lost_reason:
            if state.is_closing:
                drafts += [_lost(call, ABANDONED) for call in state.calls]
                drafts += launches.lost(state.launches, launches.GIVEN_UP)
            return drafts
        if not state.is_lost:
            drafts.append(Draft(SandboxLost(reason=state.lost_reason), state.request_id))
        drafts += [_lost(call, state.lost_reason) for call in state.calls]
        drafts += launches.lost(state.launches, state.lost_reason)
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
        keeping = (*keeping, *launches.pending(state.launches))
        first = state.calls[0] if state.calls else None
        if first and (first.is_outlived or not any(wanted.is_before_next for wanted in state.wanted)):
            return (*keeping, RunCommand(f"run-{first.request_id}", first.request, first.epoch, first.asker))
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
