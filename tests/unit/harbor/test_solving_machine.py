"""A session without a model: the solution is run once and graded, or nothing is done; and how it winds up when something fails."""

from __future__ import annotations

from typing import Any

import pytest

from actors.harness.core import MAX_STALE_TRIES, OVERTIME_S
from actors.harness.solving import SolvingMachine, SolvingState
from schemas.config import ScriptedModel
from schemas.events import (
    ActivationCompleted,
    ActivationFailed,
    CheckpointRequested,
    CheckpointSaved,
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
    ToolCallRequested,
)
from schemas.harnesses import NopAgent, OracleAgent
from schemas.sandboxes import Bubblewrap
from schemas.tasks import Solution, Staged, TaskInput
from schemas.values import BlobRef, Failure, Message, Sampling
from tests.support.machine_case import Case, envelope

SOLUTION = Solution(staged=Staged(at="/solution", files={"solve.sh": "eA=="}), command="sh /solution/solve.sh")
CREATED = SandboxCreated(request_id="box", place="h3", provider="bubblewrap")
RAN = ToolCallCompleted(request_id="run", exit_code=3, output="so far", output_bytes=6, duration_s=1.0)
REF = BlobRef(sha256="cd" * 32, size=3)
SAVED = CheckpointSaved(request_id="keep", snapshot=REF, files=1, bytes=3, stored_bytes=3, duration_s=0.1)
CLOSING = ("closing", SandboxCloseRequested())
GONE = SandboxDestroyed(request_id="closing")


def new(**changes: Any) -> Case[SolvingState]:
    """Return a session that has just been asked for."""
    values: dict[str, Any] = {
        "task": TaskInput(task_id="t", messages=(Message(role="user", content="Do it."),), hands_in="machine"),
        "repeat": 0,
        "agent": OracleAgent(timeout_s=100),
        "model": ScriptedModel(),
        "sandbox": Bubblewrap(),
        "sampling": Sampling(),
        "solution": SOLUTION,
        **changes,
    }
    return Case(SolvingMachine(), SolvingMachine().begin(envelope(SessionRequested(**values), "session")))


def running() -> Case[SolvingState]:
    """Return a session whose solution runs."""
    case = new()
    case = case.given(("box", case.decided[0]), CREATED)
    return case.given(("run", case.decided[0]))


def types(case: Case[SolvingState]) -> list[type]:
    return [type(data) for data in case.decided]


def test_the_solution_is_run_once_and_what_it_left_is_handed_in() -> None:
    """Its exit code does not matter; the machine is given back before there is anything to grade."""
    case = new()
    (wanted,) = case.decided
    assert isinstance(wanted, SandboxRequested)
    assert wanted.staged == SOLUTION.staged
    case = case.given(("box", wanted), CREATED)
    (run,) = case.decided
    assert isinstance(run, ToolCallRequested)
    assert (run.command, run.tool, 0 < run.timeout_s <= 100) == (SOLUTION.command, "solution", True)
    case = case.given(("run", run))
    assert case.decided == []
    case = case.given(RAN)
    (completed,) = case.decided
    assert isinstance(completed, ActivationCompleted)
    assert (completed.evidence.answer, completed.evidence.stop_reason) == ("so far", "exit:3")
    case = case.given(("done", completed))
    assert types(case) == [CheckpointRequested]
    case = case.given(("keep", case.decided[0]), SAVED)
    assert types(case) == [SandboxCloseRequested]
    case = case.given(CLOSING, GONE)
    (closed,) = case.decided
    assert isinstance(closed, SessionClosed)
    assert (closed.evidence.files, closed.evidence.turns) == (REF, 0)
    assert case.given(closed).decided == []


def test_nothing_is_done_without_a_machine() -> None:
    case = new(agent=NopAgent(), solution=None)
    (completed,) = case.decided
    assert isinstance(completed, ActivationCompleted)
    (closed,) = case.given(("done", completed)).decided
    assert isinstance(closed, SessionClosed)
    assert (closed.evidence.answer, closed.evidence.files) == ("nothing was done", None)


def test_a_task_without_a_solution_fails_before_a_machine_is_made() -> None:
    (failed,) = new(solution=None).decided
    assert isinstance(failed, SessionFailed)
    assert (failed.failure.kind, failed.failure.terminal) == ("unsupported", True)


def test_a_stale_command_is_asked_for_again_and_not_for_ever() -> None:
    case = running()
    stale = Failure(kind="stale", message="another owner")
    for tries in range(2, MAX_STALE_TRIES + 1):
        case = case.given(ToolCallFailed(request_id="run", failure=stale))
        (again,) = case.decided
        assert isinstance(again, ToolCallRequested)
        assert again.tries == tries
        case = case.given(("run", again))
    case = case.given(ToolCallFailed(request_id="run", failure=stale))
    assert types(case) == [SandboxCloseRequested]


@pytest.mark.parametrize(
    ("event", "kind"),
    [
        (ToolCallLost(request_id="run", reason="gone"), "tool_lost"),
        (ToolCallFailed(request_id="run", failure=Failure(kind="sandbox_lost", message="x")), "sandbox_lost"),
        (SandboxLost(reason="gone"), "sandbox_lost"),
        (RunCancelled(request_id="q", reason="enough"), "cancelled"),
    ],
)
def test_what_breaks_off_is_a_failure_and_the_machine_is_given_back(event: Any, kind: str) -> None:
    case = running().given(event)
    assert types(case) == [SandboxCloseRequested]
    (failed,) = case.given(CLOSING, GONE).decided
    assert isinstance(failed, SessionFailed)
    assert failed.failure.kind == kind


def test_a_machine_that_is_not_made_fails_the_session() -> None:
    case = new()
    failure = Failure(kind="sandbox_create_failed", message="no")
    case = case.given(("box", case.decided[0]), SandboxFailed(request_id="box", failure=failure))
    (failed,) = case.decided
    assert isinstance(failed, SessionFailed)
    assert failed.failure == failure


def test_a_solution_out_of_time_is_no_reward() -> None:
    """Neither one that was ended in the sandbox, nor one of which nothing is heard."""
    ended = running().given(RAN.replaced(exit_code=None, ended_by="timeout"))
    silent = running().after_s(100 + OVERTIME_S)
    for case in (ended, silent):
        (failed,) = case.decided
        assert isinstance(failed, ActivationFailed)
        assert failed.failure.kind == "agent_timeout"
        assert types(case.given(failed)) == [SandboxCloseRequested]
