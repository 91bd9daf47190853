"""The session of an agent whose loop is ours as a pure state machine: model call, tool calls, model call … answer.

The whole conversation is folded from the log: the model's answers from the `model` aggregate, the tools' from the `sandbox` aggregate.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from actors.budget import sentence
from actors.harness import commands, compaction, further, losses, nudging, task_calls
from actors.harness.core import opened, unsupported
from actors.harness.ending import note
from actors.harness.state import BoxView, SessionState, Summary, ToolSlot
from gym_bus.event_log import Draft
from gym_bus.runtime.machine import Alarm, AwaitAnswer, Effect
from schemas.base import Event
from schemas.envelope import Envelope
from schemas.events import (
    ActivationCompleted,
    ActivationFailed,
    ActivationStarted,
    AgentNudged,
    BudgetExhausted,
    CheckpointRequested,
    CheckpointSaved,
    ContextCompacted,
    ModelCallCompleted,
    ModelCallFailed,
    ModelCallLost,
    ModelCallRequested,
    ProgressNoted,
    RequestParked,
    SandboxCloseRequested,
    SandboxCreated,
    SandboxDestroyed,
    SandboxFailed,
    SandboxLost,
    SandboxRequested,
    SessionClosed,
    SessionFailed,
    SessionRequested,
    TaskToolCallCompleted,
    TaskToolCallFailed,
    TaskToolCallLost,
    TaskToolCallRequested,
    ToolCallCompleted,
    ToolCallFailed,
    ToolCallLost,
    ToolCallRejected,
    ToolCallRequested,
)
from schemas.ids import sandbox_key, session_key
from schemas.tasks import Evidence
from schemas.values import Failure, Message


@dataclass(frozen=True, slots=True)
class CallModel(Effect):
    """Get the model's answer for `turn`, with as many tries as the configuration allows."""

    turn: int


@dataclass(frozen=True, slots=True)
class SettleCall(Effect):
    """State what became of a model call that nobody waits for any more."""

    turn: int


