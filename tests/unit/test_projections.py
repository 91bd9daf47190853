"""The projection of what real actors wrote: views, standing, invariants, and that any way of reading gives the same."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from actors.collector.room import Room
from gym_bus.blobs import MemoryBlobs
from gym_bus.bus import Stored
from gym_bus.cli import questions
from gym_bus.codec import Codec, Head
from projections import Batch, Gap, Ingest, fingerprint, memory_store, open_store, queries, resume_state_of, violations
from projections.invariants import statements
from schemas.config import ScriptedModel
from schemas.envelope import Envelope
from schemas.events import (
    ModelCallCompleted,
    ModelCallLost,
    RolloutFinished,
    RunCancelRequested,
    RunFinished,
    RunPaused,
    RunRequested,
    SessionClosed,
    SessionRequested,
)
from schemas.events.collector import COUNTED_AS
from schemas.registry import EVENT_TYPES
from schemas.values import HALTING, Message, Usage
from tests.support.logs import RUN, batch, finished_log, project, simulate
from tests.support.world import World, config


def envelopes(stored: list[Stored], blobs: MemoryBlobs) -> list[Envelope]:
    codec = Codec(blobs)
    return [codec.decode(s.subject, s.body, s.sequence) for s in stored]


def test_every_type_and_state_is_known_to_the_sql() -> None:
    """A new event type or state of a rollout cannot be forgotten in the SQL."""
    connection = memory_store()
    Ingest(connection, MemoryBlobs())
    assert {r[0] for r in connection.execute("select type from required").fetchall()} == set(EVENT_TYPES)
    counted = dict(connection.execute("select state, counted from counted_as").fetchall())
    assert {state: counted[state] for state in COUNTED_AS} == COUNTED_AS
    halting = {f"'{kind}'" for kind in HALTING}
    assert all(kind in queries.text("views/03_rollouts") for kind in halting)
    typed = [types for types, _ in queries.typed_inserts()]
    assert len(frozenset[str]().union(*typed)) == sum(map(len, typed)), "a type fills one typed table"


def test_what_the_typed_tables_may_not_miss_is_what_doubt_looks_for() -> None:
    """Each field that `required` names is one that the statement of its type takes, and the other way round."""
    connection = memory_store()
    Ingest(connection, MemoryBlobs())
    required = {
        t: {f.split(" ")[0] for f in fields} for t, fields in connection.execute("select * from required").fetchall()
    }
    text = queries.text("ingest/insert_typed")
    for part in text.split("-- types: ")[1:]:
        types, _, statement = part.partition("\n")
        used = {m.split("'")[1] for m in statement.split("field(x, ")[1:]}
        for type_ in types.split():
            assert required[type_] <= used, type_


def test_run_and_rollouts_say_what_the_log_says() -> None:
    """Counts, rewards, tries and answers of the views are those of the events."""
    stored, blobs = finished_log()
    events = envelopes(stored, blobs)
    connection = project(stored, blobs)
    run = connection.execute("select state, planned, scored, failed, masked, missing, open, tasks from runs").fetchone()
    assert run == ("completed", 12, 12, 0, 0, 0, 0, 6)
    ends = {e.rollout_id: (e.data.state, e.data.reward) for e in events if isinstance(e.data, RolloutFinished)}
    rows = connection.execute("select rollout_id, state, reward from rollouts").fetchall()
    assert {r[0]: (r[1], r[2]) for r in rows} == ends
    tries = Counter(e.rollout_id for e in events if e.type == "model_call_requested.v1")
    assert dict(connection.execute("select rollout_id, tries from rollouts").fetchall()) == dict(tries)
    answers = {e.rollout_id: e.data.evidence.answer for e in events if isinstance(e.data, SessionClosed)}
    assert dict(connection.execute("select rollout_id, answer from rollouts").fetchall()) == answers
    assert violations(connection) == {}


def standing_from_events(events: list[Envelope]) -> tuple[dict[str, Any], dict[str, tuple[int, str]]]:
    """Return finished rollouts and open ones (attempt and stage), folded the plain way."""
    done: dict[str, Any] = {}
    begun: dict[str, tuple[int, str]] = {}
    for e in events:
        match e.data:
            case SessionRequested():
                begun[e.rollout_id] = (e.attempt, "session")
            case SessionClosed():
                begun[e.rollout_id] = (e.attempt, "verdict")
            case RolloutFinished(retry_at=None):
                done[e.rollout_id] = (e.data.state, e.data.reward)
                begun.pop(e.rollout_id, None)
            case RolloutFinished():
                begun[e.rollout_id] = (e.attempt + 1, "retry")
            case _:
                pass
    return done, begun


def test_resume_state_is_right_after_every_event() -> None:
    """Whatever prefix of the log is projected, what is done and what is open is what the events say."""
    stored, blobs = finished_log(3, 1)
    events = envelopes(stored, blobs)
    connection = memory_store()
    ingest = Ingest(connection, blobs)
    for n in range(1, len(stored) + 1):
        ingest.apply(batch(stored[n - 1 : n], after=n - 1))
        if n % 3 and n != len(stored):
            continue
        resume = resume_state_of(connection, RUN)
        done, begun = standing_from_events(events[:n])
        assert {k: (v.state, v.reward) for k, v in resume.finished.items()} == done
        assert {k: (v.attempt, v.stage) for k, v in resume.open.items()} == begun
        assert violations(connection) == {}
    assert resume_state_of(connection, RUN).state == "finished"


def test_incremental_rebuilt_and_shuffled_projections_are_equal() -> None:
    """I9: grown event by event, at once, or from shuffled batches with duplicates: the same fingerprint."""
    stored, blobs = finished_log()
    whole = fingerprint(project(stored, blobs))
    grown = memory_store()
    ingest = Ingest(grown, blobs)
    for i in range(0, len(stored), 7):
        ingest.apply(batch(stored[max(0, i - 3) : i + 7], after=max(0, i - 3)))
    assert fingerprint(grown) == whole
    for seed in range(3):
        rng = random.Random(seed)
        pieces = [batch(stored[i : i + 20], after=i) for i in range(0, len(stored), 20)] * 2
        pieces = [
            Batch(0, p.after, rng.sample([*p.items, *p.items[:5]], len(p.items) + len(p.items[:5]))) for p in pieces
        ]
        rng.shuffle(pieces)
        shuffled = memory_store()
        ingest = Ingest(shuffled, blobs)
        while pieces:
            piece = pieces.pop(0)
            try:
                ingest.apply(piece)
            except Gap:
                pieces.append(piece)
        assert fingerprint(shuffled) == whole


def test_a_batch_that_starts_too_late_is_refused_as_a_whole() -> None:
    """A gap is never projected."""
    stored, blobs = finished_log()
    connection = memory_store()
    ingest = Ingest(connection, blobs)
    with pytest.raises(Gap):
        ingest.apply(batch(stored[5:9], after=5))
    assert connection.execute("select count(*) from events").fetchone() == (0,)


def test_a_paused_run_with_halted_rollouts_can_be_resumed_from_the_projection() -> None:
    """A run that paused says so; what halted waits for a retry and used up no attempt."""

    async def work(world: World) -> None:
        world.room = Room(-1, "the store is full")
        world.start_host()
        await world.request_run(RUN, config(num_repeats=2))
        async with asyncio.timeout(60):
            while not world.events(RunPaused):
                await asyncio.sleep(0.1)

    world = simulate(work, tasks=2)
    connection = project(list(world.server.events), world.blobs)
    resume = resume_state_of(connection, RUN)
    assert (resume.state, resume.planned, resume.finished) == ("paused", 4, {})
    assert connection.execute("select state, missing from runs").fetchone() == ("paused", 4)
    assert connection.execute("select count(*) from rollouts where state = 'planned'").fetchone() == (4,)


def test_a_cancelled_run_counts_as_its_end_says() -> None:
    """What was cut short is missing, with whatever failed before; the view's counts are the run's own."""

    async def work(world: World) -> None:
        world.start_host()
        slow = ScriptedModel(latency_s=2.0, failure_rate=0.3)
        await world.request_run(RUN, config(num_repeats=3, model=slow, num_samples_in_parallel=4))
        await asyncio.sleep(9)
        await world.control(RUN, RunCancelRequested(reason="enough"), "1")
        await world.finished(RUN)
        await world.quiet()

    world = simulate(work, tasks=8)
    connection = project(list(world.server.events), world.blobs)
    finished = world.events(RunFinished)[0].data
    assert isinstance(finished, RunFinished)
    assert finished.missing > 0
    counts = connection.execute("select state, planned, scored, failed, masked, missing, open from runs").fetchone()
    assert counts == (
        "cancelled", finished.planned, finished.scored, finished.failed, finished.masked, finished.missing, 0,
    )  # fmt: skip
    assert violations(connection) == {}
    assert resume_state_of(connection, RUN).open == {}
    kept = connection.execute(questions.FAILURES, [RUN, 1000]).fetchall()
    with_reason = sum(count for counted, _, _, count in kept if counted == "missing")
    never_begun, cut_short = connection.execute(questions.MISSING, [RUN]).fetchone() or (0, 0)
    assert with_reason + never_begun + cut_short == finished.missing
    assert never_begun > 0


def test_a_run_whose_host_was_killed_shows_it() -> None:
    """Takeovers, lost calls and lost machines are counted; the invariants hold; nothing is left to resume."""

    async def work(world: World) -> None:
        world.start_host()
        await world.request_run(RUN, config(num_repeats=2, model=ScriptedModel(latency_s=0.5)))
        await asyncio.sleep(1.2)
        world.hosts["h0"].kill()
        world.start_host()
        await world.finished(RUN)
        await world.quiet()

    world = simulate(work, tasks=6)
    connection = project(list(world.server.events), world.blobs)
    row = connection.execute("select takeovers, lost_model_calls, unanswered from run_diagnostics").fetchone()
    assert row is not None
    assert row[0] > 0
    assert row[1] == len(world.events(ModelCallLost))
    assert row[2] == 0
    assert violations(connection) == {}
    assert len(resume_state_of(connection, RUN).finished) == 12


def test_a_run_that_is_not_started_has_a_row() -> None:
    """A request nobody took is seen as requested."""

    async def work(world: World) -> None:
        await world.request_run(RUN, config())

    world = simulate(work)
    assert world.events(RunRequested)
    connection = project(list(world.server.events), world.blobs)
    assert connection.execute("select state, planned from runs").fetchone() == ("requested", 0)
    assert resume_state_of(connection, RUN).state == "open"


TAMPERED: list[tuple[str, str]] = [
    ("i2_no_duplicate", "insert into events select * from events where type = 'verdict_issued.v1' limit 1"),
    ("i3_order", "update events set ordinal = ordinal + 1 where type = 'session_closed.v1'"),
    ("i3_order", "update events set causation_id = 'nobody' where type = 'session_closed.v1'"),
    ("i4_one_writer", "update events set epoch = epoch - 1 where type = 'session_closed.v1'"),
    ("i5_pairing", "delete from events where type = 'sandbox_created.v1'"),
    ("i5_pairing", "update events set request_id = 'nobody' where type = 'verdict_issued.v1'"),
    (
        "i6_effect_once",
        "insert into model_call_answered select * from model_call_answered where state = 'completed' limit 1",
    ),
    ("i6_effect_once", "insert into tool_call_answered select * from tool_call_answered limit 1"),
    ("i7_one_ending", "insert into rollout_finished select * from rollout_finished limit 1"),
    ("i7_one_ending", "insert into run_finished select * from run_finished"),
    ("i8_honest_reward", "update rollout_finished set reward = reward + 1"),
    ("i8_honest_reward", "update verdicts set evidence_digest = 'other'"),
    ("i8_honest_reward", "update rollout_finished set failure_kind = 'internal', failure_message = ''"),
    ("i10_balance", "delete from sandbox_changes where state = 'destroyed'"),
    ("i12_bounds", "update rollout_finished set attempt = 4"),
    ("i14_liveness", "delete from rollout_finished where rollout_id = '0-0'"),
    ("i14_liveness", "update run_finished set scored = scored - 1, failed = failed + 1"),
]


@pytest.mark.parametrize(("name", "change"), TAMPERED)
def test_an_invariant_sees_its_violation(name: str, change: str) -> None:
    """Each invariant's query finds what was broken."""
    stored, blobs = finished_log()
    connection = project(stored, blobs)
    connection.execute(change)
    assert name in violations(connection)


