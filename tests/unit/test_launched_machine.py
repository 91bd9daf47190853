"""The session of an agent's own program: machine, launch, end; and how it winds up when something fails."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, get_args

import pytest

from actors.harness.core import MAX_STALE_TRIES, OVERTIME_S
from actors.harness.launched import LaunchedMachine, LaunchedState
from adapters.harnesses.table import BROUGHT, HARNESSES
from gym_bus.subjects import ANY
from schemas.config import ScriptedModel
from schemas.events import (
    ActivationCompleted,
    ActivationFailed,
    CheckpointFailed,
    CheckpointRequested,
    CheckpointSaved,
    LaunchEnded,
    LaunchFailed,
    LaunchLost,
    LaunchRequested,
    LaunchSettled,
    LaunchTold,
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
)
from schemas.harnesses import CodexAgent, HarnessName, Program, ToldItem
from schemas.sandboxes import Bubblewrap, Checkpoints, Inline, NetworkPolicy, SandboxConfig, SandboxLimits
from schemas.tasks import TaskInput
from schemas.values import BlobRef, Failure, Message, Sampling
from tests.support.machine_case import Case, envelope

CREATED = SandboxCreated(request_id="box", place="h3", provider="bubblewrap", gateway_url="http://127.0.0.1:8089")
TOLD = LaunchTold(
    launch_id="go", part=1, items=(ToldItem(kind="said", name="assistant", text="Done."), ToldItem(kind="reply_done"))
)
ENDED = LaunchEnded(request_id="go", ended_by="exit", exit_code=0, duration_s=2.0)
SETTLED = LaunchSettled(launch_id="go", calls=1, completed=1)
CLOSING = ("closing", SandboxCloseRequested())
GONE = SandboxDestroyed(request_id="closing")
REF = BlobRef(sha256="cd" * 32, size=3)


def request(**changes: Any) -> SessionRequested:
    messages = (Message(role="system", content="Be kind."), Message(role="user", content="Do it."))
    values: dict[str, Any] = {
        "task": TaskInput(task_id="t", messages=messages, hands_in="files"),
        "repeat": 0,
        "agent": CodexAgent(system_prompt="Be brief.", timeout_s=100),
        "model": ScriptedModel(),
        "sandbox": Bubblewrap(limits=SandboxLimits(memory_mib=2048)),
        "sampling": Sampling(),
        **changes,
    }
    return SessionRequested(**values)


def new(**changes: Any) -> Case[LaunchedState]:
    """Return a session that has just been asked for."""
    return Case(LaunchedMachine(), LaunchedMachine().begin(envelope(request(**changes), "session")))


OOM = SandboxLost(reason="oom")


def lost(number: int, data: SandboxLost = OOM) -> Any:
    """Return the loss of a session's `number`-th machine."""
    return envelope(data, f"lost{number}").replaced(actor="sandbox", key="b1" if number == 1 else f"b1-{number}")


REACHING = NetworkPolicy.model_validate({"agent": {"allow": ["a.example"]}})
ONCE = Checkpoints(max_restores=0)
"""A session whose machine is not made again."""


def launched(**changes: Any) -> Case[LaunchedState]:
    """Return a session whose program runs."""
    case = new(**changes)
    (box,) = case.decided
    case = case.given(("box", box), CREATED)
    (go,) = case.decided
    return case.given(("go", go))


def types(case: Case[LaunchedState]) -> list[type]:
    return [type(data) for data in case.decided]


def test_a_machine_with_room_and_a_door_comes_first() -> None:
    """More than the program needs is left as it is, less is raised."""
    (wanted,) = new().decided
    assert isinstance(wanted, SandboxRequested)
    assert (wanted.harness, wanted.gateway is not None) == ("codex_agent", True)
    limits = wanted.sandbox.limits
    assert limits.memory_mib == 2048
    assert limits.processes >= HARNESSES["codex_agent"].processes


def test_the_program_is_launched_once_with_what_the_task_says() -> None:
    """What is left of its time is what it has; the token is in no event."""
    case = new()
    case = case.given(("box", case.decided[0]), CREATED)
    (go,) = case.decided
    assert isinstance(go, LaunchRequested)
    assert (go.prompt, go.system_prompt, go.model) == ("Do it.", "Be brief.\n\nBe kind.", "scripted")
    assert 0 < go.timeout_s <= 100
    assert "gbt." not in go.model_dump_json()
    assert case.given(("go", go)).decided == []


