"""One attempt at one rollout as a pure state machine: session, verdict, end.

What somebody said to the session of an earlier attempt from outside is a part of what the rollout is about: it is given to the next
one's session as the task's own further inputs are. Without it, a failure of the machinery would come to a reward for something else.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Final

from gym_bus.event_log import Draft
from gym_bus.runtime.machine import Alarm, AwaitAnswer, Effect
from schemas.base import Event, Frozen
from schemas.config import AgentConfig, Retries, RunConfig
from schemas.envelope import Envelope
from schemas.events import (
    ActivationStarted,
    EnvironmentSeeded,
    InputEnded,
    RequestParked,
    RolloutFinished,
    RunCancelled,
    SessionClosed,
    SessionEndAsked,
    SessionFailed,
    SessionRequested,
    VerdictFailed,
    VerdictIssued,
    VerdictRequested,
)
from schemas.events.collector import RolloutState as RowState
from schemas.harnesses import OracleAgent
from schemas.machines import fitted
from schemas.sandboxes import with_image
from schemas.tasks import Evidence, FollowUp, Task, TaskInput
from schemas.values import HALTING, Failure

CANCEL_GRACE_S: Final = 30.0
"""How long what is under way when a run is cancelled may take to end; then the rollout is over without it."""


class RolloutState(Frozen):
    """What is known of one attempt; `failures` counts the earlier attempts that used up one of the allowed ones.

    `follow_ups` are the further inputs that earlier attempts' sessions had, `is_enough` says that nobody will give more.
    """

    attempt: int
    failures: int
    cause: str
    follow_ups: tuple[FollowUp, ...] = ()
    is_enough: bool = False
    is_seeded: bool = False
    session_id: str | None = None
    evidence: Evidence | None = None
    session_event: str | None = None
    verdict_id: str | None = None
    verdict: VerdictIssued | None = None
    failure: Failure | None = None
    failed_by: str | None = None
    cancelled: RunCancelled | None = None
    cut_at: datetime | None = None
    finished: RolloutFinished | None = None
    finished_id: str | None = None


class RolloutMachine:
    """See `gym_bus.runtime.machine.Machine`. One instance for each rollout: it knows the task and the configuration."""

    state_type = RolloutState
    opened_by: type[Event] = SessionRequested

    def __init__(self, task: Task, repeat: int, config: RunConfig, *, attempt: int, failures: int, cause: str) -> None:
        """Run attempt `attempt` at `task` because of the event `cause`."""
        self._task = task
        self._repeat = repeat
        self._config = config
        self.first = RolloutState(attempt=attempt, failures=failures, cause=cause)

    def begin(self, request: Envelope) -> RolloutState:
        """Start from what the run's plan says; no request starts a rollout."""
        del request
        return self.first

    def evolve(self, state: RolloutState, event: Envelope) -> RolloutState:  # noqa: PLR0911  one arm an event
        """Fold one event."""
        data = event.data
        match data:
            case EnvironmentSeeded():
                return _with(state, is_seeded=True)
            case SessionRequested():
                return _with(state, session_id=event.event_id)
            case SessionClosed() if data.request_id == state.session_id:
                return _with(state, evidence=data.evidence, session_event=event.event_id)
            case VerdictRequested():
                return _with(state, verdict_id=event.event_id)
            case VerdictIssued() if data.request_id == state.verdict_id:
                return _with(state, verdict=data, failed_by=event.event_id)
            case SessionFailed() | RequestParked() if data.request_id == state.session_id and not state.evidence:
                return _with(state, failure=data.failure, failed_by=event.event_id)
            case VerdictFailed() | RequestParked() if data.request_id == state.verdict_id and not state.verdict:
                return _with(state, failure=data.failure, failed_by=event.event_id)
            case RunCancelled() if not state.cancelled and not state.finished:
                return _with(state, cancelled=data, cut_at=event.recorded_at + timedelta(seconds=CANCEL_GRACE_S))
            case RolloutFinished():
                return _with(state, finished=data, finished_id=event.event_id)
            case _:
                return state

    def looked_back(self, state: RolloutState, event: Envelope) -> RolloutState:
        """Fold one event of an earlier attempt: what its session was given."""
        if self._task.input.awaits_input_s is None:
            return state
        data = event.data
        match data:
            case SessionRequested():
                return _with(state, follow_ups=data.task.follow_ups)
            case ActivationStarted() if data.activation == len(state.follow_ups) + 2:
                return _with(state, follow_ups=(*state.follow_ups, data.messages))
            case SessionEndAsked() | InputEnded():
                return _with(state, is_enough=True)
            case _:
                return state

    def taken_over(self, state: RolloutState) -> RolloutState:
        """Nothing of it lives in memory only."""
        return state

    def decide(self, state: RolloutState, now: datetime) -> Sequence[Draft]:  # noqa: PLR0911  one return a case
        """Say what to append now."""
        if state.finished:
            return ()
        if state.failure:
            return (Draft(self._end_failed(state, state.failure, now), state.failed_by),)
        if state.verdict:
            row: RowState = "scored" if state.evidence and state.evidence.answer is not None else "model_final"
            return (Draft(RolloutFinished(state=row, reward=state.verdict.reward), state.failed_by),)
        if state.cancelled and state.cut_at and now >= state.cut_at:
            message = f"run cancelled: {state.cancelled.reason}; what was under way did not end in {CANCEL_GRACE_S:g} s"
            failure = Failure(kind="cancelled", message=message, terminal=True)
            return (Draft(RolloutFinished(state="missing", failure=failure), state.cause),)
        if state.evidence and not state.verdict_id:
            return (Draft(self._verdict(state.evidence), state.session_event),)
        if self._task.environment and not state.is_seeded:
            return (Draft(EnvironmentSeeded(environment=self._task.environment), state.cause, str(state.attempt)),)
        if not state.session_id:
            return (Draft(self._session(state), state.cause, str(state.attempt)),)
        return ()

    def _verdict(self, evidence: Evidence) -> VerdictRequested:
        """Return the request for a verdict; what is run for it runs in a machine like the agent's, if no other is configured."""
        config, is_run = self._config, self._task.input.hands_in != "answer"
        like_the_agents = with_image(config.sandbox, self._task.image)
        sandbox = fitted(config.grading_sandbox or like_the_agents, self._task.grading) if is_run else None
        return VerdictRequested(
            verifier=self._task.verifier,
            verifier_data=self._task.verifier_data,
            evidence=evidence,
            sandbox=sandbox,
        )

    def _session(self, state: RolloutState) -> SessionRequested:
        config = self._config
        sampling = config.responses_create_params
        if config.num_repeats_add_seed:
            sampling = sampling.replaced(seed=(sampling.seed or 0) + self._repeat)
        return SessionRequested(
            task=self._input(state),
            repeat=self._repeat,
            agent=in_time(config.agent, self._task.timeout_s),
            model=config.model,
            sandbox=fitted(with_image(config.sandbox, self._task.image), self._task.machine),
            checkpoints=config.checkpoints,
            install=self._task.install or config.install,
            warm_sandboxes=config.warm_sandboxes,
            sampling=sampling,
            budget=config.budget,
            solution=self._task.solution if isinstance(config.agent, OracleAgent) else None,
            continuation=self._task.input.continues,
        )

    def _input(self, state: RolloutState) -> TaskInput:
        """Return the task as an agent sees it, with what was said to it in earlier attempts."""
        own = self._task.input
        follow_ups = state.follow_ups or own.follow_ups
        return own.model_copy(
            update={"follow_ups": follow_ups, "awaits_input_s": None if state.is_enough else own.awaits_input_s}
        )

    def _end_failed(self, state: RolloutState, failure: Failure, now: datetime) -> RolloutFinished:
        if failure.kind in {"cancelled", "budget_exhausted"}:
            return RolloutFinished(state="missing", failure=failure)
        if failure.kind in HALTING:
            return RolloutFinished(state="retryable", failure=failure, retry_at=now)
        if failure.terminal and failure.kind != "parked":
            return RolloutFinished(state="terminal", failure=failure)
        if state.failures + 1 >= self._config.retries.max_attempts:
            return RolloutFinished(state="exhausted", failure=failure)
        wait_s = retry_wait_s(self._config.retries, state.failures + 1)
        return RolloutFinished(state="retryable", failure=failure, retry_at=now + timedelta(seconds=wait_s))

    def pending(self, state: RolloutState) -> Sequence[Effect]:
        """Wait for the session, then for the verdict; no longer than a cancelled run allows."""
        if state.finished:
            return ()
        cut = (Alarm("cut", state.cut_at),) if state.cut_at else ()
        return (AwaitAnswer("answer"), *cut)

    def is_done(self, state: RolloutState) -> bool:
        """Say whether this attempt is over."""
        return state.finished is not None

    def crashed(self, state: RolloutState, failure: Failure) -> Sequence[Draft]:
        """End the attempt."""
        return () if state.finished else (Draft(RolloutFinished(state="terminal", failure=failure), state.cause),)


def in_time(agent: AgentConfig, task_s: float | None) -> AgentConfig:
    """Return the agent with the time that its task gives it, unless the run says something else than is usual."""
    usual = type(agent).model_fields["timeout_s"].default
    return agent if task_s is None or agent.timeout_s != usual else agent.replaced(timeout_s=task_s)


def retry_wait_s(retries: Retries, failures: int) -> float:
    """Return the wait after the `failures`-th counted failure (from 1), in seconds."""
    return min(retries.backoff_s * 2.0 ** (failures - 1), retries.backoff_max_s)


def _with(state: RolloutState, **changes: object) -> RolloutState:
    return state.replaced(**changes)
