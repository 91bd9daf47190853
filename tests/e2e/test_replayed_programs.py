"""A run of an agent's own program is exported and run again without its model; what it asks otherwise fails once, and says how."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from adapters.harnesses.table import installed_for
from tests.e2e.test_agent_programs import asked, model_at, rows, write_task
from tests.support.configured_agents import configuration_of
from tests.support.model_script import backend_for, script_for
from tests.support.real_run import REPOSITORY, RealRun

TOLD = "select kind, name, text from trajectory where run_id = '{}' and kind not in ('session', 'tool_done') order by seq, place"


@pytest.fixture
async def run(tmp_path: Path) -> AsyncIterator[RealRun]:
    """Give a data directory; programs are installed once for all tests of this checkout."""
    made = RealRun(tmp_path, {"GYM_BUS_PROGRAMS_DIR": str(REPOSITORY / ".gym-bus")})
    write_task(tmp_path)
    yield made
    await asyncio.to_thread(made.stop)


async def started(run: RealRun, *words: str) -> Any:
    return await asyncio.to_thread(run.cli, *words, timeout_s=300)


@pytest.mark.parametrize("name", ["codex_agent", "python_agent"])
async def test_a_program_is_replayed(run: RealRun, name: str) -> None:
    """Codex writes a number of its own before each output; the recording answers all the same, and no model is there to be asked."""
    dialect = backend_for(installed_for(name).dialect)
    more = await configuration_of(name, run.directory)
    async with model_at(dialect, script_for(name, dialect)) as (url, _):
        first = asked(run, name, url, *more)
        done = await started(run, *first)
    assert done.returncode == 0, done.stdout + done.stderr
    (row,) = rows(run, "select run_id from runs")
    recording = run.directory / "recording.jsonl"
    exported = await started(run, "log", "export", row["run_id"], "--out", str(recording))
    assert exported.returncode == 0, exported.stderr
    again = (
        "eval", "run", "--input", str(run.directory / "tasks.jsonl"), f"agent.type={name}", "model.type=replay",
        f"model.recording={recording}", "sandbox.type=bubblewrap", *more,
    )  # fmt: skip
    replayed = await started(run, *again, "--run-id", "again", "--output", str(run.directory / "again"))
    assert replayed.returncode == 0, replayed.stdout + replayed.stderr
    (result,) = [json.loads(line) for line in (run.directory / "again" / "rollouts.jsonl").read_text().splitlines()]
    assert result["reward"] == 1.0
    assert rows(run, TOLD.format("again")) == rows(run, TOLD.format(row["run_id"]))

    other = await started(
        run, *again, "agent.system_prompt=Be brief.", "--run-id", "other", "--output", str(run.directory / "other")
    )
    assert "replay_diverged" in other.stdout + other.stderr
    (found,) = rows(run, "select state, attempts, failure_kind, failure_message from rollouts where run_id = 'other'")
    assert (found["attempts"], found["failure_kind"]) == (1, "replay_diverged")
    assert "no call of the recording is told this" in found["failure_message"]