def test_its_files_are_kept_before_the_machine_is_given_back() -> None:
    case = launched().given(TOLD, ENDED)
    assert case.decided == []
    assert "SettleCalls" in case.does()
    case = case.given(SETTLED)
    (completed,) = case.decided
    assert isinstance(completed, ActivationCompleted)
    assert completed.evidence.answer == "Done."
    case = case.given(("done", completed))
    assert types(case) == [CheckpointRequested]
    case = case.given(
        ("keep", case.decided[0]),
        CheckpointSaved(request_id="keep", snapshot=REF, files=1, bytes=3, stored_bytes=3, duration_s=0.1),
    )
    assert types(case) == [SandboxCloseRequested]
    case = case.given(CLOSING, GONE)
    (closed,) = case.decided
    assert isinstance(closed, SessionClosed)
    assert (closed.evidence.files, closed.evidence.answer) == (REF, "Done.")


def test_files_that_cannot_be_kept_are_the_agents_doing_only_if_that_is_said() -> None:
    for is_terminal, end in ((True, SessionClosed), (False, SessionFailed)):
        case = launched().given(TOLD, ENDED, SETTLED)
        case = case.given(("done", case.decided[0]))
        failure = Failure(kind="checkpoint_failed", message="too large", terminal=is_terminal)
        case = case.given(("keep", case.decided[0]), CheckpointFailed(request_id="keep", failure=failure))
        case = case.given(CLOSING, GONE)
        assert types(case) == [end]


@pytest.mark.parametrize(
    ("event", "kind"),
    [
        (LaunchLost(request_id="go", reason="no receipt"), "launch_lost"),
        (LaunchFailed(request_id="go", failure=Failure(kind="not_lent", message="x")), "not_lent"),
        (RunCancelled(request_id="x", reason="enough"), "cancelled"),
    ],
)
def test_an_unknown_end_is_never_graded(event: Any, kind: str) -> None:
    """The machine is given back, then the session says why it failed; nothing that is heard later changes that."""
    case = launched(checkpoints=ONCE).given(TOLD, event)
    assert types(case) == [SandboxCloseRequested]
    assert "SettleCalls" not in case.does(), "the program may still call"
    case = case.given(CLOSING, ENDED, GONE)
    assert case.decided == []
    assert "SettleCalls" in case.does()
    (failed,) = case.given(SETTLED).decided
    assert isinstance(failed, SessionFailed)
    assert failed.failure.kind == kind


def test_a_launch_of_an_earlier_owner_is_asked_for_again_and_not_for_ever() -> None:
    """Nothing was started for it: whoever has taken the session over asks anew, with what is left of the time."""
    stale = Failure(kind="stale", message="another owner")
    case, ids = launched(), {"go"}
    for tries in range(1, MAX_STALE_TRIES + 1):
        last = "go" if tries == 1 else f"go{tries - 1}"
        case = case.given(LaunchFailed(request_id=last, failure=stale)).after_s(1)
        (draft,) = case.drafts
        assert isinstance(draft.data, LaunchRequested)
        assert (draft.data.activation, draft.data.number, draft.data.timeout_s) == (1, 1, 100 - tries)
        ids.add(draft.tag)
        case = case.given((f"go{tries}", draft.data))
        assert case.decided == []
    assert len(ids) == MAX_STALE_TRIES + 1
    done = case.given(
        TOLD.replaced(launch_id="go5"), ENDED.replaced(request_id="go5"), SETTLED.replaced(launch_id="go5")
    )
    assert types(done) == [ActivationCompleted]
    case = case.given(LaunchFailed(request_id="go5", failure=stale))
    assert case.state.failure == stale
    assert types(case) == [SandboxCloseRequested]


def test_what_could_not_be_ended_fails_the_session_whatever_its_program_says() -> None:
    """A negative receipt is no end that may be graded; the session says so, and a good one too."""
    case = launched().given(TOLD, ENDED.replaced(is_clean=False), SETTLED)
    (failed,) = case.decided
    assert isinstance(failed, ActivationFailed)
    assert "could not be ended" in failed.failure.message
    case = case.given(("failed", failed)).given(CLOSING, GONE)
    (end,) = case.decided
    assert isinstance(end, SessionFailed)
    assert end.cleanup_confirmed is False
    case = launched().given(TOLD, ENDED, SETTLED)
    case = case.given(("done", case.decided[0]))
    case = case.given(
        ("keep", case.decided[0]),
        CheckpointSaved(request_id="keep", snapshot=REF, files=1, bytes=3, stored_bytes=3, duration_s=0.1),
    ).given(CLOSING, GONE)
    (closed,) = case.decided
    assert isinstance(closed, SessionClosed)
    assert closed.cleanup_confirmed is True


def test_settling_that_breaks_down_is_not_begun_for_ever() -> None:
    """The session ends as failed once there is nothing else to wait for."""
    case = launched(checkpoints=ONCE).given(TOLD, LaunchLost(request_id="go", reason="no receipt"))
    assert case.crashed() == []
    case = case.given(CLOSING, GONE)
    assert "SettleCalls" in case.does()
    (over,) = case.crashed()
    assert isinstance(over, SessionFailed)
    assert over.failure.kind == "launch_lost"


