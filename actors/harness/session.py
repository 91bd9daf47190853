"""The session of a `simple_agent` as a pure state machine: model call, tool calls, model call … answer.

The whole conversation is folded from the log: the model's answers from the `model` aggregate, the tools' from the `sandbox` aggregate.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final, Literal

from actors.budget import Spent, sentence
from gym_bus.event_log import Draft
from gym_bus.runtime.machine import Alarm, AwaitAnswer, Effect
from schemas.base import Event, Frozen
from schemas.config import SimpleAgent
from schemas.envelope import Envelope
from schemas.events import (
    ActivationCompleted,
    ActivationFailed,
    BudgetExhausted,
    ModelCallCompleted,
    ModelCallFailed,
    ModelCallLost,
    ModelCallRequested,
    RequestParked,
    RunCancelled,
    SandboxCloseRequested,
    SandboxCreated,
    SandboxDestroyed,
    SandboxFailed,
    SandboxLost,
    SandboxRequested,
    SessionClosed,
    SessionFailed,
    SessionRequested,
    ToolCallCompleted,
    ToolCallFailed,
    ToolCallLost,
    ToolCallRejected,
    ToolCallRequested,
)
from schemas.tasks import Evidence
from schemas.values import Failure, Message, ToolCall
from tools.shell import SHELL, BadArguments, parse_call

MAX_STALE_TRIES: Final = 5


@dataclass(frozen=True, slots=True)
class CallModel(Effect):
    """Get the model's answer for `turn`, with as many tries as the configuration allows."""

    turn: int


@dataclass(frozen=True, slots=True)
class SettleCall(Effect):
    """State what became of a model call that nobody waits for any more."""

    turn: int


class ToolSlot(Frozen):
    """One of the last answer's tool calls: not yet asked, open (with the request's id), or answered (with the text)."""

    call: ToolCall
    request_id: str | None = None
    answer: str | None = None
    tries: int = 0


class SessionState(Frozen):
    """What is known of a session."""

    request: SessionRequested
    request_id: str
    started_at: datetime
    messages: tuple[Message, ...]
    sent: int = 0
    turn: int = 0
    call_tries: int = 0
    open_call: str | None = None
    last_call: str | None = None
    spent: Spent = Spent()
    context_digest: str = ""
    stop_reason: str | None = None
    slots: tuple[ToolSlot, ...] = ()
    box: Literal["none", "asked", "ready", "closing", "gone"] = "none"
    box_request: str | None = None
    place: str | None = None
    evidence: Evidence | None = None
    activation_id: str | None = None
    failure: Failure | None = None
    is_closed: bool = False

    @property
    def agent(self) -> SimpleAgent:
        """Return the agent's configuration."""
        return self.request.agent


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


def lost(kind: Literal["sandbox_lost", "tool_lost", "sandbox_create_failed"], message: str) -> Failure:
    """Return the failure of a session whose machine is not to be trusted any more."""
    return Failure(kind=kind, message=message, stage="tool")


