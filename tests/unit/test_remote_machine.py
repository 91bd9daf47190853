"""The session of an agent that runs somewhere else: asked under one key, followed, settled; and what it cannot be given."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from actors.harness.remote import FollowAgent, RemoteMachine, RemoteState
from schemas.config import ScriptedModel
from schemas.environment import ToolGrant
from schemas.events import (
    ActivationCompleted,
    ActivationFailed,
    ActivationStarted,
    LaunchSettled,
    RemoteAccepted,
    RemoteAnswered,
    RemoteAsked,
    RemoteFailed,
    RunCancelled,
    SessionClosed,
    SessionFailed,
    SessionRequested,
)
from schemas.harnesses import RemoteAgent
from schemas.readiness import Install
from schemas.sandboxes import Bubblewrap, Checkpoints, Inline
from schemas.tasks import Evidence, TaskInput
from schemas.values import Failure, Message, Sampling
from tests.support.examples import AT, EXAMPLES, example
from tests.support.machine_case import Case, envelope

FIRST, NEXT = (Message(role="user", content="Do it."),), (Message(role="user", content="And this."),)
TASK, BOTH = TaskInput(task_id="t", messages=FIRST), TaskInput(task_id="t", messages=FIRST, follow_ups=(NEXT,))
AGENT = RemoteAgent(url="https://agent.example/do", timeout_s=100, resumes=True)
ANSWERED = RemoteAnswered(asked_id="ask", answer="Done.")
SETTLED = LaunchSettled(launch_id="ask", calls=2, completed=2)
TAKEN = RemoteAccepted(asked_id="ask", status_url="https://agent.example/do/1")
BROKEN = Failure(kind="agent_failed", message="x")


def new(*, at: Any = AT, run_id: str = "r1", **changes: Any) -> Case[RemoteState]:
    """Return a session that has just been asked for."""
    values: dict[str, Any] = {
        "task": TASK,
        "repeat": 0,
        "agent": AGENT,
        "model": ScriptedModel(),
        "sandbox": Bubblewrap(),
    }
    request = SessionRequested(**{**values, "sampling": Sampling(), **changes})
    asked = envelope(request, "session").replaced(recorded_at=at, run_id=run_id)
    return Case(RemoteMachine(), RemoteMachine().begin(asked))


def asked(**changes: Any) -> Case[RemoteState]:
    """Return a session whose agent has been asked."""
    case = new(**changes)
    (ask,) = case.decided
    return case.given(("ask", ask))


def followed(case: Case[RemoteState]) -> list[str]:
    return [effect.id for effect in case.effects if isinstance(effect, FollowAgent)]


def test_it_is_asked_once_and_its_end_is_the_sessions() -> None:
    """Its calls are settled while its token is still good; the turns are those that the gateway saw."""
    case = asked().then_nothing()
    assert case.does() == {"AwaitAnswer", "Alarm", "FollowAgent"}
    case = case.given(("end", ANSWERED)).then_nothing()
    assert case.does() == {"AwaitAnswer", "SettleAgent"}
    case = case.given(SETTLED)
    (completed,) = case.decided
    assert completed == ActivationCompleted(
        activation=1, evidence=Evidence(answer="Done.", stop_reason="stop", turns=2)
    )
    (closed,) = case.given(completed).decided
    assert isinstance(closed, SessionClosed)
    assert closed.cleanup_confirmed is None
    assert case.given(completed, closed).is_done


def test_who_takes_it_over_asks_under_the_same_key_or_looks_where_it_was_told_to() -> None:
    case = asked()
    (ask,) = new().decided
    assert isinstance(ask, RemoteAsked)
    over = case.taken_over().then_nothing()
    assert over.state.asked == ask
    assert followed(over) == followed(case)
    taken = case.given(TAKEN).taken_over().then_nothing()
    assert taken.state.status_url == TAKEN.status_url
    assert followed(taken) != followed(case), "what has just begun to look does not go on asking"
    assert taken.given(TAKEN).state == taken.state


def test_a_key_is_that_of_no_other_activation_attempt_or_log() -> None:
    """Two repeats of a task have the same input; a run of the same name may be in another log."""
    others = [new(), new(task=BOTH), new(run_id="r2"), new(at=AT + timedelta(seconds=1))]
    sessions = [ask.session_id for case in others for ask in case.decided if isinstance(ask, RemoteAsked)]
    assert len(set(sessions)) == 3
    case = asked(task=BOTH).given(("end", ANSWERED), SETTLED)
    case = case.given(("done", case.decided[0]))
    case = case.given(("next", case.decided[0]))
    (second,) = case.decided
    assert isinstance(second, RemoteAsked)
    assert case.state.asked is None
    (first,) = new(task=BOTH).decided
    assert isinstance(first, RemoteAsked)
    assert second.session_id == first.session_id
    assert second.idempotency_key != first.idempotency_key


def test_a_further_input_is_asked_for_anew_and_nothing_of_the_one_before_counts_in_it() -> None:
    case = asked(task=BOTH).given(TAKEN, ("end", ANSWERED), SETTLED)
    case = case.given(("done", case.decided[0]))
    (started,) = case.decided
    assert started == ActivationStarted(activation=2, fingerprint=started.fingerprint, messages=NEXT)  # type: ignore[attr-defined]
    case = case.given(("next", started))
    case = case.given(("again", case.decided[0])).given(ANSWERED, SETTLED, TAKEN).then_nothing()
    assert (case.state.status_url, case.state.answered) == (None, None)
    case = case.given(
        RemoteAnswered(asked_id="again", answer="Both."), LaunchSettled(launch_id="again", calls=1, completed=1)
    )
    case = case.given(case.decided[0])
    (closed,) = case.decided
    assert isinstance(closed, SessionClosed)
    assert (closed.evidence.answer, closed.evidence.turns, len(closed.activations)) == ("Both.", 3, 2)


@pytest.mark.parametrize(
    ("event", "kind"),
    [
        (RemoteFailed(asked_id="ask", failure=BROKEN), "agent_failed"),
        (RunCancelled(request_id="x", reason="enough"), "cancelled"),
    ],
)
def test_an_agent_nobody_waits_for_loses_its_token_before_its_calls_are_settled(event: Any, kind: str) -> None:
    case = asked().given(TAKEN, event)
    (failed,) = case.decided
    assert isinstance(failed, ActivationFailed)
    case = case.given(failed).then_nothing()
    assert case.does() == {"AwaitAnswer", "SettleAgent"}
    assert case.state.answered is None, "so it is told to stop"
    (end,) = case.given(SETTLED).decided
    assert isinstance(end, SessionFailed)
    assert end.failure.kind == kind


def test_its_time_counts_from_the_beginning_of_the_activation() -> None:
    case = asked()
    assert case.after_s(99).decided == []
    (failed,) = case.after_s(100).decided
    assert isinstance(failed, ActivationFailed)
    assert failed.failure.kind == "agent_timeout"
    assert case.given(ANSWERED).after_s(200).decided == [], "it was in time, and its calls are being settled"


@pytest.mark.parametrize(
    ("answered", "settled", "means"),
    [
        ({"cleanup_confirmed": False}, {}, "could not be ended"),
        ({"cleanup_confirmed": False}, {"budget": "rollout", "limit": "model_calls"}, "could not be ended"),
        ({"failure": BROKEN}, {}, "x"),
        ({}, {"completed": 0}, "never heard"),
        ({}, {"failure": Failure(kind="provider_auth", message="no key")}, "no key"),
        ({}, {"budget": "run", "limit": "cost_usd"}, "budget of the whole run"),
    ],
)
def test_what_it_says_makes_no_end_of_a_failure(answered: Any, settled: Any, means: str) -> None:
    case = asked().given(("end", ANSWERED.replaced(**answered)), SETTLED.replaced(**settled))
    ends = [data for data in (*case.decided, *case.given(*case.decided).decided) if isinstance(data, SessionFailed)]
    assert means in ends[0].failure.message
    assert ends[0].cleanup_confirmed is answered.get("cleanup_confirmed")


def test_a_used_up_budget_and_a_bound_of_steps_are_graded_as_they_stand() -> None:
    """Inputs that are left are not given."""
    for answered, settled, reason in (
        ({}, {"budget": "rollout", "limit": "model_calls"}, "budget:model_calls"),
        ({"failure": BROKEN}, {"budget": "rollout", "limit": "model_calls"}, "budget:model_calls"),
        ({"stop_reason": "max_steps"}, {}, "max_steps"),
    ):
        case = asked(task=BOTH).given(ANSWERED.replaced(**answered), SETTLED.replaced(**settled))
        case = case.given(case.decided[0])
        (closed,) = case.decided
        assert isinstance(closed, SessionClosed)
        assert closed.evidence.stop_reason == reason


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"task": TASK.replaced(hands_in="files")}, "files of the workspace"),
        ({"task": TASK.replaced(hands_in="machine")}, "codex_agent"),
        ({"install": Install(command="true")}, "install"),
        ({"sandbox": Inline()}, "sandbox"),
        ({"checkpoints": Checkpoints(when="never")}, "checkpoints"),
        ({"warm_sandboxes": 2}, "warm_sandboxes"),
        ({"task": BOTH, "agent": AGENT.replaced(resumes=False)}, "agent.resumes=true"),
        ({"task": TASK.replaced(grants=(ToolGrant(name="g"),)), "agent": AGENT.replaced(grants=("http",))}, "mcp"),
    ],
)
def test_what_it_cannot_be_given_fails_before_it_is_asked(changes: Any, said: str) -> None:
    (failed,) = new(**changes).decided
    assert isinstance(failed, SessionFailed)
    assert (failed.failure.kind, failed.failure.stage, failed.failure.terminal) == ("unsupported", "seed", True)
    assert said in failed.failure.message


def test_a_handler_that_broke_down_ends_the_session() -> None:
    case = asked()
    (failed,) = case.crashed()
    (end,) = case.given(failed, SETTLED).decided
    assert isinstance(end, SessionFailed)
    assert end.failure.kind == "internal"
    assert case.given(failed, SETTLED, end).crashed() == []
    assert case.given(failed).crashed() == [end], "settling that breaks down is not begun for ever"


def test_a_state_survives_its_snapshot() -> None:
    for case in (new(), asked(), asked().given(TAKEN, ANSWERED, SETTLED)):
        assert RemoteState.model_validate_json(case.state.model_dump_json()) == case.state


def test_no_event_of_anybody_breaks_it() -> None:
    for case in (new(), asked(task=BOTH), asked().given(TAKEN, ANSWERED)):
        for data in EXAMPLES.values():
            after = case.given(example(data).replaced(attempt=1))
            assert after.given(example(data).replaced(attempt=1)).state == after.state, data.TYPE
            assert [*after.drafts] == [*after.drafts]
            assert after.effects == after.effects
