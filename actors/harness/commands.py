"""The commands of a turn: asked for in the session's machine, answered, and asked for again where nothing came of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from actors.harness import task_calls
from actors.harness.core import MAX_STALE_TRIES
from actors.harness.state import Command, SessionState, ToolSlot
from gym_bus.event_log import Draft
from schemas.envelope import Envelope
from schemas.events import (
    ProgressNoted,
    SandboxRequested,
    TaskToolCallCompleted,
    TaskToolCallFailed,
    TaskToolCallLost,
    ToolCallCompleted,
    ToolCallFailed,
    ToolCallRejected,
    ToolCallRequested,
)
from schemas.values import Message, ToolCall
from tools.progress import PROGRESS, Note, parse_note
from tools.shell import BadArguments, parse_call

NOTED: Final = "Noted."


def describe_result(result: ToolCallCompleted) -> str:
    """Return what the model is told about a command."""
    text = result.output or "(no output)"
    if result.truncated:
        text += f"\n[output truncated: {len(result.output.encode())} of {result.output_bytes} bytes shown]"
    match result.ended_by:
        case "timeout":
            return f"{text}\n[ended at its deadline after {result.duration_s:.1f} s]"
        case "out_of_memory":
            return f"{text}\n[ended: out of memory]"
        case _:
            return text if result.exit_code == 0 else f"{text}\n[exit code {result.exit_code}]"


def ask(state: SessionState) -> Sequence[Draft]:
    """Reject what cannot be understood, get a machine if one is needed, and ask for the calls that may go now."""
    drafts: list[Draft] = []
    parsed = [_parsed(state, slot.call) for slot in state.slots]
    last = max((n for n, command in enumerate(parsed) if isinstance(command, str)), default=-1)
    number = state.task_calls
    for index, (slot, command) in enumerate(zip(state.slots, parsed, strict=True)):
        if slot.answer is not None or slot.request_id is not None:
            if slot.answer is None and not state.agent.parallel_tool_calls:
                break
            continue
        if isinstance(command, BadArguments | Note):
            drafts.append(_answer_at_once(state, slot.call, command, index))
            continue
        if isinstance(command, dict):
            number += 1
            asked = task_calls.asked_for(state, slot.call, command, index, number)
            drafts.append(Draft(asked, state.last_call, str(index)))
            if not state.agent.parallel_tool_calls:
                break
            continue
        if state.box.stands == "none" and not any(isinstance(d.data, SandboxRequested) for d in drafts):
            wanted = SandboxRequested(
                sandbox=state.request.sandbox,
                install=state.request.install,
                warm_sandboxes=state.request.warm_sandboxes,
            )
            drafts.append(Draft(wanted, state.last_call))
        if state.box.stands != "ready" or state.box.redo:
            break
        place = Command(turn=state.turn, index=index, tries=slot.tries)
        request = asked_for(state, slot.call, command, place, keeps_files=index == last)
        drafts.append(Draft(request, state.last_call, _tag(request), place=state.box.place or ""))
        if not state.agent.parallel_tool_calls:
            break
    return drafts


def _answer_at_once(state: SessionState, call: ToolCall, said: BadArguments | Note, index: int) -> Draft:
    """Return the event that answers a call for which nobody has to be asked."""
    answer: ToolCallRejected | ProgressNoted
    if isinstance(said, BadArguments):
        answer = ToolCallRejected(call_id=call.id, turn=state.turn, index=index, message=said.message)
    else:
        answer = ProgressNoted(call_id=call.id, turn=state.turn, index=index, progress=said.text, message=NOTED)
    return Draft(answer, state.last_call, str(index))


def asked_for(
    state: SessionState, call: ToolCall, command: str, place: Command, *, keeps_files: bool
) -> ToolCallRequested:
    """Return the request for a command in the machine that the session has now."""
    return ToolCallRequested(
        call_id=call.id,
        turn=place.turn,
        index=place.index,
        tool=call.name,
        command=command,
        timeout_s=state.agent.tool_timeout_s,
        tries=place.tries + 1,
        number=state.box.number,
        keeps_files=keeps_files and state.keeps_files,
    )


def note_asked(state: SessionState, event: Envelope, data: ToolCallRequested | ToolCallRejected) -> SessionState:
    """Note that a call of this turn is open, or was refused."""
    if data.turn != state.turn or data.index >= len(state.slots):
        return state
    slot = state.slots[data.index]
    if slot.answer is not None:
        return state
    if isinstance(data, ToolCallRejected):
        return with_slot(state, data.index, slot.replaced(answer=data.message))
    if data.tries <= slot.tries:
        return state
    return with_slot(state, data.index, slot.replaced(request_id=event.event_id, tries=data.tries))


def note_progress(state: SessionState, data: ProgressNoted) -> SessionState:
    """Note the model's notes, which answers the call of this turn."""
    if data.turn != state.turn or data.index >= len(state.slots):
        return state
    slot = state.slots[data.index]
    if slot.answer is not None:
        return state
    return with_slot(state.replaced(progress=data.progress), data.index, slot.replaced(answer=data.message))


def note_answered(state: SessionState, data: ToolCallCompleted, ordinal: int) -> SessionState:
    """Note what came of a call of this turn."""
    for index, slot in enumerate(state.slots):
        if slot.request_id == data.request_id and slot.answer is None:
            ran = Command(turn=state.turn, index=index, tries=slot.tries, request_id=data.request_id, ordinal=ordinal)
            return with_slot(state.ran(ran), index, slot.replaced(answer=describe_result(data), ordinal=ordinal))
    return state


def note_task_answered(
    state: SessionState, data: TaskToolCallCompleted | TaskToolCallFailed | TaskToolCallLost
) -> SessionState:
    """Note what came of a call of the task's tools."""
    found = task_calls.answer_to(state, data)
    if found is None:
        return state
    index, answer = found
    return with_slot(state, index, state.slots[index].replaced(answer=answer))


def note_refused(state: SessionState, data: ToolCallFailed) -> SessionState:
    """Have a stale call asked for again under the new epoch; anything else means the machine cannot be used."""
    for index, slot in enumerate(state.slots):
        if slot.request_id == data.request_id and data.failure.kind == "stale" and slot.tries < MAX_STALE_TRIES:
            return with_slot(state, index, slot.replaced(request_id=None))
    return state.failed(data.failure)


def with_slot(state: SessionState, index: int, slot: ToolSlot) -> SessionState:
    """Put a slot back; once the last one is answered, the answers become the next call's messages."""
    slots = (*state.slots[:index], slot, *state.slots[index + 1 :])
    if any(s.answer is None for s in slots) or state.is_at_last_step:
        return state.replaced(slots=slots)
    answers = tuple(Message(role="tool", content=s.answer, tool_call_id=s.call.id) for s in slots)
    return state.replaced(slots=(), messages=(*state.messages, *answers))


def _parsed(state: SessionState, call: ToolCall) -> str | dict[str, Any] | Note | BadArguments:
    """Return a command, the arguments of a tool of the task, notes, or why it is none of them."""
    arguments = task_calls.arguments_for_task(state, call)
    if arguments is not None:
        return arguments
    offered = task_calls.offered(state)
    return parse_note(call) if call.name == PROGRESS.name and PROGRESS in offered else parse_call(call, offered)


def _tag(request: ToolCallRequested) -> str:
    return f"{request.index}/{request.tries}"
