"""The session of an agent that somebody runs somewhere else, as a pure state machine: asked, accepted, answered.

What it is asked in an activation it is asked under one key, by whoever owns the session: an owner that takes it over goes on where the
log says that the agent tells how it is getting on, or asks the same again. There is no sandbox. What the model was asked and answered
is recorded by the gateway, whose word counts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from actors.harness import further
from actors.harness.core import SessionCore, opened, unsupported
from actors.harness.ending import note, note_settled
from adapters.harnesses import remote
from adapters.harnesses.base import Unsupported
from adapters.harnesses.remote import outcome
from gym_bus.event_log import Draft
from gym_bus.runtime.machine import Alarm, AwaitAnswer, Effect
from schemas.base import Event
from schemas.envelope import Envelope
from schemas.events import (
    ActivationCompleted,
    ActivationFailed,
    ActivationStarted,
    LaunchSettled,
    RemoteAccepted,
    RemoteAnswered,
    RemoteAsked,
    RemoteFailed,
    SessionClosed,
    SessionFailed,
    SessionRequested,
)
from schemas.harnesses import RemoteAgent
from schemas.tasks import Evidence
from schemas.values import Failure


@dataclass(frozen=True, slots=True)
class FollowAgent(Effect):
    """Ask the agent, or where it says how it is getting on, until there is something to state."""


@dataclass(frozen=True, slots=True)
class SettleAgent(Effect):
    """Tell an agent that nobody waits for any more to stop, if there is a way; have each of its calls of the model answered."""


class RemoteState(SessionCore):
    """What is known of a session, which is called `session_id` to its agent.

    Its newest activation began at `asked_at`. The agent was `asked` in it by the event `asked_id`, and says at `status_url`, the
    `accepted`-th such address, how it is getting on. `settled` says that its calls are over. `is_clean` is what the agent said of what
    it left running, in all activations; None where it did not say.
    """

    session_id: str
    asked: RemoteAsked | None = None
    asked_id: str | None = None
    accepted: int = 0
    status_url: str | None = None
    answered: RemoteAnswered | None = None
    answered_id: str | None = None
    settled: LaunchSettled | None = None
    is_clean: bool | None = None

    @property
    def agent(self) -> RemoteAgent:
        """Return the agent's configuration."""
        if not isinstance(self.request.agent, RemoteAgent):
            raise TypeError(self.request.agent.type)
        return self.request.agent

    @property
    def fingerprint(self) -> str:
        """Return what the newest input is known by."""
        return self.course.taken[-1].fingerprint

    @property
    def deadline(self) -> datetime:
        """Return when the newest activation has to be over."""
        return self.asked_at + timedelta(seconds=self.agent.timeout_s)

    @property
    def is_unsettled(self) -> bool:
        """Say whether calls of the agent may still be open."""
        return self.asked_id is not None and self.settled is None


