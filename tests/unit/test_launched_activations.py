"""The session of an agent's own program that is given further inputs: each is a launch of its own, in the program's same session."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from actors.harness.core import OVERTIME_S
from actors.harness.launched import NAMELESS, LaunchedState
from adapters.harnesses.table import HARNESSES
from schemas.events import (
    ActivationCompleted,
    ActivationFailed,
    ActivationStarted,
    CheckpointFailed,
    CheckpointRequested,
    CheckpointSaved,
    LaunchEnded,
    LaunchLost,
    LaunchRequested,
    LaunchSettled,
    LaunchTold,
    RunCancelled,
    SandboxCloseRequested,
    SandboxDestroyed,
    SandboxRequested,
    SessionClosed,
    SessionFailed,
)
from schemas.harnesses import CodexAgent, MiniSweAgent, ToldItem
from schemas.sandboxes import Bubblewrap, Checkpoints
from schemas.tasks import TaskInput, fingerprint_of
from schemas.values import BlobRef, Failure, Message
from tests.support.examples import AT
from tests.support.machine_case import Case, envelope
from tests.unit.test_launched_machine import CREATED, REACHING, launched, lost, new, types

NEXT = (Message(role="user", content="And this."),)
TASK = TaskInput(task_id="t", messages=(Message(role="user", content="Do it."),), hands_in="files", follow_ups=(NEXT,))
FILES, HOME = BlobRef(sha256="cd" * 32, size=3), BlobRef(sha256="ef" * 32, size=4)
SAVED = CheckpointSaved(request_id="keep", snapshot=FILES, home=HOME, files=1, bytes=3, stored_bytes=3, duration_s=0.1)
FULL = Failure(kind="checkpoint_failed", message="too large", stage="tool", terminal=True)


def ran(launch: str = "go", replies: int = 3, session: str | None = "s-1", **settled: Any) -> tuple[Any, ...]:
    """Return what is heard of a program that ends well."""
    named = (ToldItem(kind="session", id=session),) if session else ()
    said = (ToldItem(kind="said", name="assistant", text=f"Done by {launch}."), ToldItem(kind="reply_done"))
    return (
        LaunchTold(launch_id=launch, part=1, items=(*named, *said)),
        LaunchEnded(request_id=launch, ended_by="exit", exit_code=0, duration_s=2.0),
        LaunchSettled(launch_id=launch, calls=replies, completed=replies, **settled),
    )


def kept(**changes: Any) -> Case[LaunchedState]:
    """Return a session whose first activation is about to be completed."""
    case = launched(**{"task": TASK, **changes}).given(*ran())
    return case.given(("keep", case.decided[0]), SAVED)


def started(**changes: Any) -> Case[LaunchedState]:
    """Return a session that has taken its second input."""
    case = kept(**changes)
    case = case.given(("done", case.decided[0]))
    return case.given(("next", case.decided[0]))


def test_both_the_workspace_and_the_programs_own_files_are_kept_before_the_first_is_completed() -> None:
    """So nothing is lost between two inputs."""
    case = launched(task=TASK).given(*ran())
    (wanted,) = case.decided
    assert wanted == CheckpointRequested(number=1, with_home=True)
    case = case.given(("keep", wanted))
    assert case.decided == []
    (completed,) = case.given(SAVED).decided
    assert isinstance(completed, ActivationCompleted)
    assert (completed.activation, completed.session_id, completed.evidence.turns) == (1, "s-1", 3)


def test_the_second_input_is_stated_before_the_program_is_launched_for_it() -> None:
    """It is told what is new, and goes on with its own session in the same machine."""
    case = kept()
    case = case.given(("done", case.decided[0]))
    (begun,) = case.decided
    assert begun == ActivationStarted(activation=2, fingerprint=fingerprint_of(NEXT), messages=NEXT)
    case = case.given(("next", begun))
    (launch,) = case.decided
    assert isinstance(launch, LaunchRequested)
    assert (launch.activation, launch.number, launch.prompt, launch.resume) == (2, 1, "And this.", "s-1")
    assert case.given(("go2", launch)).decided == []
    first = launched(task=TASK)
    assert first.state.resume is None


def test_the_session_closes_with_the_last_answer_and_all_turns() -> None:
    case = started()
    case = case.given(("go2", case.decided[0]), *ran("go2", 2, None))
    (completed,) = case.decided
    assert isinstance(completed, ActivationCompleted)
    assert (completed.activation, completed.evidence.turns, completed.session_id) == (2, 2, "s-1")
    case = case.given(("done2", completed))
    assert case.decided == [CheckpointRequested(number=1)], "what is handed in"
    files = SAVED.replaced(request_id="files", home=None)
    case = case.given(("files", case.decided[0]), files)
    case = case.given(("closing", case.decided[0]), SandboxDestroyed(request_id="closing"))
    (closed,) = case.decided
    assert isinstance(closed, SessionClosed)
    assert (closed.evidence.answer, closed.evidence.turns, closed.evidence.files) == ("Done by go2.", 5, FILES)
    assert [(done.activation, done.turns) for done in closed.activations] == [(1, 3), (2, 2)]


def test_each_activation_has_its_own_time() -> None:
    """Counted from when its input was taken, what is done before the launch included."""
    case = kept(agent=CodexAgent(timeout_s=100)).after_s(90)
    case = case.given(("done", case.decided[0]))
    next_at = AT + timedelta(seconds=90)
    case = case.given(envelope(case.decided[0], "next").replaced(recorded_at=next_at)).after_s(30)
    (launch,) = case.decided
    assert isinstance(launch, LaunchRequested)
    assert launch.timeout_s == 70
    case = case.given(("go2", launch))
    assert case.machine.decide(case.state, next_at + timedelta(seconds=100 + OVERTIME_S - 1)) == ()
    (late,) = case.machine.decide(case.state, next_at + timedelta(seconds=100 + OVERTIME_S))
    assert late.data == ActivationFailed(
        activation=2,
        failure=Failure(kind="agent_timeout", message="the session was not finished after 100 s"),
    )


@pytest.mark.parametrize("when", ["before", "between", "during"])
def test_a_lost_machine_is_followed_by_one_with_all_that_was_kept(when: str) -> None:
    """Wherever it is lost after the checkpoint: the second activation begins there, and the first is never begun again."""
    case = kept() if when == "before" else started()
    if when == "during":
        case = case.given(("go2", case.decided[0]))
    case = case.given(lost(1))
    for name in ("done", "next") if when == "before" else ():
        case = case.given((name, case.decided[0]))
    back, wanted = case.decided
    assert back == SandboxCloseRequested(number=1)
    assert isinstance(wanted, SandboxRequested)
    assert (wanted.number, wanted.restore, wanted.restore_home) == (2, FILES, HOME)
    case = case.given(("back", back), ("box2", wanted), CREATED.replaced(request_id="box2"))
    (launch,) = case.decided
    assert isinstance(launch, LaunchRequested)
    assert (launch.activation, launch.number, launch.resume) == (2, 2, "s-1")


def test_a_machine_that_is_lost_before_its_files_were_kept_begins_the_first_input_again() -> None:
    """What the checkpoint's own failure says of it is not waited for."""
    gone = CheckpointFailed(request_id="keep", failure=Failure(kind="sandbox_lost", message="gone"))
    for losses in ((lost(1), gone), (gone, lost(1))):
        case = launched(task=TASK).given(*ran())
        case = case.given(("keep", case.decided[0]), *losses)
        back, wanted = case.decided
        assert isinstance(wanted, SandboxRequested)
        assert wanted.restore is None
        case = case.given(("back", back), ("box2", wanted), CREATED.replaced(request_id="box2"))
        (again,) = case.decided
        assert isinstance(again, LaunchRequested)
        assert (again.activation, again.number, again.resume) == (1, 2, None)
        case = case.given(("go2", again), *ran("go2"))
        assert case.decided == [CheckpointRequested(number=2, with_home=True)]


