"""`gym-bus eval samples` on the log of a real run whose answers were given token ids: rows, sums, files and mistakes."""

from __future__ import annotations

import json
import math
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import duckdb
import pydantic_core
import pytest

from gym_bus.blobs import MemoryBlobs
from gym_bus.bus import Stored
from gym_bus.cli import eval_samples, questions
from gym_bus.cli.entry import run
from gym_bus.client import Answer
from gym_bus.clock import SystemClock
from gym_bus.codec import Codec
from gym_bus.event_log import EventLog
from gym_bus.subjects import matches
from projections import Question, answer
from projections.samples.files import COLUMNS
from projections.samples.sample import TrainingRow
from projections.store import Connection
from tests.support.call_story import hashed
from tests.support.logs import RUN, finished_log, project


def with_tokens(stored: list[Stored]) -> list[Stored]:
    """Return a log in which every answer of a model names its ids: one for each character of what was said."""
    whole: dict[str, list[int]] = {}
    asked: dict[str, tuple[str | None, list[int]]] = {}
    found: list[Stored] = []
    for one in stored:
        body = pydantic_core.from_json(one.body)
        data = body["data"]
        if body["type"] == "model_call_requested.v1":
            parent = data.get("parent_id")
            said = "".join(m.get("content") or "" for m in data["new_messages"])
            asked[body["event_id"]] = (parent, [*whole.get(parent, []), *map(ord, said), 0])
        if body["type"] == "model_call_completed.v1":
            parent, prompt = asked[data["request_id"]]
            base = whole.get(parent or "", [])
            generated = [*map(ord, data["message"].get("content") or "…"), 1]
            whole[data["request_id"]] = prompt + generated
            data["tokens"] = {
                "parent_id": parent if base else None,
                "shared": len(base),
                "prompt": prompt[len(base) :],
                "generated": generated,
                "logprobs": [-1.5] * len(generated),
                "digest": hashed(prompt + generated),
            }
        found.append(Stored(one.subject, pydantic_core.to_json(body), one.sequence))
    return found


class StoredBus:
    """Hands out stored events, as a bus reads them."""

    def __init__(self, stored: list[Stored]) -> None:
        self.stored = stored

    async def read(self, pattern: str, *, after: int = 0, latest: bool = False) -> AsyncIterator[Stored]:
        """Yield what is stored under `pattern`."""
        for one in self.stored:
            if matches(pattern, one.subject) and one.sequence > after:
                yield one


class Place:
    """Where the command finds its log and its projection."""

    def __init__(self, stored: list[Stored], blobs: MemoryBlobs) -> None:
        self.bus = StoredBus(stored)
        self.blobs = blobs
        self.connection: Connection = project(stored, blobs)

    @asynccontextmanager
    async def connect(self, settings: object) -> AsyncGenerator[StoredBus]:
        """Stand in for `connect_cli`."""
        yield self.bus

    def open_log(self, bus: Any, settings: object) -> EventLog:
        """Stand in for the client's."""
        return EventLog(bus, Codec(self.blobs), SystemClock(), worker="cli", patience_s=1)

    async def ask(self, settings: object, *asked: tuple[str, Any], max_rows: int = 10_000) -> list[questions.Told]:
        """Stand in for the projector."""
        told = []
        for sql, parameters in asked:
            found = answer(self.connection, Question(sql=sql, parameters=list(parameters), max_rows=max_rows))
            told.append(
                questions.Told(Answer(found["columns"], found["types"], found["rows"], truncated=found["truncated"]))
            )
        return told


pytestmark = pytest.mark.usefixtures("elsewhere")


