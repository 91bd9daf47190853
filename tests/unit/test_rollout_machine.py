"""One attempt at a rollout: session, verdict, end; and which ends are tried again."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, get_args

import pytest

from actors.collector.rollout import RolloutMachine, RolloutState, retry_wait_s
from gym_bus.runtime.machine import AwaitAnswer
from schemas.base import Event
from schemas.config import Retries
from schemas.environment import BuiltIn, Environment
from schemas.events import (
    ActivationStarted,
    EnvironmentSeeded,
    InputEnded,
    RequestParked,
    RolloutFinished,
    SessionClosed,
    SessionFailed,
    SessionRequested,
    VerdictFailed,
    VerdictIssued,
    VerdictRequested,
)
from schemas.tasks import Evidence, fingerprint_of
from schemas.values import HALTING, Failure, FailureKind, Message, Sampling
from tests.support.examples import AT
from tests.support.machine_case import Case, envelope
from tests.support.world import config, sum_tasks

TASK = sum_tasks(3)[2]
EVIDENCE = Evidence(answer="<answer>17</answer>", stop_reason="stop", turns=2)
RETRIES = Retries(max_attempts=3, backoff_s=2, backoff_max_s=5)


def new(attempt: int = 1, failures: int = 0, repeat: int = 1, **changes: Any) -> Case[RolloutState]:
    machine = RolloutMachine(
        TASK, repeat, config(retries=RETRIES, **changes), attempt=attempt, failures=failures, cause="run"
    )
    return Case(machine, machine.first)


def in_session(**of: Any) -> Case[RolloutState]:
    case = new(**of)
    assert [type(e) for e in case.decided] == [SessionRequested]
    return case.given(("session", case.decided[0]))


def closed(evidence: Evidence = EVIDENCE, **of: Any) -> Case[RolloutState]:
    case = in_session(**of).given(("closed", SessionClosed(request_id="session", evidence=evidence)))
    assert [type(e) for e in case.decided] == [VerdictRequested]
    return case.given(("verdict", case.decided[0]))


def issued(reward: float = 1.0) -> VerdictIssued:
    return VerdictIssued(request_id="verdict", reward=reward, evidence_digest="d", verifier_version="sum-1")


def parked(request_id: str) -> RequestParked:
    failure = Failure(kind="parked", message="nobody could", terminal=True)
    return RequestParked(request_id=request_id, request_type="x", tries=8, failure=failure)


def failed(kind: str, *, terminal: bool = False) -> Failure:
    return Failure(kind=kind, message=kind, terminal=terminal)  # type: ignore[arg-type]


def test_it_starts_with_a_session_for_its_task() -> None:
    """The session is told the task, not what only the verifier may see."""
    session = new().decided[0]
    assert isinstance(session, SessionRequested)
    assert (session.task, session.repeat) == (TASK.input, 1)
    assert "17" not in session.task.model_dump_json()
    assert "verifier" not in session.model_dump_json()
    assert new().drafts[0].cause == "run"
    assert new(attempt=2).drafts[0].tag != new().drafts[0].tag


def test_an_environment_is_seeded_once_before_the_session() -> None:
    """How its tools are executed is the verifier's alone."""
    environment = Environment(tools={"note": BuiltIn(tool="note", data={"secret": "17"})})
    task = TASK.model_copy(update={"environment": environment})
    machine = RolloutMachine(task, 1, config(), attempt=1, failures=0, cause="run")
    case = Case(machine, machine.first).then(EnvironmentSeeded(environment=environment))
    (session,) = case.decided
    assert isinstance(session, SessionRequested)
    assert "17" not in session.model_dump_json()


@pytest.mark.parametrize(("seed", "expected"), [(None, 3), (7, 10)])
def test_repeats_differ_by_their_seed_if_asked(seed: int | None, expected: int) -> None:
    """Each repeat has its own seed, the same at every attempt."""
    case = new(repeat=3, num_repeats_add_seed=True, responses_create_params=Sampling(seed=seed))
    session = case.decided[0]
    assert isinstance(session, SessionRequested)
    assert session.sampling.seed == expected


def test_a_closed_session_is_graded() -> None:
    """The verifier gets the evidence and what it needs to know; the session's end is the cause."""
    case = in_session().given(("closed", SessionClosed(request_id="session", evidence=EVIDENCE)))
    case.then(VerdictRequested(verifier="sum", verifier_data=TASK.verifier_data, evidence=EVIDENCE))
    assert case.drafts[0].cause == "closed"


@pytest.mark.parametrize(("answer", "state"), [("<answer>4</answer>", "scored"), ("", "scored"), (None, "model_final")])
def test_a_verdict_ends_it(answer: str | None, state: str) -> None:
    """The reward is the verdict's; without an answer it is the model's own end."""
    case = closed(Evidence(answer=answer, stop_reason="stop", turns=1)).given(issued(0.25))
    case = case.then(RolloutFinished(state=state, reward=0.25))  # type: ignore[arg-type]
    assert case.is_done
    assert case.effects == []


def test_while_others_work_it_waits() -> None:
    """There is nothing to append and only an answer to wait for."""
    for case in (in_session(), closed()):
        assert case.then_nothing().effects == [AwaitAnswer("answer")]