class SessionMachine:
    """See `gym_bus.runtime.machine.Machine`."""

    state_type = SessionState
    opened_by: type[Event] = SessionRequested

    def begin(self, request: Envelope) -> SessionState:
        """Start with the task's messages; a system prompt of the configuration comes first."""
        data = request.data
        if not isinstance(data, SessionRequested):
            raise TypeError(request.type)
        system = (Message(role="system", content=data.agent.system_prompt),) if data.agent.system_prompt else ()
        return SessionState(
            request=data,
            request_id=request.event_id,
            started_at=request.recorded_at,
            messages=(*system, *data.task.messages),
        )

    # -- evolve ----------------------------------------------------------------------------------------------------------------

    def evolve(self, state: SessionState, event: Envelope) -> SessionState:  # noqa: C901, PLR0911, PLR0912  one arm an event
        """Fold one event of any actor."""
        data = event.data
        match data:
            case ModelCallRequested() if data.turn == state.turn + 1 and data.tries > state.call_tries:
                return _with(
                    state,
                    sent=len(state.messages),
                    open_call=event.event_id,
                    call_tries=data.tries,
                    context_digest=data.context_digest,
                )
            case ModelCallCompleted() if data.turn == state.turn + 1:
                return _answered_by_model(state, data)
            case ModelCallFailed() if data.request_id == state.open_call:
                failure = data.failure if data.retry_in_s is None else None
                return _with(state, open_call=None, failure=state.failure or failure)
            case ModelCallLost() if data.request_id == state.open_call:
                return _with(state, open_call=None)
            case BudgetExhausted():
                return _out_of_budget(state, data)
            case SandboxRequested():
                return _with(state, box="asked", box_request=event.event_id)
            case SandboxCreated() if state.box == "asked":
                return _with(state, box="ready", place=data.place)
            case SandboxFailed() if state.box == "asked":
                return _with(state, box="gone", failure=state.failure or data.failure)
            case SandboxLost() if state.box in {"ready", "closing"}:
                failure = state.failure if state.evidence else state.failure or lost("sandbox_lost", data.reason)
                return _with(state, box="gone" if state.box == "ready" else state.box, failure=failure)
            case SandboxCloseRequested():
                return _with(state, box="closing", box_request=event.event_id)
            case SandboxDestroyed() if state.box == "closing":
                return _with(state, box="gone")
            case ToolCallRequested() | ToolCallRejected():
                return _asked(state, event, data)
            case ToolCallCompleted():
                return _with_answer(state, data.request_id, describe_result(data))
            case ToolCallLost() if _is_open(state, data.request_id):
                return _with(state, failure=state.failure or lost("tool_lost", data.reason))
            case ToolCallFailed() if _is_open(state, data.request_id):
                return _refused(state, data)
            case RequestParked():
                return _parked(state, data)
            case ActivationFailed():
                return _with(state, failure=state.failure or data.failure)
            case ActivationCompleted():
                return _with(state, evidence=data.evidence, activation_id=event.event_id)
            case SessionClosed() | SessionFailed():
                return _with(state, is_closed=True)
            case RunCancelled() if not state.evidence:
                cancelled = Failure(kind="cancelled", message=f"run cancelled: {data.reason}", terminal=True)
                return _with(state, failure=state.failure or cancelled)
            case _:
                return state

    def taken_over(self, state: SessionState) -> SessionState:
        """Nothing of a session lives in memory only; an open model call is settled by its handler."""
        return state

    # -- decide ----------------------------------------------------------------------------------------------------------------

    def decide(self, state: SessionState, now: datetime) -> Sequence[Draft]:  # noqa: PLR0911  one return a case
        """Say what to append now."""
        if state.is_closed:
            return ()
        if not state.failure and not state.evidence and now >= self._deadline(state):
            message = f"the session was not finished after {state.agent.timeout_s:g} s"
            failure = Failure(kind="agent_timeout", message=message)
            return (Draft(ActivationFailed(activation=1, failure=failure), state.request_id),)
        if state.failure:
            return self._wind_up(state, state.failure)
        if state.evidence:
            return self._close(state, state.evidence)
        if state.stop_reason and not state.slots:
            return (self._complete(state, state.stop_reason),)
        if state.slots and state.turn >= state.agent.max_steps:
            return (self._complete(state, "max_steps"),)
        return self._ask_tools(state)

    def _deadline(self, state: SessionState) -> datetime:
        return state.started_at + timedelta(seconds=state.agent.timeout_s)

    def _wind_up(self, state: SessionState, failure: Failure) -> Sequence[Draft]:
        if state.open_call:
            return ()
        if state.box == "ready":
            return (Draft(SandboxCloseRequested(), state.box_request, place=state.place or ""),)
        if state.box in {"asked", "closing"}:
            return ()
        return (Draft(SessionFailed(request_id=state.request_id, failure=failure), state.request_id),)

    def _close(self, state: SessionState, evidence: Evidence) -> Sequence[Draft]:
        if state.box == "ready":
            return (Draft(SandboxCloseRequested(), state.box_request, place=state.place or ""),)
        if state.box in {"asked", "closing"}:
            return ()
        return (Draft(SessionClosed(request_id=state.request_id, evidence=evidence), state.activation_id),)

    def _complete(self, state: SessionState, stop_reason: str) -> Draft:
        last = state.messages[-1]
        is_answer = last.role == "assistant" and not last.tool_calls
        evidence = Evidence(answer=last.content if is_answer else None, stop_reason=stop_reason, turns=state.turn)
        return Draft(ActivationCompleted(activation=1, evidence=evidence), state.last_call or state.request_id)

    def _ask_tools(self, state: SessionState) -> Sequence[Draft]:
        """Reject what cannot be understood, get a machine if one is needed, and ask for the calls that may go now."""
        drafts: list[Draft] = []
        for index, slot in enumerate(state.slots):
            if slot.answer is not None or slot.request_id is not None:
                if slot.answer is None and not state.agent.parallel_tool_calls:
                    break
                continue
            parsed = parse_call(slot.call, (SHELL,) if state.agent.enable_tools else ())
            if isinstance(parsed, BadArguments):
                rejected = ToolCallRejected(call_id=slot.call.id, turn=state.turn, index=index, message=parsed.message)
                drafts.append(Draft(rejected, state.last_call, str(index)))
                continue
            if state.box == "none" and not any(isinstance(d.data, SandboxRequested) for d in drafts):
                drafts.append(Draft(SandboxRequested(sandbox=state.request.sandbox), state.last_call))
            if state.box != "ready":
                break
            requested = ToolCallRequested(
                call_id=slot.call.id,
                turn=state.turn,
                index=index,
                tool=slot.call.name,
                command=parsed,
                timeout_s=state.agent.tool_timeout_s,
                tries=slot.tries + 1,
            )
            drafts.append(Draft(requested, state.last_call, f"{index}/{slot.tries + 1}", place=state.place or ""))
            if not state.agent.parallel_tool_calls:
                break
        return drafts

    # -- pending ---------------------------------------------------------------------------------------------------------------

    def pending(self, state: SessionState) -> Sequence[Effect]:
        """Say what must be going on."""
        if state.is_closed:
            return ()
        effects: list[Effect] = []
        if state.box in {"asked", "closing"} or any(s.request_id and s.answer is None for s in state.slots):
            effects.append(AwaitAnswer("answers"))
        if state.evidence:
            return effects
        if state.failure:
            return [*effects, SettleCall(f"settle-{state.turn + 1}", state.turn + 1)] if state.open_call else effects
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
        return (Draft(ActivationFailed(activation=1, failure=failure), state.request_id),)


