"""A session without a model as a pure state machine: a task's own solution is run, once, or nothing is done at all; then it is graded.

What a solution's exit code is does not matter: its work is what is looked at.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Final, Literal

from actors.harness import further
from actors.harness.core import MAX_STALE_TRIES, OVERTIME_S, SHORTEST_S, SessionCore, opened, unsupported
from actors.harness.ending import note
from gym_bus.event_log import Draft
from gym_bus.runtime.machine import Alarm, AwaitAnswer, Effect
from schemas.base import Event
from schemas.envelope import Envelope
from schemas.events import (
    ActivationCompleted,
    ActivationFailed,
    CheckpointRequested,
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
    ToolCallCompleted,
    ToolCallFailed,
    ToolCallLost,
    ToolCallRequested,
)
from schemas.harnesses import NopAgent, OracleAgent
from schemas.ids import sandbox_key
from schemas.tasks import Evidence
from schemas.values import Failure

NOTHING_DONE: Final = "nothing was done"


class SolvingState(SessionCore):
    """What is known of a session; `run_request` is the solution's command, asked for `tries` times, `ran` how it ended."""

    box: Literal["none", "asked", "ready", "lost", "closing", "gone"] = "none"
    box_request: str | None = None
    place: str = ""
    run_request: str | None = None
    tries: int = 0
    ran: ToolCallCompleted | None = None

    @property
    def agent(self) -> OracleAgent | NopAgent:
        """Return the agent's configuration."""
        if not isinstance(self.request.agent, OracleAgent | NopAgent):
            raise TypeError(self.request.agent.type)
        return self.request.agent