class SessionMachine:
    """See `gym_bus.runtime.machine.Machine`."""

    state_type = SessionState
    opened_by: type[Event] = SessionRequested

    def begin(self, request: Envelope) -> SessionState:
        """Start with the task's messages; a system prompt of the configuration comes first."""
        state = opened(SessionState, request, started_at=request.recorded_at)
        prompt, task = state.agent.system_prompt, state.request.task
        system = (Message(role="system", content=prompt),) if prompt else ()
        state = state.replaced(messages=(*system, *task.messages))
        if task.continues and state.request.agent.type != "simple_agent":
            name = state.request.agent.type
            message = (
                f"{name} leaves out what is old, and could leave out a further input: simple_agent takes follow_ups"
            )
            return state.failed(unsupported(message))
        return state

    # -- evolve ----------------------------------------------------------------------------------------------------------------

    def evolve(self, state: SessionState, event: Envelope) -> SessionState:  # noqa: C901, PLR0911, PLR0912  one arm an event
        """Fold one event of any actor; who has borrowed the sandbox asks it too, which is none of the session's doing."""
        data = event.data
        if data.TO in {"sandbox", "verifier"} and (event.actor, event.key) != ("harness", session_key(event.attempt)):
            return state
        match data:
            case ModelCallRequested() if data.turn == state.turn + 1 and data.tries > state.call_tries:
                return _with(
                    state,
                    sent=len(state.prompt) + (data.purpose is not None),
                    open_call=event.event_id,
                    purpose=data.purpose,
                    call_tries=data.tries,
                    context_digest=data.context_digest,
                )
            case ModelCallCompleted() if data.turn == state.turn + 1:
                return _summarised(state, data) if state.purpose else _answered_by_model(state, data)
            case ModelCallFailed() if data.request_id == state.open_call:
                return _not_answered(state, data)
            case ModelCallLost() if data.request_id == state.open_call:
                return _with(state, open_call=None)
            case BudgetExhausted():
                return _out_of_budget(state, data)
            case SandboxRequested() if data.number == 1 and state.box.stands == "none":
                return state.with_box(stands="asked", request_id=event.event_id)
            case SandboxRequested() if data.number > state.box.number:
                return losses.note_replaced(state, event, data)
            case SandboxCreated() if state.box.stands == "asked" and data.request_id == state.box.request_id:
                able = "snapshots" in data.capabilities
                return state.with_box(stands="ready", place=data.place, has_snapshots=able)
            case SandboxFailed() if state.box.stands == "asked" and data.request_id == state.box.request_id:
                return state.with_box(stands="gone").failed(data.failure)
            case SandboxLost() if event.key == sandbox_key(event.attempt, state.box.number):
                failure = losses.lost("sandbox_lost", data.reason)
                return losses.note_lost(state, failure, is_replaced=data.is_replaced)
            case SandboxCloseRequested() if data.number == state.box.number:
                return _given_back(state, event)
            case SandboxDestroyed() if state.box.stands == "closing" and event.key == sandbox_key(
                event.attempt, state.box.number
            ):
                return state.with_box(stands="gone")
            case ToolCallRequested():
                return losses.note_redo_asked(state, event, data) or commands.note_asked(state, event, data)
            case TaskToolCallRequested():
                return task_calls.note_asked(state, event, data)
            case TaskToolCallCompleted() | TaskToolCallFailed() | TaskToolCallLost():
                return commands.note_task_answered(state, data)
            case ToolCallRejected():
                return commands.note_asked(state, event, data)
            case ProgressNoted():
                return commands.note_progress(state, data)
            case ContextCompacted():
                return compaction.note(state, data)
            case AgentNudged():
                return nudging.note(state, data)
            case ToolCallCompleted() if state.is_redone(data.request_id):
                return losses.note_redone(state, data, event.ordinal)
            case ToolCallCompleted():
                return commands.note_answered(state, data, event.ordinal)
            case ToolCallLost() if state.is_open(data.request_id) or state.is_redone(data.request_id):
                return losses.note_tool_lost(state, data.request_id, data.reason)
            case ToolCallFailed() if state.is_redone(data.request_id):
                return losses.note_redo_refused(state, data)
            case ToolCallFailed() if state.is_open(data.request_id):
                return commands.note_refused(state, data)
            case CheckpointRequested() if data.number == state.box.number:
                return state.replaced(files_request=event.event_id)
            case CheckpointSaved() if data.request_id == state.files_request:
                return note(state, event)
            case CheckpointSaved() if event.key == sandbox_key(event.attempt, state.box.number):
                return losses.note_saved(state, data, event.ordinal)
            case RequestParked():
                return _parked(state, data)
            case ActivationStarted():
                return _taken(state, event, data)
            case _:
                return note(state, event)

    def taken_over(self, state: SessionState) -> SessionState:
        """Nothing of a session lives in memory only; an open model call is settled by its handler."""
        return state

    # -- decide ----------------------------------------------------------------------------------------------------------------

    def decide(self, state: SessionState, now: datetime) -> Sequence[Draft]:  # noqa: C901, PLR0911  one return a case
        """Say what to append now."""
        if state.is_closed:
            return ()
        if refused := further.refusals(state):
            return refused
        if state.is_active and now >= self._deadline(state):
            message = f"the session was not finished after {state.agent.timeout_s:g} s"
            failure = Failure(kind="agent_timeout", message=message)
            return (Draft(ActivationFailed(activation=state.course.current, failure=failure), state.request_id),)
        if state.failure:
            return self._wind_up(state, state.failure)
        if state.evidence:
            return self._close(state, state.evidence)
        if state.course.is_between:
            return further.go_on(state, now)
        if state.stop_reason and not state.slots:
            return nudging.refuse(state) or (self._complete(state, state.stop_reason),)
        if state.slots and state.is_at_last_step:
            return (self._complete(state, "max_steps"),)
        if shorter := nudging.warn(state) or compaction.compact(state):
            return shorter
        if state.box.stands == "lost":
            return losses.replace(state)
        if state.box.stands == "ready" and state.box.redo:
            return losses.redo(state)
        return commands.ask(state)

    def _deadline(self, state: SessionState) -> datetime:
        return state.asked_at + timedelta(seconds=state.agent.timeout_s)

    def _wind_up(self, state: SessionState, failure: Failure) -> Sequence[Draft]:
        if state.open_call:
            return ()
        if state.box.stands == "ready":
            return (self._give_back(state.box),)
        if state.box.stands in {"asked", "closing"}:
            return ()
        return (Draft(SessionFailed(request_id=state.request_id, failure=failure), state.request_id),)

    def _close(self, state: SessionState, evidence: Evidence) -> Sequence[Draft]:
        if state.misses_files and state.box.stands in {"ready", "lost"}:
            return self._hand_in(state)
        if state.box.stands == "ready":
            return (self._give_back(state.box),)
        if state.box.stands in {"asked", "closing"}:
            return ()
        handed_in = evidence.replaced(files=state.files, refused=state.refused)
        closed = SessionClosed(request_id=state.request_id, evidence=handed_in, activations=state.course.record())
        return (Draft(closed, state.activation_id),)

    @staticmethod
    def _hand_in(state: SessionState) -> Sequence[Draft]:
        """Have the files kept as they are at the end, in another machine if this one was lost before it was known to be the end."""
        box = state.box
        if box.stands == "lost":
            return losses.replace(state)
        if box.redo:
            return losses.redo(state)
        if state.files_request:
            return ()
        return (Draft(CheckpointRequested(number=box.number), box.request_id, place=box.place or ""),)

    @staticmethod
    def _give_back(box: BoxView) -> Draft:
        return Draft(SandboxCloseRequested(number=box.number), box.request_id, place=box.place or "")

    def _complete(self, state: SessionState, stop_reason: str) -> Draft:
        turns = state.turn - state.turns_before
        evidence = Evidence(answer=nudging.last_answer(state), stop_reason=stop_reason, turns=turns)
        activation = state.course.current
        tag = str(activation) if activation > 1 else ""
        cause = state.last_call or state.request_id
        return Draft(ActivationCompleted(activation=activation, evidence=evidence), cause, tag)

    # -- pending ---------------------------------------------------------------------------------------------------------------

    def pending(self, state: SessionState) -> Sequence[Effect]:
        """Say what must be going on."""
        if state.is_closed:
            return ()
        effects: list[Effect] = []
        is_redoing = bool(state.box.redo) and state.box.redo[0].request_id is not None
        is_asking = is_redoing or any(s.request_id and s.answer is None for s in state.slots)
        is_keeping = state.files_request is not None and state.misses_files
        if is_asking or is_keeping or state.box.stands in {"asked", "closing"}:
            effects.append(AwaitAnswer("answers"))
        if state.evidence:
            return effects
        if state.failure:
            return [*effects, SettleCall(f"settle-{state.turn + 1}", state.turn + 1)] if state.open_call else effects
        if state.course.is_between:
            return [*effects, *further.waiting(state)]
        effects.append(Alarm("deadline", self._deadline(state)))
        if not state.stop_reason and not state.slots:
            effects.append(CallModel(f"model-{state.turn + 1}", state.turn + 1))
        return effects

    def is_done(self, state: SessionState) -> bool:
        """Say whether the session has been answered."""
        return state.is_closed

    def crashed(self, state: SessionState, failure: Failure) -> Sequence[Draft]:
        """Fail the activation; the session then winds up as usual."""
        if state.is_closed or state.failure:
            return ()
        return (Draft(ActivationFailed(activation=state.course.current, failure=failure), state.request_id),)


