"""Metrics and result files: every number with its denominator, the same bytes every time."""

from __future__ import annotations

import hashlib
import json
import math
from pathlib import Path
from typing import Any

import pytest

from gym_bus.bus import Stored
from gym_bus.errors import Permanent
from projections import Ingest, Question, answer, export, memory_store, metrics_of
from projections.metrics import Row, dataset_of, interval, pass_at_k, summarize, t_quantile
from projections.store import Connection, lock_down
from schemas.config import HarborTaskset, JsonlTaskset
from tests.support.logs import RUN, batch, finished_log, project, simulate
from tests.support.world import World, config


def at(tmp_path: Path) -> Connection:
    """Return a projection whose results go to `out`."""
    stored, blobs = finished_log()
    there = json.dumps(str(tmp_path / "out"))[1:-1].encode()
    moved = [Stored(s.subject, s.body.replace(b"/nonexistent", there), s.sequence) for s in stored]
    return project(moved, blobs)


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().split("\n") if line]


def test_pass_at_k_is_the_unbiased_estimate() -> None:
    """One task with rewards (1, 0): pass@1 is a half, pass@2 is one; a task with too few is left out and counted."""
    found = pass_at_k([[1.0, 0.0], [0.0]], planned=3)
    assert found["1"] == {"value": 0.25, "tasks": 2, "excluded_tasks": 1}
    assert found["2"] == {"value": 1.0, "tasks": 1, "excluded_tasks": 2}
    wrong, n, k = 7, 10, 3
    expected = 1 - math.comb(wrong, k) / math.comb(n, k)
    assert pass_at_k([[1.0] * (n - wrong) + [0.0] * wrong], 1)[str(k)]["value"] == pytest.approx(expected)


def test_a_failure_is_never_a_reward() -> None:
    """Case 30 to 33: the mean is over what was scored, and what was not is counted beside it."""
    rows = [
        Row("a/0", 0, "scored", 1.0),
        Row("a/0", 1, "failed", None),
        Row("a/1", 0, "missing", None),
        Row("b/0", 0, "masked", 0.0),
    ]
    found = summarize(rows)
    assert (found["mean_reward"], found["mean_reward_over"]) == (1.0, 1)
    assert found["tasks"] == {
        "planned": 3,
        "with_a_score": 1,
        "without_a_score": 2,
        "without_a_score_ids": ["a/1", "b/0"],
    }
    assert found["pass_at_k"]["1"] == {"value": 1.0, "tasks": 1, "excluded_tasks": 2}
    assert summarize([])["mean_reward"] is None
    assert summarize([Row("a/0", 0, "failed", None)])["pass_at_k"] == {}


@pytest.mark.parametrize(
    ("freedom", "value"), [(1, 12.7062), (2, 4.30265), (3, 3.18245), (4, 2.77645), (9, 2.26216), (30, 2.04227)]
)
def test_t_quantiles(freedom: int, value: float) -> None:
    assert t_quantile(freedom) == pytest.approx(value, abs=1e-4)


def test_an_interval_needs_two_observations() -> None:
    assert interval([1.0]) is None
    found = interval([0.0, 2.0])
    assert found is not None
    assert found["high"] - found["mean"] == pytest.approx(12.7062, abs=1e-3)
    assert found["mean"] - found["low"] == pytest.approx(12.7062, abs=1e-3)


@pytest.mark.parametrize(
    ("observations", "low", "high"),
    [([0.0, 1.0], 0.0, 1.0), ([1.0, 1.0, 0.5], 0.116, 1.0), ([0.5, 0.5], 0.5, 0.5), ([-0.1, 1.0], -6.538, 7.438)],
)
def test_an_interval_is_no_wider_than_the_scale(observations: list[float], low: float, high: float) -> None:
    """Rewards between 0 and 1 have a mean between them; of others nothing is cut."""
    found = interval(observations)
    assert found is not None
    assert (found["low"], found["high"]) == (pytest.approx(low, abs=1e-3), pytest.approx(high, abs=1e-3))


@pytest.mark.parametrize(
    ("task", "dataset"),
    [("reasoning_gym/chain_sum/42/7", "reasoning_gym/chain_sum"), ("gsm8k/ab12", "gsm8k"), ("alone", ""), ("", "")],
)
def test_datasets(task: str, dataset: str) -> None:
    assert dataset_of(task) == dataset


def test_results_are_the_same_bytes_again(tmp_path: Path) -> None:
    """Two exports agree to the byte, and the manifest's digests are those of the files."""
    connection = at(tmp_path)
    paths = {name: Path(path) for name, path in export(connection, RUN).items()}
    first = {name: path.read_bytes() for name, path in paths.items()}
    export(connection, RUN)
    assert {name: path.read_bytes() for name, path in paths.items()} == first
    manifest = json.loads(first["manifest.json"])
    for name, file in manifest["files"].items():
        assert hashlib.sha256(first[name]).hexdigest() == file["sha256"]
    assert manifest["counts"] == {"planned": 12, "scored": 12, "failed": 0, "masked": 0, "missing": 0}
    assert manifest["config"]["retries"]["max_attempts"] == 3, "defaults are written out"
    rows = lines(paths["rollouts.jsonl"])
    assert [(r["_ng_task_index"], r["_ng_rollout_index"]) for r in rows] == [(t, r) for t in range(6) for r in range(2)]
    assert not list(paths["manifest.json"].parent.glob("*.new"))


