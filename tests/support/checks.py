"""What must hold after every run, whatever was killed: checked on the log and on the outside ledger."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import Any

from schemas.base import Answer
from schemas.envelope import Envelope
from schemas.events import (
    Claimed,
    ModelCallCompleted,
    ModelCallRequested,
    RolloutFinished,
    RunFinished,
    Snapshot,
    ToolCallLost,
    ToolCallRequested,
)

EXEMPT = {"run_cancel_requested.v1", "run_resume_requested.v1"}


def final_table(events: Sequence[Envelope]) -> dict[str, tuple[str, float | None]]:
    """Return how every rollout ended: state and reward."""
    return {
        e.rollout_id: (e.data.state, e.data.reward)
        for e in events
        if isinstance(e.data, RolloutFinished) and e.data.retry_at is None
    }


def check_log(events: Sequence[Envelope]) -> None:
    """Check the invariants I2, I3, I4, I5, I6 (the log's part) and I7."""
    ids = Counter(e.event_id for e in events)
    assert all(n == 1 for n in ids.values()), [i for i, n in ids.items() if n > 1]
    by_aggregate: dict[tuple[str, str, str, str], list[Envelope]] = defaultdict(list)
    for event in events:
        by_aggregate[event.run_id, event.rollout_id, event.actor, event.key].append(event)
    for where, own in by_aggregate.items():
        _check_aggregate(where, own)
    assert not [e for e in events if e.causation_id and e.causation_id not in ids], "a cause is missing"
    _check_pairs(events)
    answered = Counter(
        (e.run_id, e.rollout_id, e.key, e.data.turn) for e in events if isinstance(e.data, ModelCallCompleted)
    )
    assert all(n == 1 for n in answered.values()), "a recorded answer was asked for again"
    endings = Counter((e.run_id, e.rollout_id, e.attempt) for e in events if isinstance(e.data, RolloutFinished))
    assert all(n == 1 for n in endings.values()), endings
    runs = Counter(e.run_id for e in events if isinstance(e.data, RunFinished))
    assert all(n == 1 for n in runs.values()), runs


def _check_aggregate(where: tuple[str, str, str, str], own: Sequence[Envelope]) -> None:
    epoch, ordinal = 0, 0
    for event in own:
        if isinstance(event.data, Claimed):
            assert event.sequence > epoch
            epoch = event.sequence
            assert event.ordinal == ordinal, (where, event)
        elif isinstance(event.data, Snapshot):
            assert event.ordinal == ordinal, (where, event)
        else:
            ordinal += 1
            assert event.ordinal == ordinal, (where, event.type, event.ordinal, ordinal)
            assert event.epoch == epoch, (where, event.type, event.epoch, epoch)


def _check_pairs(events: Sequence[Envelope]) -> None:
    asked = {e.event_id: e for e in events if e.type.endswith("_requested.v1")}
    answers: dict[tuple[str, str], list[str]] = defaultdict(list)
    for event in events:
        if isinstance(event.data, Answer) and event.data.request_id in asked:
            answers[event.data.request_id, event.data.ASPECT].append(event.type)
    for request_id, event in asked.items():
        if event.type in EXEMPT:
            continue
        first, *others = event.data.wanted() or ("",)
        found = answers[request_id, first]
        assert len(found) == 1, (event.type, event.rollout_id, request_id, found)
        for aspect in others:
            assert len(answers[request_id, aspect]) <= 1, (event.type, event.rollout_id, request_id, aspect)


def check_ledger(events: Sequence[Envelope], ledger: Sequence[dict[str, Any]]) -> None:
    """Check I6 against the outside: tools at most once (none only if lost), models once for every recorded try."""
    tools = Counter(line["key"] for line in ledger if line["kind"] == "tool")
    models = Counter(line["key"] for line in ledger if line["kind"] == "model")
    lost = {e.data.request_id for e in events if isinstance(e.data, ToolCallLost)}
    failed = {e.data.request_id for e in events if e.type == "tool_call_failed.v1" and isinstance(e.data, Answer)}
    for event in events:
        if isinstance(event.data, ToolCallRequested):
            starts = tools[event.event_id]
            assert starts <= 1, f"tool call {event.event_id} started {starts} times"
            assert starts == 1 or event.event_id in lost | failed, (
                f"tool call {event.event_id} answered without a start"
            )
        if isinstance(event.data, ModelCallRequested):
            assert models[event.event_id] <= 1, f"try {event.event_id} was made {models[event.event_id]} times"
    known = {e.event_id for e in events}
    assert set(tools) <= known, "a tool ran that the log does not know"
    assert set(models) <= known, "a model was called that the log does not know"