def test_every_invariant_can_fail() -> None:
    """No query without a case above."""
    assert {name for name, _ in TAMPERED} == set(statements())


def _large(count: int, size: int) -> tuple[list[Stored], MemoryBlobs]:
    """Return answers of models, each with `size` characters, as the log holds them: in blobs."""
    blobs = MemoryBlobs()
    codec = Codec(blobs)
    stored = []
    for n in range(count):
        message = Message(role="assistant", content=f"{n}" + "x" * size)
        data = ModelCallCompleted(
            request_id=f"q{n}", turn=1, message=message, stop_reason="stop", usage=Usage(), duration_s=0.1
        )
        head = Head(f"e{n}", 1, 1, n + 1, None, datetime(2026, 1, 1, tzinfo=UTC))
        subject = f"gym.evt.0.r1.{n}-0.model.s1.model_call_completed"
        stored.append(Stored(subject, codec.encode(head, data), n + 1))
    return stored, blobs


def test_large_events_are_taken_in_within_the_memory(tmp_path: Path) -> None:
    """Sixty answers of a megabyte each, with a tenth of the usual memory: all rows are there, nothing waits for ever."""
    stored, blobs = _large(60, 1_000_000)
    connection = open_store(tmp_path / "p.duckdb", memory_limit="150MB")
    applied = Ingest(connection, blobs).apply(batch(stored))
    assert (applied.events, applied.quarantined) == (60, 0)
    assert connection.execute("select count(*) from events").fetchone() == (60,)
    connection.close()


def test_an_event_too_large_for_the_memory_is_set_aside_alone(tmp_path: Path) -> None:
    """Its neighbours are taken in; it is in the quarantine with the reason; the cursor goes on."""
    stored, blobs = _large(3, 1_000)
    huge, more = _large(1, 60_000_000)
    blobs._content.update(more._content)
    moved = Stored(huge[0].subject.replace("0-0", "9-0"), huge[0].body.replace(b'"e0"', b'"e9"'), 4)
    connection = open_store(tmp_path / "p.duckdb", memory_limit="120MB")
    ingest = Ingest(connection, blobs)
    applied = ingest.apply(batch([*stored, moved]))
    assert (applied.events, applied.quarantined) == (3, 1)
    assert ingest.cursor[0] == 4
    assert "too large" in str(connection.execute("select reason from quarantine").fetchone())
    connection.close()