def test_counts_add_up_in_the_metrics(tmp_path: Path) -> None:
    metrics = metrics_of(at(tmp_path), RUN)
    for counts in (metrics["counts"], *(d["counts"] for d in metrics["by_dataset"].values())):
        assert counts["planned"] == counts["scored"] + counts["failed"] + counts["masked"] + counts["missing"]
    assert metrics["ci95_across_repeats"]["observations"] == 2


def test_rows_with_ids_of_their_own_are_of_their_file() -> None:
    """A task whose id names no dataset counts to the taskset: its name, the file's without the ending, or the folder's."""

    async def work(world: World) -> None:
        for n, task in enumerate(world.tasks):
            world.tasks[n] = task.model_copy(update={"input": task.input.model_copy(update={"task_id": f"q{n}"})})
        world.start_host()
        for run_id, name in (("named", "gsm"), ("plain", None)):
            taskset = JsonlTaskset(jsonl_fpath="/data/questions.v2.jsonl", name=name)
            await world.request_run(run_id, config(taskset=taskset))
            await world.finished(run_id)
        await world.request_run("folder", config(taskset=HarborTaskset(path="/data/tasks.v2")))
        await world.finished("folder")

    world = simulate(work, tasks=2)
    connection = project(list(world.server.events), world.blobs)
    assert list(metrics_of(connection, "named")["by_dataset"]) == ["gsm"]
    assert list(metrics_of(connection, "plain")["by_dataset"]) == ["questions.v2"]
    assert list(metrics_of(connection, "folder")["by_dataset"]) == ["tasks.v2"]


def test_failed_and_cut_short_rollouts_are_in_the_failures(tmp_path: Path) -> None:
    """A rollout that failed has a row with its failure and no reward; it is not among the scored ones."""
    connection = at(tmp_path)
    connection.execute(
        "update rollout_finished set state = 'exhausted', reward = null, failure_kind = 'sandbox_lost',"
        " failure_message = 'gone\u2028' where rollout_id = '1-0'"
    )
    connection.execute("delete from rollout_finished where rollout_id = '2-0'")
    paths = export(connection, RUN)
    failures = lines(Path(paths["failures.jsonl"]))
    assert [(f["rollout_id"], f["state"], f["failure_kind"], f["counted_as"]) for f in failures] == [
        ("1-0", "exhausted", "sandbox_lost", "failed")
    ]
    assert "\u2028" not in Path(paths["failures.jsonl"]).read_text()
    assert {"1-0", "2-0"}.isdisjoint(r["rollout_id"] for r in lines(Path(paths["rollouts.jsonl"])))
    assert json.loads(Path(paths["metrics.json"]).read_text())["counts"] == {
        "planned": 12, "scored": 10, "failed": 1, "masked": 0, "missing": 1,
    }  # fmt: skip


def test_an_unknown_run_has_no_results() -> None:
    with pytest.raises(Permanent, match="not known"):
        export(memory_store(), "nobody")


REFUSED = [
    "insert into events select * from events",
    "select 1; drop table events",
    "drop table events",
    "explain analyze delete from events",
    "with x as (delete from events returning *) select * from x",
    "select * from read_text('/etc/passwd')",
    "select * from glob('/*')",
    "copy events to '/tmp/x.csv'",
    "attach '/tmp/x.db'",
    "set memory_limit = '1TB'",
    "pragma database_list",
    "call pragma_version()",
    "install httpfs",
    "select * from 'https://example.org/x.csv'",
    "begin",
    "",
    "select",
    "select getenv('HOME')",
]


@pytest.mark.parametrize("sql", REFUSED)
def test_only_reading_is_answered(sql: str) -> None:
    """What is not one statement that reads the projection is refused, and nothing has changed."""
    stored, blobs = finished_log()
    connection = memory_store()
    Ingest(connection, blobs).apply(batch(stored))
    lock_down(connection)
    with pytest.raises(Permanent):
        answer(connection, Question(sql=sql))
    assert connection.execute("select count(*) from events").fetchone() == (len(stored),)


def test_answers_are_json_and_bounded() -> None:
    """Parameters are values, odd types become JSON's, long answers end early and say so."""
    connection = memory_store()
    odd = answer(
        connection,
        Question(sql="select ?::varchar, 1.5::decimal(4, 2), 'nan'::double, '\\x01'::blob", parameters=["';--"]),
    )
    assert odd["rows"][0][:2] == ["';--", 1.5]
    json.dumps(odd)
    twice = answer(connection, Question(sql="select 1 a, 2 a, 3 a_1"))
    assert (twice["columns"], twice["rows"]) == (["a", "a_1", "a_1_1"], [[1, 2, 3]]), "no column hides another"
    few = answer(connection, Question(sql="select * from range(10)", max_rows=3))
    assert (len(few["rows"]), few["truncated"]) == (3, True)
    rest = answer(connection, Question(sql="select * from range(10)", offset=8))
    assert (rest["rows"], rest["truncated"]) == ([[8], [9]], False)
    large = answer(connection, Question(sql="select repeat('x', 1000) from range(2000)"))
    assert large["truncated"]
    assert len(json.dumps(large)) < 1_000_000
    with pytest.raises(Permanent, match="select less"):
        answer(connection, Question(sql="select repeat('x', 1000000)"))


def test_a_long_query_is_ended() -> None:
    with pytest.raises(Permanent, match=r"ended after 0\.2 s"):
        answer(memory_store(), Question(sql="select count(*) from range(100000000) a, range(100000) b", timeout_s=0.2))