def _with(state: SessionState, **changes: object) -> SessionState:
    return state.replaced(**changes)


def _taken(state: SessionState, event: Envelope, data: ActivationStarted) -> SessionState:
    """Go on with the whole conversation and what is new in it."""
    taken = further.begun(state, event, data)
    if taken is state:
        return state
    return _with(taken, messages=(*state.messages, *data.messages), stop_reason=None, turns_before=state.turn)


def _answered_by_model(state: SessionState, data: ModelCallCompleted) -> SessionState:
    slots = tuple(ToolSlot(call=call) for call in data.message.tool_calls)
    return _with(
        state,
        messages=(*state.messages, data.message),
        sent=len(state.prompt) + 1,
        turn=data.turn,
        call_tries=0,
        open_call=None,
        last_call=data.request_id,
        continues=data.request_id,
        context_tokens=data.usage.input_tokens + data.usage.output_tokens,
        spent=state.spent.plus(data),
        slots=slots,
        stop_reason=None if slots else data.stop_reason,
    )


def _not_answered(state: SessionState, data: ModelCallFailed) -> SessionState:
    """Have a try made again later, or the context made smaller if it was too long for the model; else the session fails."""
    failure = data.failure if data.retry_in_s is None else None
    if failure and failure.kind == "context_overflow" and compaction.can_shrink(state):
        return _with(state, open_call=None, is_overflown=True)
    return _with(state, open_call=None, failure=state.failure or failure)


def _summarised(state: SessionState, data: ModelCallCompleted) -> SessionState:
    """Keep what was written for the context that begins now; it is no part of the conversation."""
    return _with(
        state,
        turn=data.turn,
        call_tries=0,
        open_call=None,
        purpose=None,
        last_call=data.request_id,
        asides=(*state.asides, data.turn),
        spent=state.spent.plus(data),
        summary=Summary(call_id=data.request_id, text=(data.message.content or "").strip() or None),
    )


def _out_of_budget(state: SessionState, data: BudgetExhausted) -> SessionState:
    """End with what there is: of the rollout's own budget that may be graded; of the run's, the rollout was never to be finished."""
    if data.scope == "rollout":
        return _with(state, stop_reason=state.stop_reason or f"budget:{data.limit}")
    failure = Failure(kind="budget_exhausted", message=sentence(data), terminal=True)
    return _with(state, failure=state.failure or failure)


def _parked(state: SessionState, data: RequestParked) -> SessionState:
    if data.request_id == state.box.request_id:
        return state.with_box(stands="gone").failed(data.failure)
    is_missed = data.request_id == state.files_request and state.files is None
    if is_missed or state.is_open(data.request_id) or state.is_redone(data.request_id):
        return state.failed(data.failure)
    return state


def _given_back(state: SessionState, event: Envelope) -> SessionState:
    match state.box.stands:
        case "lost":
            return state.with_box(is_given_back=True)
        case "ready":
            return state.with_box(stands="closing", request_id=event.event_id)
        case _:
            return state