class RemoteMachine:
    """See `gym_bus.runtime.machine.Machine`."""

    state_type = RemoteState
    opened_by: type[Event] = SessionRequested

    def begin(self, request: Envelope) -> RemoteState:
        """Start with what is asked; what the agent cannot be given fails before it is asked anything."""
        named = remote.session_id(request.run_id, request.rollout_id, request.attempt, request.recorded_at)
        state = opened(RemoteState, request, session_id=named)
        data = state.request
        try:
            remote.check(state.agent, data.task, data.sandbox, data.install, data.checkpoints, data.warm_sandboxes)
        except Unsupported as error:
            return state.failed(unsupported(str(error)))
        return state

    def evolve(self, state: RemoteState, event: Envelope) -> RemoteState:  # noqa: PLR0911  one arm an event
        """Fold one event of any actor."""
        data = event.data
        match data:
            case RemoteAsked() if data.activation == state.activation and state.asked is None:
                return state.replaced(asked=data, asked_id=event.event_id)
            case RemoteAccepted() if data.asked_id == state.asked_id and data.number == state.accepted + 1:
                return state.replaced(accepted=data.number, status_url=data.status_url)
            case RemoteAnswered() if data.asked_id == state.asked_id and state.answered is None:
                is_clean = False if state.is_clean is False else data.cleanup_confirmed
                return state.replaced(answered=data, answered_id=event.event_id, is_clean=is_clean)
            case RemoteFailed() if data.asked_id == state.asked_id and state.course.is_open(state.activation):
                return state.failed(data.failure)
            case LaunchSettled() if data.launch_id == state.asked_id:
                return note_settled(state, data)
            case ActivationStarted():
                return _begun(state, event, data)
            case _:
                return note(state, event)

    def taken_over(self, state: RemoteState) -> RemoteState:
        """Nothing of a session lives in memory only: its agent goes on, and is asked under the same key."""
        return state

    def decide(self, state: RemoteState, now: datetime) -> Sequence[Draft]:  # noqa: PLR0911  one return a case
        """Say what to append now."""
        if state.is_closed:
            return ()
        if refused := further.refusals(state):
            return refused
        if state.failure:
            return self._wind_up(state, state.failure)
        if state.evidence:
            return (self._close(state, state.evidence),)
        if state.course.is_between:
            return further.go_on(state, now)
        if state.answered:
            return (self._end(state, state.answered, state.settled),) if state.settled else ()
        if now >= state.deadline:
            message = f"the agent at {state.agent.url} was not finished after {state.agent.timeout_s:g} s"
            failure = Failure(kind="agent_timeout", message=message)
            return (Draft(ActivationFailed(activation=state.activation, failure=failure), state.request_id),)
        return () if state.asked else (self._ask(state, now),)

    @staticmethod
    def _ask(state: RemoteState, now: datetime) -> Draft:
        activation = state.activation
        asked = RemoteAsked(
            activation=activation,
            url=state.agent.url,
            session_id=state.session_id,
            idempotency_key=remote.idempotency_key(state.session_id, activation, state.fingerprint),
            model=getattr(state.request.model, "policy_model_name", state.request.model.type),
            timeout_s=round((state.deadline - now).total_seconds(), 3),
        )
        return Draft(asked, state.request_id, str(activation))

    @staticmethod
    def _end(state: RemoteState, answered: RemoteAnswered, settled: LaunchSettled) -> Draft:
        found, activation = outcome(answered, settled), state.activation
        if isinstance(found, Failure):
            return Draft(ActivationFailed(activation=activation, failure=found), state.answered_id)
        return Draft(ActivationCompleted(activation=activation, evidence=found), state.answered_id)

    @staticmethod
    def _wind_up(state: RemoteState, failure: Failure) -> Sequence[Draft]:
        """State the end of an activation that was asked for first, with which the agent's token ends; then that of the session."""
        if state.is_unsettled:
            failed = Draft(ActivationFailed(activation=state.activation, failure=failure), state.request_id)
            return (failed,) if state.course.is_open(state.activation) else ()
        over = SessionFailed(request_id=state.request_id, failure=failure, cleanup_confirmed=state.is_clean)
        return (Draft(over, state.request_id),)

    @staticmethod
    def _close(state: RemoteState, evidence: Evidence) -> Draft:
        closed = SessionClosed(
            request_id=state.request_id,
            evidence=evidence,
            activations=state.course.record(),
            cleanup_confirmed=state.is_clean,
        )
        return Draft(closed, state.activation_id)

    def pending(self, state: RemoteState) -> Sequence[Effect]:
        """Say what must be going on: the agent is asked, the clock is looked at; at the end its calls are settled."""
        if state.is_closed:
            return ()
        waiting = AwaitAnswer("answers")
        if state.course.is_between and not (state.failure or state.evidence):
            return further.waiting(state)
        if state.failure or state.answered:
            return (waiting, SettleAgent(f"settle-{state.asked_id}")) if state.is_unsettled else (waiting,)
        if state.asked is None:
            return (waiting,)
        return (
            waiting,
            Alarm("deadline", state.deadline),
            FollowAgent(f"agent-{state.asked_id}-{state.accepted}"),
        )

    def is_done(self, state: RemoteState) -> bool:
        """Say whether the session has been answered."""
        return state.is_closed

    def crashed(self, state: RemoteState, failure: Failure) -> Sequence[Draft]:
        """Fail the activation; the session then winds up as usual. It is over at once if that broke down too."""
        if state.is_closed or (state.failure and state.course.is_open(state.activation)):
            return ()
        if state.failure:
            over = SessionFailed(request_id=state.request_id, failure=state.failure, cleanup_confirmed=state.is_clean)
            return (Draft(over, state.request_id),)
        return (Draft(ActivationFailed(activation=state.activation, failure=failure), state.request_id),)


def _begun(state: RemoteState, event: Envelope, data: ActivationStarted) -> RemoteState:
    """Note that the next input is taken, for which the agent is asked anew."""
    taken = further.begun(state, event, data)
    if taken is state:
        return state
    fresh = {"asked": None, "asked_id": None, "accepted": 0, "status_url": None, "answered": None, "answered_id": None}
    return taken.replaced(settled=None, **fresh)