@pytest.mark.parametrize("checkpoints", [Checkpoints(), Checkpoints(when="never")])
def test_without_a_checkpoint_the_second_input_is_given_and_a_loss_is_final(checkpoints: Checkpoints) -> None:
    """The machine is well. Nothing is begun again from files that are not those of the conversation."""
    case = launched(task=TASK, checkpoints=checkpoints).given(*ran())
    if checkpoints.when == "turn":
        case = case.given(("keep", case.decided[0]), CheckpointFailed(request_id="keep", failure=FULL))
    assert types(case) == [ActivationCompleted]
    assert case.given(lost(1)).state.failure is not None
    case = case.given(("done", case.decided[0]))
    case = case.given(("next", case.decided[0]))
    assert types(case) == [LaunchRequested]
    case = case.given(lost(1))
    assert case.state.failure is not None
    assert case.state.failure.kind == "sandbox_lost"


def test_an_activation_that_may_have_had_an_effect_outside_is_not_begun_again() -> None:
    """One that was not launched yet is."""
    case = started(sandbox=Bubblewrap(network=REACHING))
    assert types(case.given(lost(1))) == [SandboxCloseRequested, SandboxRequested]
    case = case.given(("go2", case.decided[0]), lost(1))
    assert types(case) == [SandboxCloseRequested]