@pytest.mark.parametrize("kind", get_args(FailureKind))
@pytest.mark.parametrize("terminal", [False, True])
@pytest.mark.parametrize("failures", [0, 1, 2])
def test_how_a_failed_session_counts(kind: str, terminal: bool, failures: int) -> None:
    """Cancelled, or out of its run's budget: missing; what halts is tried again and uses up nothing; terminal ends; else retried."""
    failure = failed(kind, terminal=terminal)
    case = in_session(failures=failures, attempt=failures + 1).given(
        SessionFailed(request_id="session", failure=failure)
    )
    (end,) = case.decided
    assert isinstance(end, RolloutFinished)
    assert end.reward is None
    assert end.failure == failure
    if kind in {"cancelled", "budget_exhausted"}:
        expected: tuple[str, Any] = ("missing", None)
    elif kind in HALTING:
        expected = ("retryable", AT)
    elif terminal and kind != "parked":
        expected = ("terminal", None)
    elif failures == 2:
        expected = ("exhausted", None)
    else:
        expected = ("retryable", AT + timedelta(seconds=2.0 * 2**failures))
    assert (end.state, end.retry_at) == expected


def test_a_failed_verdict_gives_no_reward() -> None:
    """Infrastructure that cannot grade is a failure with a class, never a 0."""
    for answer in (VerdictFailed(request_id="verdict", failure=failed("verifier_error")), parked("verdict")):
        (end,) = closed().given(answer).decided
        assert isinstance(end, RolloutFinished)
        assert (end.state, end.reward) == ("retryable", None)


def test_a_parked_session_is_tried_again() -> None:
    """What nobody could finish used up an attempt, no more."""
    (end,) = in_session().given(parked("session")).decided
    assert isinstance(end, RolloutFinished)
    assert end.state == "retryable"


def test_answers_to_others_are_ignored() -> None:
    """Only what names the own request counts."""
    strangers = (
        SessionClosed(request_id="other", evidence=EVIDENCE),
        SessionFailed(request_id="other", failure=failed("internal")),
        parked("other"),
        VerdictFailed(request_id="other", failure=failed("internal")),
        issued().model_copy(update={"request_id": "other"}),
    )
    assert in_session().given(*strangers).state == in_session().state
    assert closed().given(*strangers).state == closed().state


def test_what_comes_after_an_answer_does_not_unsay_it() -> None:
    """A session that closed cannot fail afterwards, a verdict that was issued cannot either."""
    late = closed().given(SessionFailed(request_id="session", failure=failed("internal")), parked("session"))
    assert late.state == closed().state
    graded = closed().given(issued())
    refused = VerdictFailed(request_id="verdict", failure=failed("internal"))
    assert graded.given(refused, parked("verdict")).state == graded.state


def test_after_its_end_nothing_follows() -> None:
    """One ending for each attempt."""
    over = closed().given(issued()).given(RolloutFinished(state="scored", reward=1.0))
    assert over.then_nothing().crashed() == []
    assert over.given(VerdictFailed(request_id="verdict", failure=failed("internal"))).then_nothing()


def test_a_defect_of_ours_ends_it_without_a_reward() -> None:
    """Terminal, with the defect as the failure."""
    (end,) = closed().crashed("broken")
    assert isinstance(end, RolloutFinished)
    assert (end.state, end.reward, end.retry_at) == ("terminal", None, None)
    assert end.failure is not None
    assert end.failure.message == "broken"


def test_waits_double_up_to_their_bound() -> None:
    """2, 4, then 5 for ever."""
    assert [retry_wait_s(RETRIES, n) for n in (1, 2, 3, 4, 400)] == [2, 4, 5, 5, 5]


def said(words: str) -> tuple[Message, ...]:
    return (Message(role="user", content=words),)


def started(number: int, words: str) -> ActivationStarted:
    return ActivationStarted(activation=number, fingerprint=fingerprint_of(said(words)), messages=said(words))


@pytest.mark.parametrize("is_over", [False, True])
def test_what_was_said_to_an_attempt_is_given_to_the_next(is_over: bool) -> None:
    """Each input once, in order, also by an attempt that did not come as far; it waits for more unless there was an end."""
    given = TASK.input.model_copy(update={"follow_ups": (said("own"),), "awaits_input_s": 60.0})
    task = TASK.model_copy(update={"input": given})
    again = given.model_copy(update={"follow_ups": (said("own"), said("first"), said("second"))})
    (requested,) = new().decided
    assert isinstance(requested, SessionRequested)
    requested = requested.replaced(task=given)
    machine = RolloutMachine(task, 1, config(), attempt=3, failures=2, cause="run")
    end = [InputEnded(by="timeout")] if is_over else []
    before: list[Event] = [requested, started(2, "own"), started(3, "first"), started(4, "second"), *end]
    before += [requested.replaced(task=again), started(2, "own"), started(3, "first")]
    state = machine.first
    for number, data in enumerate(before):
        state = machine.looked_back(state, envelope(data, f"e{number}"))
    (asked,) = Case(machine, state).decided
    assert isinstance(asked, SessionRequested)
    assert asked.task == (again.model_copy(update={"awaits_input_s": None}) if is_over else again)


def test_a_task_that_waits_for_nobody_is_the_same_in_every_attempt() -> None:
    given = TASK.input.model_copy(update={"follow_ups": (said("own"),)})
    task = TASK.model_copy(update={"input": given})
    machine = RolloutMachine(task, 1, config(), attempt=2, failures=1, cause="run")
    state = machine.looked_back(machine.first, envelope(started(2, "own"), "e"))
    (asked,) = Case(machine, state).decided
    assert isinstance(asked, SessionRequested)
    assert asked.task == given
