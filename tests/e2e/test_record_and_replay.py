"""A run of real processes, written into a file by the command line, and run again from it by another."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from schemas.events import ModelCallCompleted, ModelCallFailed
from tests.support.real_run import RealRun


@pytest.fixture
def run(tmp_path: Path) -> Iterator[RealRun]:
    place = RealRun(tmp_path, run_id="r1")
    yield place
    if place.pids():
        place.stop()
    assert not place.pids()


def rows(run: RealRun) -> list[dict[str, Any]]:
    """Return what came of each rollout."""
    kept = ("task_id", "repeat", "state", "reward", "answer", "stop_reason", "usage")
    return sorted(({name: row[name] for name in kept} for row in run.rows()), key=str)


def test_an_exported_run_is_run_again_from_its_file(run: RealRun) -> None:
    """With events that are too large for the log among them; a file that is there already is left alone."""
    arguments = run.arguments(size=2, repeats=2, padding=" " * 70_000)
    done = run.cli(*arguments)
    assert done.returncode == 0, done.stdout + done.stderr
    recorded = rows(run)
    exported = run.cli("log", "export", "r1", "--out", "run.jsonl")
    assert exported.returncode == 0, exported.stderr
    lines = (run.directory / "run.jsonl").read_text().count("\n")
    assert exported.stdout == f"{lines:,} events of r1 in run.jsonl\n"
    again = run.cli("log", "export", "r1", "--out", "run.jsonl")
    assert (again.returncode, again.stderr) == (
        2,
        "error: --out: run.jsonl is there already: remove it, or name another file\n",
    )
    assert run.cli("log", "export", "r9", "--out", "none.jsonl").returncode != 0
    assert sorted(path.name for path in run.directory.glob("*.jsonl")) == ["run.jsonl", "sums.jsonl"]
    assert not list(run.directory.glob(".*.jsonl*"))

    calls, run.run_id = run.ledger.read_text().count('"model"'), "r2"
    replay = ["model.type=replay", "model.recording=run.jsonl", "--overwrite"]
    done = run.cli(*run.arguments(*replay, size=2, repeats=2, padding=" " * 70_000))
    assert done.returncode == 0, done.stdout + done.stderr
    assert "model: replay of run.jsonl" in done.stdout
    assert rows(run) == recorded
    assert run.ledger.read_text().count('"model"') == calls
    events = [event for event in run.events() if event.run_id == "r2"]
    assert not [event for event in events if isinstance(event.data, ModelCallFailed)]
    assert len([event for event in events if isinstance(event.data, ModelCallCompleted)]) == calls
