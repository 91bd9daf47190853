"""A solution that fails, and an artifact that nobody made: both are named at the run's end and by its status."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.real_run import RealRun

FAILED = "1 solution failed (exit 3): no compiler here"
MISSING = "1 rollout without the artifact out/sum.txt"


@pytest.fixture
def run(tmp_path: Path) -> Iterator[RealRun]:
    made = RealRun(tmp_path, run_id="r1")
    yield made
    made.stop()


def write(folder: Path, solution: str) -> None:
    """Write a task whose tests want a file."""
    files = {
        "task.toml": 'artifacts = ["out/sum.txt"]\n[verifier]\nenvironment_mode = "separate"\n',
        "instruction.md": "Add up.\n",
        "tests/test.sh": "if [ -e out/sum.txt ]; then echo 1; else echo 0; fi >/logs/verifier/reward.txt\n",
        "solution/solve.sh": solution,
    }
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)


def test_what_may_be_wrong_with_a_task_is_said(run: RealRun) -> None:
    """Although it was graded; of a task that is well nothing is said."""
    write(run.directory / "tasks/bad", "echo starting; echo no compiler here; exit 3\n")
    write(run.directory / "tasks/good", "mkdir out; echo 2 >out/sum.txt\n")
    done = run.cli("eval", "run", "tasks", "--agent", "oracle", "--run-id", "r1", timeout_s=120)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "2 planned = 2 scored" in done.stdout
    for line in (FAILED, MISSING):
        assert f"{line}\n" in done.stdout
    shown = run.cli("eval", "status", "r1").stdout
    assert f"{FAILED}\n{MISSING}\n" in shown
    told = json.loads(run.cli("eval", "status", "r1", "--json").stdout)
    assert told["failed_solutions"] == [{"ended": "exit:3", "last_line": "no compiler here", "rollouts": 1}]
    assert told["missing_artifacts"] == [{"path": "out/sum.txt", "rollouts": 1}]
    why = run.cli("sql", "select failure_reason as why from rollouts where reward < 1", "--json").stdout
    reason = "the solution failed (exit 3); artifacts that are not there: out/sum.txt; the tests ended with 0"
    assert json.loads(why) == {"why": reason}
