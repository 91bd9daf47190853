"""Calls of the task's own tools by our loop: asked of the verifier, once each. They need no machine, and outlive the loss of one."""

from __future__ import annotations

from typing import Any

from actors.harness.state import SessionState
from schemas.envelope import Envelope
from schemas.events import TaskToolCallCompleted, TaskToolCallFailed, TaskToolCallLost, TaskToolCallRequested
from schemas.loops import BrowsecompAgent
from schemas.values import ToolCall, ToolSpec
from tools.progress import PROGRESS
from tools.shell import SHELL, BadArguments, arguments_of, text_of
from tools.task_answers import told


def offered(state: SessionState) -> tuple[ToolSpec, ...]:
    """Return the tools that the model is offered: the shell, if it has one, its notes, if it keeps any, and the task's."""
    own = (SHELL,) if state.agent.enable_tools else ()
    task = state.request.task.tools
    keeps_notes = isinstance(state.agent, BrowsecompAgent) and state.agent.progress
    if keeps_notes and PROGRESS.name not in {tool.name for tool in task}:
        own = (*own, PROGRESS)
    return (*own, *(ToolSpec(name=t.name, description=t.description, parameters=t.parameters) for t in task))


def arguments_for_task(state: SessionState, call: ToolCall) -> dict[str, Any] | BadArguments | None:
    """Return the arguments of a call of the task's tool, or why they are none; None if it is no tool of the task."""
    if call.name not in {tool.name for tool in state.request.task.tools}:
        return None
    arguments = arguments_of(call)
    if isinstance(arguments, dict) and isinstance(refused := text_of(arguments), BadArguments):
        return refused
    return arguments


def asked_for(
    state: SessionState, call: ToolCall, arguments: dict[str, Any], index: int, number: int
) -> TaskToolCallRequested:
    """Return the request for a call, the `number`-th of the session."""
    return TaskToolCallRequested(
        number=number,
        tool=call.name,
        arguments=arguments,
        timeout_s=state.agent.tool_timeout_s,
        activation=state.course.current,
        call_id=call.id,
        turn=state.turn,
        index=index,
    )


def note_asked(state: SessionState, event: Envelope, data: TaskToolCallRequested) -> SessionState:
    """Note that a call of this turn is open."""
    state = state.replaced(task_calls=max(state.task_calls, data.number))
    if data.turn != state.turn or data.index is None or data.index >= len(state.slots):
        return state
    slot = state.slots[data.index]
    if slot.answer is not None:
        return state
    slots = (*state.slots[: data.index], slot.replaced(request_id=event.event_id), *state.slots[data.index + 1 :])
    return state.replaced(slots=slots)


def answer_to(
    state: SessionState, data: TaskToolCallCompleted | TaskToolCallFailed | TaskToolCallLost
) -> tuple[int, str] | None:
    """Return which call of this turn was answered, and what the model is told; None if it is no open one."""
    for index, slot in enumerate(state.slots):
        if slot.request_id == data.request_id and slot.answer is None:
            said = told(data)
            return index, f"{said.text}\n[error]" if said.is_error else said.text
    return None
