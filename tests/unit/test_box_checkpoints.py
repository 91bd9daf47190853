"""When a machine's files are kept: after a command, beside one, before the end; and who is answered by it."""

from __future__ import annotations

from actors.sandbox.box import DIED, DestroyBox, KeepFiles, RunCommand
from schemas.events import (
    CheckpointFailed,
    CheckpointRequested,
    CheckpointSaved,
    SandboxCloseRequested,
    SandboxLost,
    ToolCallLost,
    ToolCallRequested,
)
from schemas.values import BlobRef, Failure
from tests.unit.test_box_machine import CLOSE, OWNER, asked, done, ready

REF = BlobRef(sha256="cd" * 32, size=3)
FULL = Failure(kind="checkpoint_failed", message="no room", stage="tool")


def kept(index: int) -> tuple[str, ToolCallRequested]:
    """A command whose files are to be kept."""
    name, request = asked(index)
    return name, request.replaced(keeps_files=True)


def saved(request_id: str, stored: int = 5) -> CheckpointSaved:
    return CheckpointSaved(request_id=request_id, snapshot=REF, files=1, bytes=9, stored_bytes=stored, duration_s=0.1)


def wish(number: int) -> tuple[str, CheckpointRequested]:
    """A checkpoint that is asked for by itself."""
    return f"wish{number}", CheckpointRequested()


def test_what_follows_a_command_comes_before_the_next() -> None:
    """The next one finds the files as they were kept."""
    case = ready().given(kept(0), asked(1), done(0))
    assert case.then_nothing().effects == [KeepFiles("keep-0")]
    assert case.given(saved("call0")).effects == [RunCommand("run-call1", asked(1)[1], 7, OWNER)]


def test_a_failed_checkpoint_holds_nothing_up() -> None:
    """The machine is well."""
    case = ready().given(kept(0), kept(1), done(0), CheckpointFailed(request_id="call0", failure=FULL))
    assert case.then_nothing().does() == {"RunCommand"}
    assert case.given(done(1)).effects == [KeepFiles("keep-1")]


def test_a_command_that_was_not_run_leaves_nothing_to_keep() -> None:
    """Only one that ran to its end is followed by a checkpoint, and only once."""
    assert ready().given(kept(0), ToolCallLost(request_id="call0", reason="x")).does() == {"AwaitAnswer"}
    assert ready().given(kept(0), done(0), done(0), saved("call0"), saved("call0")).does() == {"AwaitAnswer"}


def test_what_is_asked_for_by_itself_is_written_beside_a_command() -> None:
    """A long command is no reason to wait."""
    case = ready().given(asked(0), wish(1))
    assert case.does() == {"KeepFiles", "RunCommand"}
    assert case.given(saved("wish1")).does() == {"RunCommand"}


def test_the_newest_wish_answers_the_older_ones() -> None:
    """Only one is written at a time; those that came since it began wait for the next, which is one for all of them."""
    case = ready().given(wish(1), wish(1))
    assert case.effects == [KeepFiles("keep-0")]
    case = case.given(wish(2), wish(3))
    assert case.effects == [KeepFiles("keep-0")], "the one that is being written goes on"
    case = case.given(saved("wish1"))
    assert case.then_nothing().effects == [KeepFiles("keep-1")]
    case = case.given(saved("wish3"))
    case = case.then(saved("wish2", stored=0)).then_nothing()
    assert case.does() == {"AwaitAnswer"}
    assert case.given(wish(2), saved("wish2")).does() == {"AwaitAnswer"}, "repeats change nothing"


def test_the_files_are_kept_before_the_machine_ends() -> None:
    """What is pending is written first."""
    case = ready().given(kept(0), done(0), CLOSE)
    assert case.then_nothing().effects == [KeepFiles("keep-0")]
    assert case.given(saved("call0")).effects == [DestroyBox("destroy")]


def test_a_lost_machine_answers_every_wish() -> None:
    """There is nothing left to keep."""
    case = ready().given(wish(1), kept(0), done(0)).taken_over()
    gone = Failure(kind="sandbox_lost", message=DIED, stage="tool")
    case = case.then(
        SandboxLost(reason=DIED),
        CheckpointFailed(request_id="wish1", failure=gone),
        CheckpointFailed(request_id="call0", failure=gone),
    )
    assert case.then_nothing().does() == {"AwaitAnswer"}


def test_another_machine_of_the_session_is_another_matter() -> None:
    """Each hears what is meant for it, and what the whole session is told."""
    other = asked(0)[1].replaced(number=2)
    case = ready().given(("o1", other), ("o2", CheckpointRequested(number=2)), ("o3", SandboxCloseRequested(number=2)))
    assert case.then_nothing().does() == {"AwaitAnswer"}