def test_a_lost_machine_fails_a_session_that_gets_no_other() -> None:
    case = launched(checkpoints=ONCE).given(TOLD, lost(1), CLOSING, GONE, SETTLED)
    (failed,) = case.decided
    assert isinstance(failed, SessionFailed)
    assert failed.failure.kind == "sandbox_lost"


LOST_LAUNCH = LaunchLost(request_id="go", reason="gone")


@pytest.mark.parametrize("losses", [(lost(1), LOST_LAUNCH), (LOST_LAUNCH,), (LOST_LAUNCH, lost(1)), (lost(1),)])
def test_a_program_is_launched_again_in_the_next_machine(losses: tuple[Any, ...]) -> None:
    """Whichever loss is heard of first: once, from where its activation began, and what it had told counts no more."""
    case = launched().given(TOLD, *losses)
    back, wanted = case.decided
    assert back == SandboxCloseRequested(number=1)
    assert isinstance(wanted, SandboxRequested)
    assert (wanted.number, wanted.restore, wanted.harness) == (2, None, "codex_agent")
    case = case.given(("back", back), ("box2", wanted))
    assert case.decided == []
    case = case.given(SandboxDestroyed(request_id="back"), CREATED.replaced(request_id="box2", place="h4")).after_s(30)
    (again,) = case.decided
    assert isinstance(again, LaunchRequested)
    assert (again.number, again.activation, again.prompt, again.timeout_s) == (2, 1, "Do it.", 70)
    case = case.given(("go2", again), LOST_LAUNCH, TOLD.replaced(part=2))
    assert (case.state.told, case.state.seen.replies, case.state.failure) == (0, 0, None)
    case = case.given(TOLD.replaced(launch_id="go2"), ENDED.replaced(request_id="go2"))
    assert case.given(SETTLED).decided == [], "the earlier launch's calls are not its own"
    case = case.given(SETTLED.replaced(launch_id="go2", completed=0, recalled=2))
    (completed,) = case.decided
    assert isinstance(completed, ActivationCompleted)
    assert (completed.evidence.answer, completed.evidence.turns) == ("Done.", 2)
    case = case.given(("done", completed))
    assert case.decided == [CheckpointRequested(number=2)]


def test_who_takes_over_between_giving_back_and_asking_asks() -> None:
    """One crash between the two appends leaves neither a machine that nobody gives back nor a session without one."""
    case = launched().given(lost(1))
    back, wanted = case.decided
    case = case.given(("back", back)).taken_over()
    assert case.decided == [wanted]
    case = case.given(RunCancelled(request_id="x", reason="enough"), SETTLED)
    assert types(case) == [SessionFailed]


def test_machines_are_made_again_only_so_often() -> None:
    case = launched(checkpoints=Checkpoints(max_restores=2))
    for number in (1, 2):
        case = case.given(lost(number))
        back, wanted = case.decided
        box, go = f"box{number}", f"go{number}"
        case = case.given(back, (box, wanted), CREATED.replaced(request_id=box))
        case = case.given((go, case.decided[0]))
    case = case.given(lost(3))
    assert case.decided == [SandboxCloseRequested(number=3)]
    assert case.state.failure is not None
    assert case.state.failure.kind == "sandbox_lost"


def test_a_machine_lost_while_it_is_made_is_made_again() -> None:
    case = new()
    case = case.given(("box", case.decided[0]), lost(1))
    assert types(case) == [SandboxCloseRequested, SandboxRequested]
    assert [draft.place for draft in case.drafts] == [ANY, ANY], "where it was made is not known"


@pytest.mark.parametrize(
    ("sandbox", "event"),
    [
        (Bubblewrap(network=REACHING), OOM),
        (Bubblewrap(), SandboxLost(reason="restarted", is_replaced=True)),
    ],
)
def test_what_cannot_be_done_twice_is_not(sandbox: SandboxConfig, event: SandboxLost) -> None:
    """Commands that reach out, and a machine that another one has taken the name of."""
    case = launched(sandbox=sandbox).given(lost(1, event))
    assert types(case) == [SandboxCloseRequested]


def test_a_machine_lost_after_its_programs_end_is_needed_for_files_only() -> None:
    """An answer is graded without it; where files are handed in, the program runs again."""
    words = TaskInput(task_id="t", messages=(Message(role="user", content="Do it."),))
    case = launched(task=words).given(TOLD, ENDED, lost(1), LOST_LAUNCH)
    assert case.decided == []
    assert types(case.given(SETTLED)) == [ActivationCompleted]
    assert types(launched().given(TOLD, ENDED, lost(1), SETTLED)) == [SandboxCloseRequested, SandboxRequested]


