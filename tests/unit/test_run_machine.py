"""A run: planned, conducted, paused and resumed, cancelled, finished; every control request is answered once."""

from __future__ import annotations

import base64

import pytest

from actors.collector.run import AwaitStore, Conduct, MakePlan, Progress, RunMachine, RunState
from gym_bus.runtime.machine import AwaitAnswer
from schemas.events import (
    RequestParked,
    RunCancelled,
    RunCancelRequested,
    RunFinished,
    RunPaused,
    RunRequested,
    RunResumed,
    RunResumeRequested,
    RunStarted,
    Snapshot,
)
from schemas.values import BlobRef, Failure
from tests.support.machine_case import Case, envelope, settle
from tests.support.world import config

STARTED = RunStarted(
    plan=BlobRef(sha256="ab" * 32, size=1), tasks=2, planned=2, shards=1, taskset_digest="t", model="m"
)
FULL = RunPaused(kind="store", reason="full")
REFUSED = RunPaused(kind="failure", reason="provider_auth")
FINISHED = RunFinished(request_id="run", state="completed", planned=2, scored=2, failed=0, masked=0, missing=0)
NOBODY = Failure(kind="parked", message="nobody could")
CANCEL = ("cancel", RunCancelRequested(reason="enough"))
RESUME = ("resume", RunResumeRequested(config_digest="digest"))


def new() -> Case[RunState]:
    request = RunRequested(config=config(), config_digest="digest", output_dir="/r", versions={})
    return Case(RunMachine(), RunMachine().begin(envelope(request, "run")))


def started() -> Case[RunState]:
    return new().given(("started", STARTED))


def test_a_requested_run_is_planned_then_conducted() -> None:
    """One thing at a time."""
    assert new().then_nothing().effects == [MakePlan("plan")]
    assert started().then_nothing().effects == [Conduct("conduct-0")]
    assert started().state.started_id == "started"


def test_a_run_that_paused_waits_for_who_can_help() -> None:
    """A refused key waits for a person; a full store also for room."""
    assert started().given(REFUSED).then_nothing().effects == [AwaitAnswer("resume")]
    assert started().given(FULL).effects == [AwaitStore("store-1"), AwaitAnswer("resume")]


def test_a_resumed_run_is_conducted_anew() -> None:
    """Each stretch between pauses is an effect of its own."""
    case = started().given(REFUSED, RESUME).then(RunResumed(request_id="resume", reason="asked for"))
    assert case.effects == [Conduct("conduct-1")]
    room = started().given(("pause", FULL), RunResumed(request_id="pause", reason="room again"))
    assert room.effects == [Conduct("conduct-1")]
    assert room.given(FULL).effects == [AwaitStore("store-2"), AwaitAnswer("resume")]


def test_resuming_under_another_configuration_is_refused_and_said() -> None:
    """The answer names both; the run stays paused."""
    case = started().given(REFUSED, ("resume", RunResumeRequested(config_digest="other")))
    (refusal,) = case.decided
    assert isinstance(refusal, RequestParked)
    assert "digest, not other" in refusal.failure.message
    assert case.given(refusal).then_nothing().effects == [AwaitAnswer("resume")]


def test_resuming_what_is_not_paused_changes_nothing() -> None:
    """It is answered, and goes on."""
    case = started().given(RESUME).then(RunResumed(request_id="resume", reason="asked for"))
    assert case.then_nothing().effects == [Conduct("conduct-0")]


@pytest.mark.parametrize("paused", [None, REFUSED, FULL])
def test_a_cancelled_run_winds_up(paused: RunPaused | None) -> None:
    """Cancelling ends a pause, too: whoever conducts states the end."""
    case = started().given(*([paused] if paused else []), CANCEL)
    case = case.then(RunCancelled(request_id="cancel", reason="enough"))
    assert case.state.cancelled == "enough"
    assert case.does() == {"Conduct"}


def test_two_cancels_get_two_answers() -> None:
    """Everyone who asks is answered, once."""
    case = started().given(CANCEL, ("again", RunCancelRequested(reason="really")), CANCEL)
    case = case.then(
        RunCancelled(request_id="cancel", reason="enough"), RunCancelled(request_id="again", reason="really")
    )
    case.given(CANCEL).then_nothing()


def test_a_cancel_comes_before_a_resume() -> None:
    """Both are answered, the cancel first."""
    case = started().given(REFUSED, RESUME, CANCEL).then(RunCancelled(request_id="cancel", reason="enough"))
    case.then(RunResumed(request_id="resume", reason="asked for")).then_nothing()
    assert settle(case).state.cancelled == "enough"


def test_what_comes_after_the_end_is_answered_as_late() -> None:
    """A run that is over is done once every control request has been told so."""
    over = started().given(FINISHED)
    assert over.is_done
    late = over.given(CANCEL, RESUME)
    assert not late.is_done
    assert late.effects == []
    answered = late.then_types(RequestParked, RequestParked)
    assert answered.is_done
    assert answered.given(CANCEL, RESUME).then_nothing().is_done


def test_a_request_that_was_set_aside_is_no_longer_open() -> None:
    """What was parked by another worker is not answered again."""
    parked = RequestParked(request_id="cancel", request_type="x", tries=8, failure=NOBODY)
    assert started().given(CANCEL, parked).then_nothing().state.cancelled is None


def test_progress_comes_from_the_last_snapshot() -> None:
    """Which rollouts are over, one bit each, the first in the lowest bit."""
    progress = Progress(done=base64.b64encode(bytes([0b101, 1])).decode(), counts={"scored": 3}, read_after=40)
    state = started().state.model_copy(update={"progress": progress})
    case = started().given(Snapshot(state={"state": state.model_dump(mode="json"), "read_after": 0}))
    assert case.state.progress == progress
    assert case.state.progress.bits() == bytes([5, 1])


def test_a_defect_of_ours_pauses_the_run() -> None:
    """Nothing is lost and somebody looks; before it started it fails; what is over or paused stays as it is."""
    (over,) = new().crashed("broken")
    assert isinstance(over, RunFinished)
    assert over.state == "failed"
    assert started().crashed("broken") == [RunPaused(kind="failure", reason="broken")]
    assert started().given(REFUSED).crashed() == []
    assert started().given(FINISHED).crashed() == []


def test_two_defects_are_two_pauses() -> None:
    """The second one's event has another id than the first one's."""
    first = started()
    again = first.given(("pause", REFUSED), RunResumed(request_id="pause", reason="asked for"))
    tags = {case.machine.crashed(case.state, NOBODY)[0].tag for case in (first, again)}
    assert len(tags) == 2
