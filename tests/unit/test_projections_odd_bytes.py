"""What is stored and is no event: it is quarantined with its bytes, and everything around it goes in."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pytest

from gym_bus.blobs import MemoryBlobs
from gym_bus.bus import Stored
from gym_bus.codec import Codec, Head
from projections import Ingest, fingerprint, memory_store
from schemas.events import ToolCallCompleted, VerdictIssued
from tests.support.logs import batch, project

SUBJECT = "gym.evt.0.r1.0-0.verifier.v1.verdict_issued"
TOOL = "gym.evt.0.r1.0-0.sandbox.b1.tool_call_completed"
TEXTS = [
    "'; drop table events; --",
    "$1 {x} %s \\ \" '",
    "nul \x00 and \x1b[31m and \u2028 \u2029 \x85",
    '{"$blob":{"sha256":"x"}}',
    "NaN, Infinity, [1,2,], -inf",
    "漢字 🦆 \ufffe",
    "a\nb\r\nc",
]


def head(**changes: Any) -> dict[str, Any]:
    base = {
        "event_id": "e1",
        "type": "verdict_issued.v1",
        "attempt": 1,
        "epoch": 1,
        "ordinal": 1,
        "recorded_at": "2026-01-01T00:00:00.000Z",
        "data": {"request_id": "q", "reward": 1.0, "evidence_digest": "d", "verifier_version": "v"},
    }
    return {**base, **changes}


def verdict(**changes: Any) -> dict[str, Any]:
    return head(data={**head()["data"], **changes})


GOOD = json.dumps(head(event_id="good")).encode()
BAD: list[tuple[str, bytes]] = [
    ("torn", GOOD[:40]),
    ("empty", b""),
    ("no object", b"[1,2]"),
    ("null", b"null"),
    ("not UTF-8", b'{"event_id":"\xff\xfe"}'),
    ("unknown type", json.dumps(head(type="from_the_future.v1")).encode()),
    ("future version", json.dumps(head(type="verdict_issued.v9")).encode()),
    ("type beside its subject", json.dumps(head(type="verdict_failed.v1")).encode()),
    ("no data", json.dumps({k: v for k, v in head().items() if k != "data"}).encode()),
    ("data a list", json.dumps(head(data=[])).encode()),
    ("data a string", json.dumps(head(data="{abc")).encode()),
    ("extra field", json.dumps(verdict(reward="much")).encode()),
    ("missing field", json.dumps(head(data={"request_id": "q"})).encode()),
    ("NaN", GOOD.replace(b"1.0", b"NaN")),
    ("1e400", GOOD.replace(b"1.0", b"1e400")),
    ("infinity as text", GOOD.replace(b"1.0", b'"inf"')),
    ("trailing comma", GOOD.replace(b'"v"}', b'"v",}')),
    ("lone surrogate", GOOD.replace(b'"v"', b'"\\ud800"')),
    ("deep", GOOD.replace(b'"v"', b"[" * 10_000 + b"]" * 10_000)),
    ("blob that is not there", json.dumps(head(data={"$blob": {"sha256": "0" * 64, "size": 1}})).encode()),
    ("blob that is none", json.dumps(head(data={"$blob": 5})).encode()),
    ("attempt is text", json.dumps(head(attempt="one")).encode()),
    ("attempt is huge", json.dumps(head(attempt=10**30)).encode()),
    ("time is none", json.dumps(head(recorded_at="yesterday")).encode()),
    ("id is missing", json.dumps({k: v for k, v in head().items() if k != "event_id"}).encode()),
]


@pytest.mark.parametrize(("name", "body"), BAD, ids=[name for name, _ in BAD])
def test_a_bad_event_is_quarantined_alone(name: str, body: bytes) -> None:
    """Alone or between good ones, the same event is set aside, and its neighbours are taken in."""
    good = [Stored(SUBJECT, GOOD.replace(b"good", b"good%d" % n), n) for n in (1, 3)]
    connection = memory_store()
    ingest = Ingest(connection, MemoryBlobs())
    applied = ingest.apply(batch([good[0], Stored(SUBJECT, body, 2), good[1]]))
    assert (applied.events, applied.quarantined) == (2, 1), name
    assert connection.execute("select count(*) from events").fetchone() == (2,)
    assert connection.execute("select seq, subject from quarantine").fetchall() == [(2, SUBJECT)]
    assert ingest.cursor == {0: 3}
    alone = memory_store()
    applied = Ingest(alone, MemoryBlobs()).apply(batch([Stored(SUBJECT, body, 1)]))
    assert (applied.events, applied.quarantined) == (0, 1)


@pytest.mark.parametrize("subject", ["gym.evt.0.r1", "gym.evt.x.r1.0-0.verifier.v1.verdict_issued", "other"])
def test_a_subject_that_is_none_is_quarantined(subject: str) -> None:
    connection = memory_store()
    applied = Ingest(connection, MemoryBlobs()).apply(batch([Stored(subject, GOOD, 1)]))
    assert (applied.events, applied.quarantined) == (0, 1)


def test_all_bad_events_together_leave_the_good_ones() -> None:
    """One batch with every kind of bad event in it: counts add up to what is stored."""
    stored = [Stored(SUBJECT, body, 2 * n + 1) for n, (_, body) in enumerate(BAD)]
    stored += [Stored(SUBJECT, GOOD.replace(b"good", b"good%d" % n), 2 * n + 2) for n in range(len(BAD))]
    stored.sort(key=lambda s: s.sequence)
    connection = project(stored)
    assert connection.execute("select count(*) from events").fetchone() == (len(BAD),)
    assert connection.execute("select count(*) from quarantine").fetchone() == (len(BAD),)
    one_by_one = memory_store()
    ingest = Ingest(one_by_one, MemoryBlobs())
    for n, event in enumerate(stored):
        ingest.apply(batch([event], after=n))
    assert fingerprint(one_by_one) == fingerprint(connection)


@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize("inline_max", [10, 100_000])
def test_odd_payloads_are_stored_as_they_are(text: str, inline_max: int) -> None:
    """SQL, markup, control characters and blobs in a payload are text and nothing else."""
    blobs = MemoryBlobs()
    data = ToolCallCompleted(request_id="q", exit_code=0, output=text, output_bytes=len(text), duration_s=0.1)
    at = datetime(2026, 1, 1, tzinfo=UTC)
    body = Codec(blobs, inline_max_bytes=inline_max).encode(Head("e", 1, 1, 1, None, at), data)
    connection = project([Stored(TOOL, body, 1)], blobs)
    assert connection.execute("select data->>'$.output', event_id, recorded_at from events").fetchone() == (
        text, "e", datetime(2026, 1, 1),  # noqa: DTZ001  times are UTC without a zone
    )  # fmt: skip
    assert connection.execute("select count(*) from tool_call_answered where request_id = 'q'").fetchone() == (1,)


def test_an_old_version_is_lifted() -> None:
    """An event of an old version goes through the upcasters."""
    old = json.dumps(head(type="verdict_issued.v0", data={"request_id": "q", "score": 1})).encode()
    connection = memory_store()
    ingest = Ingest(connection, MemoryBlobs())

    def lift(data: dict[str, Any]) -> tuple[str, dict[str, Any]]:
        return VerdictIssued.TYPE, {
            "request_id": data["request_id"], "reward": data["score"], "evidence_digest": "d", "verifier_version": "v",
        }  # fmt: skip

    ingest._codec = Codec(MemoryBlobs(), upcasters={"verdict_issued.v0": lift})
    assert ingest.apply(batch([Stored(SUBJECT, old, 1)])).events == 1
    assert connection.execute("select reward, request_id from verdicts").fetchone() == (1.0, "q")
