"""A session whose machine was lost goes on in another one: with the files of the last checkpoint, and what ran since, run again.

What the model has seen must come out as it did, or the session fails: its files would not be those that the conversation is about. What
it has not seen (the commands of the open turn) is simply asked for again. The request for the new machine says all of this, so that
whoever takes the session over does the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Literal

from actors.harness.commands import asked_for, describe_result
from actors.harness.core import MAX_STALE_TRIES
from actors.harness.state import BoxView, Command, SessionState, ToolSlot
from gym_bus.event_log import Draft
from schemas.envelope import Envelope
from schemas.events import (
    CheckpointSaved,
    SandboxCloseRequested,
    SandboxRequested,
    ToolCallCompleted,
    ToolCallFailed,
    ToolCallRequested,
)
from schemas.values import AskedAgain, Failure
from tools.shell import SHELL, BadArguments, parse_call

UNSAVED_MAX: Final = 64
"""A session that has run more commands than these since its last checkpoint is not taken up again."""


def lost(kind: Literal["sandbox_lost", "tool_lost"], message: str) -> Failure:
    """Return the failure of a session whose machine is not to be trusted any more."""
    return Failure(kind=kind, message=message, stage="tool")


def note_lost(state: SessionState, failure: Failure, *, is_replaced: bool = False) -> SessionState:
    """Note that the machine is gone; the session fails with `failure` unless it can go on in another one."""
    if state.box.stands == "closing":
        return state if state.evidence else state.failed(failure)
    if state.box.stands != "ready":
        return state
    if state.evidence:
        return _lost_at_the_end(state.with_box(stands="gone"), failure)
    if state.failure or is_replaced or not _may_go_on(state):
        return state.with_box(stands="gone").failed(failure)
    return state.with_box(stands="lost")


def _lost_at_the_end(state: SessionState, failure: Failure) -> SessionState:
    """Hand in the last checkpoint, if it holds all that was done; the session fails if its files are wanted and there is none."""
    if not state.misses_files:
        return state
    if state.box.snapshot is None or state.box.unsaved or state.box.redo:
        return state.failed(failure)
    return state.replaced(files=state.box.snapshot)


def note_tool_lost(state: SessionState, request_id: str, reason: str) -> SessionState:
    """Note that a command was lost, which it is with its machine."""
    if state.evidence:
        return state
    if state.box.stands == "ready" and not state.failure and _may_go_on(state):
        state = state.with_box(stands="lost")
    if state.box.stands != "lost":
        return state.failed(lost("tool_lost", reason))
    if state.is_redone(request_id):
        return _with_first(state, state.box.redo[0].replaced(request_id=None))
    slots = tuple(s.replaced(request_id=None) if s.request_id == request_id else s for s in state.slots)
    return state.replaced(slots=slots)


def note_saved(state: SessionState, data: CheckpointSaved, ordinal: int) -> SessionState:
    """Note a checkpoint of this machine: it holds all that the machine had stated by then."""
    if ordinal <= state.box.saved_to:
        return state
    unsaved = tuple(ran for ran in state.box.unsaved if ran.ordinal > ordinal)
    return state.with_box(snapshot=data.snapshot, saved_to=ordinal, unsaved=unsaved)


def replace(state: SessionState) -> Sequence[Draft]:
    """Give the lost machine back, and ask for the next one, as soon as everything that was asked of it is answered.

    It is answered for sure, with what came of it or as lost: only then is it known what the checkpoint holds and what it does not.
    """
    box, drafts = state.box, []
    is_open = any(slot.request_id and slot.answer is None for slot in state.slots)
    if is_open or (box.redo and box.redo[0].request_id):
        return ()
    if not box.is_given_back:
        drafts.append(Draft(SandboxCloseRequested(number=box.number), box.request_id, place=box.place or ""))
    open_turn = state.turn if state.slots else None
    seen = [_again(ran) for ran in (*box.unsaved, *box.redo) if ran.turn != open_turn]
    again = [
        AskedAgain(turn=state.turn, index=index, tries=slot.tries)
        for index, slot in enumerate(state.slots)
        if slot.tries and (slot.answer is None or slot.ordinal > box.saved_to)
    ]
    elsewhere = state.request.checkpoints.restore_in
    wanted = SandboxRequested(
        sandbox=elsewhere or state.request.sandbox,
        warm_sandboxes=0 if elsewhere else state.request.warm_sandboxes,
        number=box.number + 1,
        restore=box.snapshot,
        seen=tuple(seen),
        again=tuple(again),
        install=state.request.install,
    )
    return (*drafts, Draft(wanted, box.request_id))


def note_replaced(state: SessionState, event: Envelope, data: SandboxRequested) -> SessionState:
    """Begin anew with another machine: its request says what has to run again, whatever was heard of it in the meantime."""
    state = _reopened(state, data.again)
    redo = tuple(Command(turn=a.turn, index=a.index, tries=a.tries) for a in data.seen)
    box = BoxView(stands="asked", number=data.number, request_id=event.event_id, snapshot=data.restore, redo=redo)
    return state.replaced(box=box)


def redo(state: SessionState) -> Sequence[Draft]:
    """Ask for the next command that has to run again."""
    first = state.box.redo[0]
    if first.request_id is not None:
        return ()
    call = state.answered_turn(first.turn)[0].tool_calls[first.index]
    command = parse_call(call, (SHELL,))
    if isinstance(command, BadArguments):
        raise TypeError(command.message)
    request = asked_for(state, call, command, first, keeps_files=len(state.box.redo) == 1)
    tag = f"{first.turn}/{first.index}/{request.tries}"
    return (Draft(request, state.box.request_id, tag, place=state.box.place or ""),)


def note_redo_asked(state: SessionState, event: Envelope, data: ToolCallRequested) -> SessionState | None:
    """Note that a command runs again; None if the request is for another one."""
    first = state.box.redo[0] if state.box.redo and data.number == state.box.number else None
    if first is None or (first.turn, first.index) != (data.turn, data.index) or data.tries <= first.tries:
        return None
    return _with_first(state, first.replaced(request_id=event.event_id, tries=data.tries))


def note_redone(state: SessionState, data: ToolCallCompleted, ordinal: int) -> SessionState:
    """Go on to the next, if a command came out as it did."""
    first, rest = state.box.redo[0], state.box.redo[1:]
    told = state.answered_turn(first.turn)[1][first.index].content
    if not _is_alike(data, told or ""):
        message = (
            "the sandbox was lost, and its files cannot be made again: the model was told one result of call "
            f"{first.index} of turn {first.turn}, and in another sandbox the command had another one"
        )
        return state.failed(lost("sandbox_lost", message))
    return state.with_box(redo=rest).ran(first.replaced(ordinal=ordinal))


def _is_alike(data: ToolCallCompleted, told: str) -> bool:
    """Say whether a result is what the model was told; how long it took to reach a deadline does not count."""
    if data.ended_by == "timeout":
        return told.startswith(
            describe_result(data).rpartition("\n[ended at its deadline")[0] + "\n[ended at its deadline"
        )
    return describe_result(data) == told


def note_redo_refused(state: SessionState, data: ToolCallFailed) -> SessionState:
    """Have a stale command asked for again; anything else means that the machine cannot be used."""
    first = state.box.redo[0]
    if data.failure.kind == "stale" and first.tries < MAX_STALE_TRIES:
        return _with_first(state, first.replaced(request_id=None))
    return state.failed(data.failure)


def _may_go_on(state: SessionState) -> bool:
    """Say whether another machine can follow: what may have had an effect outside of the lost one is not done twice."""
    has_another = state.box.number <= state.request.checkpoints.max_restores
    undone = len(state.box.unsaved) + len(state.box.redo)
    asked = any(slot.tries for slot in state.slots)
    is_repeatable = not state.reaches_out or not (undone or asked)
    return state.keeps_files and has_another and undone <= UNSAVED_MAX and is_repeatable


def _again(ran: Command) -> AskedAgain:
    return AskedAgain(turn=ran.turn, index=ran.index, tries=ran.tries)


def _with_first(state: SessionState, first: Command) -> SessionState:
    return state.with_box(redo=(first, *state.box.redo[1:]))


def _reopened(state: SessionState, again: Sequence[AskedAgain]) -> SessionState:
    """Open calls of this turn again; an answer that came to them from the lost machine is taken back."""
    if not again or again[0].turn != state.turn:
        return state
    slots = state.slots
    if not slots:
        answer, told = state.answered_turn(state.turn)
        slots = tuple(ToolSlot(call=c, answer=m.content) for c, m in zip(answer.tool_calls, told, strict=True))
        state = state.replaced(messages=state.messages[: -len(told)])
        state = state.replaced(sent=min(state.sent, len(state.prompt)))
    reset = {a.index: ToolSlot(call=slots[a.index].call, tries=a.tries) for a in again}
    return state.replaced(slots=tuple(reset.get(n, slot) for n, slot in enumerate(slots)))