def test_a_failed_activation_ends_the_session() -> None:
    case = started()
    case = case.given(("go2", case.decided[0]))
    case = case.given(LaunchEnded(request_id="go2", ended_by="exit", exit_code=3, duration_s=1.0))
    case = case.given(LaunchSettled(launch_id="go2", calls=1, completed=1))
    (failed,) = case.decided
    assert isinstance(failed, ActivationFailed)
    assert failed.activation == 2
    case = case.given(("failed", failed))
    case = case.given(("closing", case.decided[0]), SandboxDestroyed(request_id="closing"))
    assert types(case) == [SessionFailed]


def test_a_program_that_tells_no_session_cannot_go_on() -> None:
    case = launched(task=TASK).given(*ran(session=None))
    (failed,) = case.decided
    assert isinstance(failed, ActivationFailed)
    assert failed.failure.message == NAMELESS


@pytest.mark.parametrize("session", ["--last", "../s", "s 1", "s\n", "x" * 129])
def test_a_session_whose_name_is_none_fails_the_activation_that_told_it(session: str) -> None:
    """What tells it lies where the agent can write: another attempt may follow, as after any other failure of the agent's."""
    (failed,) = launched(task=TASK).given(*ran(session=session)).decided
    assert isinstance(failed, ActivationFailed)
    assert (failed.failure.kind, failed.failure.terminal) == ("agent_failed", False)
    assert "what is no name" in failed.failure.message


def test_a_used_up_budget_ends_the_session_with_what_there_is() -> None:
    """The next activation could ask nothing."""
    case = launched(task=TASK).given(*ran(budget="rollout", limit="model_calls"))
    (completed,) = case.decided
    assert isinstance(completed, ActivationCompleted)
    case = case.given(("done", completed))
    assert case.decided == [CheckpointRequested(number=1)]


def test_a_cancelled_run_takes_no_further_input() -> None:
    case = kept()
    case = case.given(("done", case.decided[0]), RunCancelled(request_id="x", reason="enough"))
    assert types(case) == [SandboxCloseRequested]


def test_what_is_heard_twice_or_late_changes_nothing() -> None:
    """Of the first activation while the second is under way."""
    case = started()
    case = case.given(("go2", case.decided[0]))
    first = kept().decided[0]
    later = case.given(
        ("done", first),
        ("next", ActivationStarted(activation=2, fingerprint=fingerprint_of(NEXT), messages=NEXT)),
        ActivationStarted(activation=2, fingerprint="00" * 32, messages=TASK.messages),
        *ran(),
        LaunchLost(request_id="go", reason="late"),
        SAVED,
    )
    assert later.state == case.state


def test_a_program_that_cannot_go_on_refuses_before_a_machine_is_made() -> None:
    """The message names those that can."""
    (failed,) = new(agent=MiniSweAgent(), task=TASK).decided
    assert isinstance(failed, SessionFailed)
    assert (failed.failure.kind, failed.failure.terminal) == ("unsupported", True)
    able = ", ".join(sorted(name for name, harness in HARNESSES.items() if harness.resumes))
    assert failed.failure.message.endswith(f"those that can: {able}")


def test_an_input_that_no_program_can_be_given_is_refused_before_a_machine_is_made() -> None:
    """Also if it is a later one."""
    half = TASK.model_copy(update={"follow_ups": (NEXT, (Message(role="user", content="\ud800"),))})
    (failed,) = new(task=half).decided
    assert isinstance(failed, SessionFailed)
    assert "half a character" in failed.failure.message


def test_nothing_is_asked_for_twice_wherever_the_log_ends() -> None:
    """Whoever takes over after any event of a session with two inputs and two machines states nothing that is in the log already."""
    case = new(task=TASK)
    stated: set[tuple[str, str | None, str]] = set()

    def state(event_id: str, nth: int = 0) -> None:
        nonlocal case
        names = [(d.data.TYPE, d.cause, d.tag) for d in case.taken_over().drafts]
        assert not stated.intersection(names), names
        stated.add(names[nth])
        case = case.given((event_id, case.drafts[nth].data))

    def hear(*events: Any) -> None:
        nonlocal case
        for event in events:
            case = case.given(event)
            names = [(d.data.TYPE, d.cause, d.tag) for d in case.taken_over().drafts]
            assert not stated.intersection(names), names

    state("box")
    hear(CREATED)
    state("go")
    hear(*ran())
    state("keep")
    hear(SAVED)
    state("done")
    state("next")
    state("go2")
    hear(lost(1), LaunchLost(request_id="go2", reason="gone"))
    state("back")
    state("box2")
    hear(SandboxDestroyed(request_id="back"), CREATED.replaced(request_id="box2"))
    state("go3")
    hear(*ran("go3", 2, None))
    state("done2")
    state("files")
    hear(SAVED.replaced(request_id="files", home=None))
    state("back2")
    hear(SandboxDestroyed(request_id="back2"))
    state("closed")
    assert case.is_done