def samples(place: Place, monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    monkeypatch.setattr(eval_samples, "connect_cli", place.connect)
    monkeypatch.setattr(eval_samples, "open_log", place.open_log)
    monkeypatch.setattr(questions, "ask", place.ask)
    return run(["eval", "samples", RUN, *arguments])


@pytest.fixture(scope="module")
def whole() -> Place:
    stored, blobs = finished_log()
    return Place(with_tokens(stored), blobs)


Shown = pytest.CaptureFixture[str]


def test_every_rollout_gives_its_row_with_its_reward(
    whole: Place, monkeypatch: pytest.MonkeyPatch, capsys: Shown, tmp_path: Path
) -> None:
    """Rows, sums and rewards are those of the log; pages of any size give the same file."""
    assert samples(whole, monkeypatch, "--out", "rows.jsonl", "--json") == 0
    summary = json.loads(capsys.readouterr().out)
    rows = [TrainingRow.model_validate_json(line) for line in Path("rows.jsonl").read_bytes().splitlines()]
    rewards = dict(whole.connection.execute("select rollout_id, reward from rollouts").fetchall())
    assert {row.rollout_id: row.reward for row in rows} == rewards
    assert summary["rollouts"] == {
        "planned": 12, "with_rows": 12, "without_rows": 0, "not_begun": 0,
        "scored": 12, "failed": 0, "masked": 0, "missing": 0,
    }  # fmt: skip
    assert summary["rows"]["all"] == summary["rows"]["main"] == len(rows) == 12
    assert summary["tokens"]["trained"] == sum(sum(row.loss_mask) for row in rows) > 0
    assert summary["violations"] == []
    assert all(row.task_id and row.task_id.startswith("sum/") for row in rows)
    failed = whole.connection.execute("select count(*) from model_calls where state = 'failed'").fetchone()
    assert failed is not None
    assert summary["excluded"]["failed"]["calls"] == failed[0] > 0
    monkeypatch.setattr(eval_samples, "PAGE", 5)
    assert samples(whole, monkeypatch, "--out", "again.jsonl") == 0
    assert Path("again.jsonl").read_bytes() == Path("rows.jsonl").read_bytes()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["again.jsonl", "rows.jsonl"]


def test_parquet_holds_the_same_rows_in_the_same_order(whole: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """Column by column; a logprob that there is not is null."""
    assert list(COLUMNS) == list(TrainingRow.model_fields)
    assert samples(whole, monkeypatch, "--out", "it's rows.parquet") == 0
    assert samples(whole, monkeypatch, "--out", "rows.jsonl") == 0
    cursor = duckdb.connect(":memory:").execute("select * from 'it''s rows.parquet'")
    names = [column[0] for column in cursor.description or []]
    table = [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]
    assert table == [json.loads(line) for line in Path("rows.jsonl").read_bytes().splitlines()]


def test_a_person_is_shown_denominators(whole: Place, monkeypatch: pytest.MonkeyPatch, capsys: Shown) -> None:
    """Of a run, or of one rollout."""
    assert samples(whole, monkeypatch) == 0
    shown = capsys.readouterr().out
    assert "rollouts: 12 planned = 12 with rows + 0 without + 0 not begun" in shown
    assert "12 planned = 12 scored + 0 failed + 0 masked + 0 missing" in shown
    assert "rows: 12 (12 main)" in shown
    assert samples(whole, monkeypatch, "--rollout", "0-1") == 0
    assert "1 planned = 1 scored" in capsys.readouterr().out


def test_a_run_that_is_going_on_has_rows_and_no_reward_that_is_not_there(
    whole: Place, monkeypatch: pytest.MonkeyPatch, capsys: Shown
) -> None:
    """The log up to where some rollouts are over: what is open counts as missing, its reward is null."""
    over = [n for n, one in enumerate(whole.bus.stored) if one.subject.endswith("rollout_finished")]
    half = Place(whole.bus.stored[: over[3] + 1], whole.blobs)
    assert samples(half, monkeypatch, "--out", "rows.jsonl", "--json") == 0
    summary = json.loads(capsys.readouterr().out)
    rows = [json.loads(line) for line in Path("rows.jsonl").read_bytes().splitlines()]
    assert summary["rollouts"]["planned"] == 12
    assert summary["rollouts"]["missing"] > 0
    assert {row["reward"] for row in rows if row["state"] == "running"} == {None}
    assert any(row["reward"] is not None for row in rows)


def test_an_event_that_cannot_be_read_is_a_violation(
    whole: Place, monkeypatch: pytest.MonkeyPatch, capsys: Shown
) -> None:
    """The others are read all the same; the exit code says that something is missing."""
    broken = Place(list(whole.bus.stored), whole.blobs)
    n = next(n for n, one in enumerate(broken.bus.stored) if one.subject.endswith("model_call_completed"))
    broken.bus.stored[n] = Stored(broken.bus.stored[n].subject, b"{}", broken.bus.stored[n].sequence)
    assert samples(broken, monkeypatch) == 1
    shown = capsys.readouterr()
    assert f"event {broken.bus.stored[n].sequence} cannot be read" in shown.err
    assert "12 planned" in shown.out


def test_a_failed_checker_is_an_exit_code(whole: Place, monkeypatch: pytest.MonkeyPatch, capsys: Shown) -> None:
    """The violations are on standard error, the first of them."""
    monkeypatch.setattr("projections.samples.totals.check", lambda made: ("it is wrong",) * 3)
    assert samples(whole, monkeypatch) == 1
    shown = capsys.readouterr().err
    assert "rollout 0-0 attempt 1: it is wrong" in shown
    assert "and 16 more" in shown


def test_of_an_earlier_attempt_nothing_is_trained_and_all_is_counted(
    whole: Place, monkeypatch: pytest.MonkeyPatch, capsys: Shown
) -> None:
    """Rows are of the attempt that the rollout's state is about."""
    retried = Place(whole.bus.stored, whole.blobs)
    retried.connection.execute(
        "insert into session_requested select * replace (2 as attempt) from session_requested where rollout_id = '0-0'"
    )
    assert samples(retried, monkeypatch, "--json") == 0
    summary = json.loads(capsys.readouterr().out)
    assert summary["rollouts"]["without_rows"] == 1
    assert summary["excluded"]["earlier_attempt"]["calls"] >= 2
    assert summary["excluded"]["earlier_attempt"]["tokens"] > 0


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["--rollout", "77-0"], 1, "has no rollout '77-0'"),
        (["--rollout", "a b"], 1, "is no name: one has 1 to 64 of the characters"),
        (["--out", "rows.csv"], 2, "has to end in .jsonl or .parquet"),
        (["--out", "nowhere/rows.jsonl"], 2, "nowhere is no directory"),
    ],
)
def test_mistakes_are_one_line(
    whole: Place, monkeypatch: pytest.MonkeyPatch, capsys: Shown, arguments: list[str], code: int, words: str
) -> None:
    """And write nothing."""
    assert samples(whole, monkeypatch, *arguments) == code
    shown = capsys.readouterr().err
    assert shown.startswith("error: ")
    assert words in shown
    assert list(Path().iterdir()) == []


def test_an_unknown_run_is_said_to_be_none(whole: Place, monkeypatch: pytest.MonkeyPatch, capsys: Shown) -> None:
    """With what lists those that there are."""
    monkeypatch.setattr(questions, "ask", whole.ask)
    assert run(["eval", "samples", "nope"]) == 1
    assert "there is no run 'nope': `gym-bus eval status` lists them" in capsys.readouterr().err


def test_a_file_is_replaced_as_a_whole_or_not_at_all(
    whole: Place, monkeypatch: pytest.MonkeyPatch, capsys: Shown
) -> None:
    """An error in the middle leaves the old file as it was, and nothing beside it."""
    Path("rows.jsonl").write_text("old\n")
    monkeypatch.setattr(TrainingRow, "of", lambda *_: math.sqrt(-1))
    with pytest.raises(ValueError, match=r"math domain|nonnegative"):
        samples(whole, monkeypatch, "--out", "rows.jsonl")
    assert Path("rows.jsonl").read_text() == "old\n"
    assert [path.name for path in Path().iterdir()] == ["rows.jsonl"]
