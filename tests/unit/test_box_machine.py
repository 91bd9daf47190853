"""A machine's life: made, used one command after the other, given back, or lost with whoever held it."""

from __future__ import annotations

from actors.sandbox.box import ABANDONED, DIED, BoxMachine, DestroyBox, RunCommand
from actors.sandbox.box_state import BoxState
from gym_bus.runtime.machine import AwaitAnswer
from schemas.events import (
    SandboxCloseRequested,
    SandboxCreated,
    SandboxDestroyed,
    SandboxFailed,
    SandboxLost,
    SessionClosed,
    SessionFailed,
    ToolCallCompleted,
    ToolCallFailed,
    ToolCallLost,
    ToolCallRequested,
)
from schemas.events.harness import SandboxRequested
from schemas.tasks import Evidence
from schemas.values import Failure, Party
from tests.support.examples import EXAMPLES
from tests.support.machine_case import Case, envelope

CREATED = SandboxCreated(request_id="box", place="h0", provider="inline")
FAILURE = Failure(kind="stale", message="another owner")
CLOSE = ("close", SandboxCloseRequested())
OWNER = Party(actor="harness", key="s1")


def asked(index: int = 0) -> tuple[str, ToolCallRequested]:
    data = ToolCallRequested(call_id=f"c{index}", turn=1, index=index, tool="shell", command="true", timeout_s=1)
    return f"call{index}", data


def done(index: int = 0) -> ToolCallCompleted:
    return ToolCallCompleted(request_id=f"call{index}", exit_code=0, output="", output_bytes=0, duration_s=0.1)


def lost(index: int, reason: str) -> ToolCallLost:
    return ToolCallLost(request_id=f"call{index}", reason=reason)


def new() -> Case[BoxState]:
    request = EXAMPLES["sandbox_requested.v1"]
    assert isinstance(request, SandboxRequested)
    first = request.replaced(number=1, restore=None, install=None)
    return Case(BoxMachine(), BoxMachine().begin(envelope(first, "box")))


def ready() -> Case[BoxState]:
    return new().given(CREATED)


def test_a_requested_machine_is_made() -> None:
    """First of all it is created; commands that come early wait."""
    assert new().does() == {"CreateBox"}
    assert new().given(asked()).then_nothing().does() == {"CreateBox"}
    assert ready().then_nothing().effects == [AwaitAnswer("next")]


def test_a_machine_that_cannot_be_made_is_over() -> None:
    """There is nothing to give back."""
    case = new().given(SandboxFailed(request_id="box", failure=FAILURE))
    assert case.is_done
    assert case.then_nothing().effects == []


def test_commands_run_one_after_the_other() -> None:
    """The oldest open command runs, under the epoch and key of who asked; the next one when it is answered."""
    case = ready().given(asked(0), asked(1))
    first = case.effects
    assert first == [RunCommand("run-call0", asked(0)[1], 7, OWNER)]
    assert case.given(done(0)).effects == [RunCommand("run-call1", asked(1)[1], 7, OWNER)]
    assert case.given(done(0), done(1)).effects == [AwaitAnswer("next")]


def test_every_kind_of_answer_ends_a_command() -> None:
    """Completed, failed or lost: it is not run again, also if its request is heard again."""
    for answer in (done(0), ToolCallFailed(request_id="call0", failure=FAILURE), lost(0, "x")):
        assert ready().given(asked(0), answer, asked(0)).effects == [AwaitAnswer("next")]


def test_a_request_heard_twice_is_run_once() -> None:
    """A repeat is no other command."""
    case = ready().given(asked(0), asked(0))
    assert len(case.state.calls) == 1


def test_a_machine_given_back_is_destroyed() -> None:
    """What is asked after the goodbye is answered as lost, then the machine is ended."""
    case = ready().given(CLOSE)
    assert case.then_nothing().effects == [DestroyBox("destroy")]
    case = case.given(asked(0)).then(lost(0, ABANDONED))
    assert case.given(SandboxDestroyed(request_id="close")).is_done


def test_a_command_that_runs_while_the_machine_is_given_back_is_answered_first() -> None:
    """No request stays without an answer."""
    ready().given(asked(0), asked(1), CLOSE).then(lost(0, ABANDONED), lost(1, ABANDONED)).then_nothing()


def test_the_end_of_the_session_gives_the_machine_back() -> None:
    """A session that ended without saying goodbye leaves no machine behind."""
    evidence = Evidence(answer="4", stop_reason="stop", turns=1)
    for ending in (
        SessionClosed(request_id="session", evidence=evidence),
        SessionFailed(request_id="session", failure=FAILURE),
    ):
        case = ready().given(("end", ending))
        assert case.effects == [DestroyBox("destroy")]
        assert case.state.close_id == "end"
        assert ready().given(CLOSE, ("end", ending)).state.close_id == "close"


def test_whoever_takes_a_machine_over_finds_it_lost() -> None:
    """It died with its holder: that is stated, then every open command is; nothing is started again."""
    case = ready().given(asked(0), asked(1), done(0)).taken_over()
    assert case.does() == {"AwaitAnswer"}
    case = case.then(SandboxLost(reason=DIED), lost(1, DIED))
    assert not case.is_done
    case.given(asked(2)).then(lost(2, DIED))


def test_a_lost_machine_that_is_given_back_is_over() -> None:
    """Its goodbye is answered although there is nothing to destroy."""
    lost_one = ready().taken_over().then(SandboxLost(reason=DIED))
    assert lost_one.given(CLOSE).then(SandboxDestroyed(request_id="close")).is_done
    together = ready().given(asked(0), CLOSE).taken_over()
    assert together.then(SandboxLost(reason=DIED), lost(0, DIED), SandboxDestroyed(request_id="close")).is_done


def test_a_machine_not_yet_made_is_not_lost_by_a_takeover() -> None:
    """The next owner makes it; finding by label comes before."""
    assert new().taken_over().then_nothing().does() == {"CreateBox"}


def test_taking_over_what_is_over_changes_nothing() -> None:
    """The end stays the end."""
    over = ready().given(CLOSE, SandboxDestroyed(request_id="close"))
    assert over.taken_over().state == over.state


def test_a_machine_that_died_by_itself_keeps_its_reason() -> None:
    """The first reason is told to everyone, also after a takeover."""
    case = ready().given(asked(0), SandboxLost(reason="out of memory"))
    case.then(lost(0, "out of memory"))
    case.taken_over().then(lost(0, "out of memory"))


def test_a_defect_of_ours_answers_everyone() -> None:
    """A handler that breaks costs the machine: not made, or lost, never silence and never two endings."""
    assert [type(e) for e in new().crashed()] == [SandboxFailed]
    assert ready().given(asked(0)).crashed("broken") == [SandboxLost(reason="broken")]
    assert ready().given(SandboxLost(reason="x")).crashed() == []
    assert ready().given(CLOSE, SandboxDestroyed(request_id="close")).crashed() == []