def _with(state: SessionState, **changes: object) -> SessionState:
    return state.replaced(**changes)


def _answered_by_model(state: SessionState, data: ModelCallCompleted) -> SessionState:
    slots = tuple(ToolSlot(call=call) for call in data.message.tool_calls)
    return _with(
        state,
        messages=(*state.messages, data.message),
        sent=len(state.messages) + 1,
        turn=data.turn,
        call_tries=0,
        open_call=None,
        last_call=data.request_id,
        spent=state.spent.plus(data),
        slots=slots,
        stop_reason=None if slots else data.stop_reason,
    )


def _out_of_budget(state: SessionState, data: BudgetExhausted) -> SessionState:
    """End with what there is: of the rollout's own budget that may be graded; of the run's, the rollout was never to be finished."""
    if data.scope == "rollout":
        return _with(state, stop_reason=state.stop_reason or f"budget:{data.limit}")
    failure = Failure(kind="budget_exhausted", message=sentence(data), terminal=True)
    return _with(state, failure=state.failure or failure)


def _is_open(state: SessionState, request_id: str) -> bool:
    return any(slot.request_id == request_id and slot.answer is None for slot in state.slots)


def _asked(state: SessionState, event: Envelope, data: ToolCallRequested | ToolCallRejected) -> SessionState:
    if data.turn != state.turn or data.index >= len(state.slots):
        return state
    slot = state.slots[data.index]
    if slot.answer is not None:
        return state
    if isinstance(data, ToolCallRejected):
        return _with_slot(state, data.index, slot.replaced(answer=data.message))
    if data.tries <= slot.tries:
        return state
    return _with_slot(state, data.index, slot.replaced(request_id=event.event_id, tries=data.tries))


def _with_answer(state: SessionState, request_id: str, text: str) -> SessionState:
    for index, slot in enumerate(state.slots):
        if slot.request_id == request_id and slot.answer is None:
            return _with_slot(state, index, slot.replaced(answer=text))
    return state


def _with_slot(state: SessionState, index: int, slot: ToolSlot) -> SessionState:
    """Put a slot back; once the last one is answered, the answers become the next call's messages."""
    slots = (*state.slots[:index], slot, *state.slots[index + 1 :])
    if any(s.answer is None for s in slots) or state.turn >= state.agent.max_steps:
        return _with(state, slots=slots)
    answers = tuple(Message(role="tool", content=s.answer, tool_call_id=s.call.id) for s in slots)
    return _with(state, slots=(), messages=(*state.messages, *answers))


def _refused(state: SessionState, data: ToolCallFailed) -> SessionState:
    """Ask a stale call again under the new epoch; anything else means the machine cannot be used."""
    for index, slot in enumerate(state.slots):
        if slot.request_id == data.request_id and data.failure.kind == "stale" and slot.tries < MAX_STALE_TRIES:
            return _with_slot(state, index, slot.replaced(request_id=None))
    return _with(state, failure=state.failure or data.failure)


def _parked(state: SessionState, data: RequestParked) -> SessionState:
    if data.request_id == state.box_request:
        return _with(state, box="gone", failure=state.failure or data.failure)
    if _is_open(state, data.request_id):
        return _with(state, failure=state.failure or data.failure)
    return state