def test_files_that_were_lost_after_the_activation_fail_the_session() -> None:
    """An activation that is completed is not begun again."""
    case = launched().given(TOLD, ENDED, SETTLED)
    case = case.given(("done", case.decided[0]), lost(1))
    assert types(case) == [SandboxCloseRequested]
    assert case.state.failure is not None


def test_a_machine_that_was_not_made_fails_the_session() -> None:
    case = new()
    failure = Failure(kind="install_failed", message="npm", stage="seed")
    case = case.given(("box", case.decided[0]), SandboxFailed(request_id="box", failure=failure))
    assert types(case) == [SessionFailed]


def test_pieces_are_told_in_order_and_once() -> None:
    """A piece heard twice, or before the one that comes first, is not counted."""
    later = TOLD.replaced(part=3)
    case = launched().given(TOLD, TOLD, later)
    assert (case.state.told, case.state.seen.replies) == (1, 1)


def test_time_runs_out_for_who_hears_nothing() -> None:
    case = launched()
    state, machine = case.state, LaunchedMachine()
    just_before = state.asked_at + timedelta(seconds=100 + OVERTIME_S - 1)
    assert machine.decide(state, just_before) == ()
    (draft,) = machine.decide(state, just_before + timedelta(seconds=2))
    assert isinstance(draft.data, ActivationFailed)
    assert draft.data.failure.kind == "agent_timeout"


def test_a_used_up_budget_of_its_own_may_be_graded_that_of_the_run_not() -> None:
    """However the program took the refusal."""
    bad = ENDED.replaced(exit_code=1)
    own = launched().given(TOLD, bad, SETTLED.replaced(budget="rollout", limit="model_calls"))
    (completed,) = own.decided
    assert isinstance(completed, ActivationCompleted)
    assert completed.evidence.stop_reason == "budget:model_calls"
    whole = launched().given(bad, SETTLED.replaced(budget="run", limit="cost_usd")).given(CLOSING, GONE)
    (failed,) = whole.decided
    assert isinstance(failed, SessionFailed)
    assert (failed.failure.kind, failed.failure.terminal) == ("budget_exhausted", True)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"sandbox": Inline()}, "sandbox of type inline"),
        ({"agent": CodexAgent(withheld_tools=("no_such_tool",))}, "no_such_tool"),
        (
            {"task": TaskInput(task_id="t", messages=(Message(role="assistant", content="Hello."),))},
            "begins with a conversation",
        ),
        ({"task": TaskInput(task_id="t", messages=(Message(role="system", content="x"),))}, "says nothing"),
    ],
)
def test_what_a_program_cannot_do_fails_before_anything_is_made(changes: dict[str, Any], words: str) -> None:
    (failed,) = new(**changes).decided
    assert isinstance(failed, SessionFailed)
    assert (failed.failure.kind, failed.failure.terminal) == ("unsupported", True)
    assert words in failed.failure.message


def test_configuration_and_table_know_the_same_programs() -> None:
    configured = {kind.model_fields["type"].default for kind in get_args(Program)}
    assert configured == set(get_args(HarnessName)) == {*HARNESSES, *BROUGHT}


def test_nothing_is_asked_for_twice_wherever_the_log_ends() -> None:
    """Whoever takes over after any event of a session with two machines states nothing that is in the log already."""
    case = new()
    stated: set[tuple[str, str | None, str]] = set()

    def state(event_id: str, nth: int = 0) -> None:
        nonlocal case
        names = [(d.data.TYPE, d.cause, d.tag) for d in case.taken_over().drafts]
        assert not stated.intersection(names)
        stated.add(names[nth])
        case = case.given((event_id, case.drafts[nth].data))

    def hear(*events: Any) -> None:
        nonlocal case
        for event in events:
            case = case.given(event)
            assert not stated.intersection((d.data.TYPE, d.cause, d.tag) for d in case.taken_over().drafts)

    state("box")
    hear(CREATED)
    state("go")
    hear(TOLD, lost(1), LOST_LAUNCH)
    state("back")
    state("box2")
    hear(SandboxDestroyed(request_id="back"), CREATED.replaced(request_id="box2"))
    state("go2")
    hear(TOLD.replaced(launch_id="go2"), ENDED.replaced(request_id="go2"), SETTLED.replaced(launch_id="go2"))
    state("done")
    state("keep")
    hear(CheckpointSaved(request_id="keep", snapshot=REF, files=1, bytes=3, stored_bytes=3, duration_s=0.1))
    state("back2")
    hear(SandboxDestroyed(request_id="back2"))
    state("closed")
    assert case.is_done
