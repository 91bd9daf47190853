"""A recorded run, run again: the same answers and scores, nobody asked, and the first difference named."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from providers.models import scripted
from schemas.config import ScriptedModel
from schemas.envelope import Envelope
from schemas.events import (
    ModelCallCompleted,
    ModelCallFailed,
    ModelCallRequested,
    RolloutFinished,
    ToolCallCompleted,
)
from tests.support.recording import of_type, run_with, write

MODEL = ScriptedModel(error_rate=0.3, malformed_rate=0.3, failure_rate=0.3)


@pytest.fixture(scope="module")
def recorded() -> list[Envelope]:
    return run_with(MODEL)[0]


@pytest.fixture(autouse=True)
def _nobody_is_asked(recorded: list[Envelope], monkeypatch: pytest.MonkeyPatch) -> None:
    async def refuse(*_: object) -> None:
        raise AssertionError("a model was asked")

    monkeypatch.setattr(scripted.ScriptedModel, "complete", refuse)


def said(events: list[Envelope]) -> dict[tuple[str, int, int], Any]:
    """Return what came of every try, by the rollout and the place in its conversation."""
    found: dict[tuple[str, int, int], Any] = {}
    for event in events:
        match event.data:
            case ModelCallCompleted(turn=turn):
                found[event.rollout_id, turn, event.ordinal] = (
                    event.data.message,
                    event.data.stop_reason,
                    event.data.usage,
                )
            case ModelCallFailed(turn=turn):
                found[event.rollout_id, turn, event.ordinal] = (event.data.failure, event.data.retry_in_s is None)
            case _:
                pass
    return found


def scores(events: list[Envelope]) -> dict[str, Any]:
    return {e.rollout_id: (e.data.state, e.data.reward) for e in of_type(events, RolloutFinished)}


def changed(events: list[Envelope], kind: type, change: Callable[[Any], dict[str, Any]]) -> list[Envelope]:
    """Return the events with the first one of `kind` changed."""
    place = next(n for n, event in enumerate(events) if isinstance(event.data, kind) and change(event.data))
    data = events[place].data.model_copy(update=change(events[place].data))
    return [*events[:place], events[place].model_copy(update={"data": data}), *events[place + 1 :]]


def test_a_replay_gives_the_same_answers_failures_and_scores(recorded: list[Envelope], tmp_path: Path) -> None:
    replayed, finished = run_with(write(tmp_path / "run.jsonl", recorded))
    assert of_type(recorded, ModelCallFailed), "the recording has failed tries in it"
    assert said(replayed) == said(recorded)
    assert scores(replayed) == scores(recorded)
    assert finished.scored == finished.planned == 6


def test_the_first_message_that_differs_is_named(recorded: list[Envelope], tmp_path: Path) -> None:
    def other_result(asked: ModelCallRequested) -> dict[str, Any]:
        if not asked.new_messages or asked.new_messages[0].role != "tool":
            return {}
        first = asked.new_messages[0].model_copy(update={"content": "forty-two"})
        return {"new_messages": (first, *asked.new_messages[1:]), "context_digest": "of something else"}

    events = changed(recorded, ModelCallRequested, other_result)
    place = next(n for n, (old, new) in enumerate(zip(recorded, events, strict=True)) if old is not new)
    replayed, finished = run_with(write(tmp_path / "run.jsonl", events))
    [failed] = [e for e in of_type(replayed, ModelCallFailed) if e.data.failure.kind == "replay_diverged"]
    assert failed.rollout_id == events[place].rollout_id
    text = failed.data.failure.message
    assert "message 3 (tool): recorded '[for call1x0] forty-two', now '[for call1x0] " in text
    assert "call 2" in text
    assert text.startswith("task sum/")
    assert failed.data.failure.terminal
    assert (finished.scored, finished.failed) == (5, 1)


def test_a_run_of_more_than_was_recorded_diverges_where_the_recording_ends(
    recorded: list[Envelope], tmp_path: Path
) -> None:
    model = write(tmp_path / "run.jsonl", recorded)
    replayed, finished = run_with(model, tasks=4, repeats=3)
    messages = {e.data.failure.message for e in of_type(replayed, ModelCallFailed) if e.data.retry_in_s is None}
    assert messages == {
        *(f"task sum/{n}, repeat 2: the recording has no rollout of it" for n in range(4)),
        *(f"task sum/3, repeat {n}: the recording has no rollout of it" for n in range(2)),
    }
    assert (finished.scored, finished.failed) == (6, 6)


def test_a_recording_that_was_cut_off_says_so(recorded: list[Envelope], tmp_path: Path) -> None:
    last = of_type(recorded, ModelCallCompleted)[-1]
    cut = [event for event in recorded if event is not last]
    replayed, _ = run_with(write(tmp_path / "run.jsonl", cut))
    [failed] = [e for e in of_type(replayed, ModelCallFailed) if e.data.failure.kind == "replay_diverged"]
    assert "the recording ends before its answer" in failed.data.failure.message
    assert failed.rollout_id == last.rollout_id


@pytest.mark.parametrize(
    ("content", "message"),
    [(b"{}\n", "run.jsonl:1: no event"), (b"\xff\n", "cannot be read"), (None, "cannot be read")],
)
def test_a_file_that_is_no_recording_is_named(content: bytes | None, message: str, tmp_path: Path) -> None:
    model = write(tmp_path / "run.jsonl", [])
    if content is None:
        (tmp_path / "run.jsonl").unlink()
    else:
        (tmp_path / "run.jsonl").write_bytes(content)
    replayed, finished = run_with(model, tasks=1, repeats=1)
    [failed] = of_type(replayed, ModelCallFailed)
    assert message in failed.data.failure.message
    assert finished.failed == 1


def test_tools_ran_again_and_said_the_same(recorded: list[Envelope], tmp_path: Path) -> None:
    replayed, _ = run_with(write(tmp_path / "run.jsonl", recorded))
    outputs = [
        sorted((e.rollout_id, e.key, e.data.output) for e in of_type(events, ToolCallCompleted))
        for events in (recorded, replayed)
    ]
    assert outputs[0] == outputs[1]