class SolvingMachine:
    """See `gym_bus.runtime.machine.Machine`."""

    state_type = SolvingState
    opened_by: type[Event] = SessionRequested

    def begin(self, request: Envelope) -> SolvingState:
        """Start with what is asked; a task without a solution fails before anything is made."""
        state = opened(SolvingState, request)
        if isinstance(state.agent, OracleAgent) and state.request.solution is None:
            return state.failed(unsupported("the task has no solution that an oracle_agent could run"))
        return state

    def evolve(self, state: SolvingState, event: Envelope) -> SolvingState:  # noqa: C901, PLR0911, PLR0912  one arm an event
        """Fold one event of any actor."""
        data = event.data
        match data:
            case SandboxRequested() if state.box == "none":
                return state.replaced(box="asked", box_request=event.event_id)
            case SandboxCreated() if state.box == "asked" and data.request_id == state.box_request:
                return state.replaced(box="ready", place=data.place)
            case SandboxFailed() if state.box == "asked" and data.request_id == state.box_request:
                return state.replaced(box="gone").failed(data.failure)
            case SandboxLost() if event.key == sandbox_key(event.attempt) and state.box in {"asked", "ready"}:
                lost = state.replaced(box="lost")
                is_needed = not state.evidence or state.misses_files
                failure = Failure(kind="sandbox_lost", message=data.reason, stage="tool")
                return lost.failed(failure) if is_needed else lost
            case SandboxCloseRequested() if state.box in {"ready", "lost"}:
                return state.replaced(box="closing", box_request=event.event_id)
            case SandboxDestroyed() if state.box == "closing" and data.request_id == state.box_request:
                return state.replaced(box="gone")
            case ToolCallRequested() if data.tries > state.tries:
                return state.replaced(run_request=event.event_id, tries=data.tries)
            case ToolCallCompleted() if data.request_id == state.run_request:
                return state.replaced(ran=data)
            case ToolCallFailed() if data.request_id == state.run_request:
                is_stale = data.failure.kind == "stale" and state.tries < MAX_STALE_TRIES
                return state.replaced(run_request=None) if is_stale else state.failed(data.failure)
            case ToolCallLost() if data.request_id == state.run_request:
                return state.failed(Failure(kind="tool_lost", message=data.reason, stage="tool"))
            case CheckpointRequested():
                return state.replaced(files_request=event.event_id)
            case RequestParked() if data.request_id == state.box_request:
                return state.replaced(box="gone").failed(data.failure)
            case RequestParked() if data.request_id in {state.run_request, state.files_request}:
                return state.failed(data.failure)
            case ActivationCompleted():
                return state.replaced(evidence=data.evidence, activation_id=event.event_id)
            case _:
                return note(state, event)

    def taken_over(self, state: SolvingState) -> SolvingState:
        """Nothing of a session lives in memory only."""
        return state

    def decide(self, state: SolvingState, now: datetime) -> Sequence[Draft]:  # noqa: PLR0911  one return a case
        """Say what to append now."""
        if state.is_closed:
            return ()
        if refused := further.refusals(state):
            return refused
        if state.failure:
            return self._wind_up(state, state.failure)
        if state.evidence:
            return self._close(state, state.evidence)
        if isinstance(state.agent, NopAgent):
            return (_completed(state, NOTHING_DONE, "nothing_to_do"),)
        if now >= self._deadline(state) or (state.ran and state.ran.ended_by == "timeout"):
            message = f"the solution was not finished after {state.agent.timeout_s:g} s"
            failure = Failure(kind="agent_timeout", message=message)
            return (Draft(ActivationFailed(activation=1, failure=failure), state.request_id),)
        if state.ran:
            return (_completed(state, state.ran.output, f"{state.ran.ended_by}:{state.ran.exit_code}"),)
        if state.box == "none":
            return (Draft(_sandbox(state.request), state.request_id),)
        if state.box == "ready" and state.run_request is None:
            request = _run(state, now)
            return (Draft(request, state.box_request, str(request.tries), place=state.place),)
        return ()

    @staticmethod
    def _deadline(state: SolvingState) -> datetime:
        return state.asked_at + timedelta(seconds=state.agent.timeout_s + OVERTIME_S)

    def _wind_up(self, state: SolvingState, failure: Failure) -> Sequence[Draft]:
        if state.box in {"ready", "lost"}:
            return (_give_back(state),)
        if state.box in {"asked", "closing"}:
            return ()
        return (Draft(SessionFailed(request_id=state.request_id, failure=failure), state.request_id),)

    def _close(self, state: SolvingState, evidence: Evidence) -> Sequence[Draft]:
        if state.misses_files and state.box == "ready":
            wanted = Draft(CheckpointRequested(), state.activation_id, place=state.place)
            return () if state.files_request else (wanted,)
        if state.box in {"ready", "lost"}:
            return (_give_back(state),)
        if state.box in {"asked", "closing"}:
            return ()
        handed_in = evidence.replaced(files=state.files, refused=state.refused)
        return (Draft(SessionClosed(request_id=state.request_id, evidence=handed_in), state.activation_id),)

    def pending(self, state: SolvingState) -> Sequence[Effect]:
        """Say what must be going on: others work, and the clock is looked at."""
        if state.is_closed:
            return ()
        if state.failure or state.evidence:
            return (AwaitAnswer("answers"),)
        return (AwaitAnswer("answers"), Alarm("deadline", self._deadline(state)))

    def is_done(self, state: SolvingState) -> bool:
        """Say whether the session has been answered."""
        return state.is_closed

    def crashed(self, state: SolvingState, failure: Failure) -> Sequence[Draft]:
        """Fail the activation; the session then winds up as usual."""
        if state.is_closed or state.failure:
            return ()
        return (Draft(ActivationFailed(activation=1, failure=failure), state.request_id),)


def _sandbox(request: SessionRequested) -> SandboxRequested:
    return SandboxRequested(
        sandbox=request.sandbox,
        install=request.install,
        warm_sandboxes=request.warm_sandboxes,
        staged=request.solution.staged if request.solution else None,
    )


def _run(state: SolvingState, now: datetime) -> ToolCallRequested:
    solution = state.request.solution
    left_s = state.agent.timeout_s - (now - state.asked_at).total_seconds()
    return ToolCallRequested(
        call_id="solution",
        turn=1,
        index=0,
        tool="solution",
        command=solution.command if solution else "",
        timeout_s=max(round(left_s, 3), SHORTEST_S),
        tries=state.tries + 1,
    )


def _completed(state: SolvingState, answer: str, stop_reason: str) -> Draft:
    evidence = Evidence(answer=answer, stop_reason=stop_reason, turns=0)
    return Draft(ActivationCompleted(activation=1, evidence=evidence), state.run_request or state.request_id)


def _give_back(state: SolvingState) -> Draft:
    return Draft(SandboxCloseRequested(), state.box_request, place=state.place)
