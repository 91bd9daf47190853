"""Somebody gives a session that waits its next input by the command line, and everything is killed while it waits."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from adapters.harnesses.table import installed_for
from tests.e2e.test_agent_programs import asked as command_line
from tests.e2e.test_agent_programs import model_at, rows
from tests.support.real_run import REPOSITORY, RealRun
from tests.support.two_inputs import SECOND_INPUT, TwoInputs, write_two_inputs

pytestmark = pytest.mark.filterwarnings("ignore:subprocess:ResourceWarning")  # a run goes on behind whoever started it


@pytest.fixture
async def run(tmp_path: Path) -> AsyncIterator[RealRun]:
    """Give a data directory, and a task that waits for its second input; programs are installed once for all tests."""
    made = RealRun(tmp_path, {"GYM_BUS_PROGRAMS_DIR": str(REPOSITORY / ".gym-bus")})
    path = write_two_inputs(tmp_path)
    task = json.loads(path.read_text())
    del task["follow_ups"]
    path.write_text(json.dumps({**task, "awaits_input_s": 300}) + "\n")
    yield made
    await asyncio.to_thread(made.stop)


async def shown(run: RealRun) -> list[dict[str, Any]]:
    """Return what `session show` has of the session's activations, none before there is one."""
    done = await asyncio.to_thread(run.cli, "session", "show", run.run_id, "0-0", "--json")
    return json.loads(done.stdout)["activations"] if done.returncode == 0 else []


async def test_what_is_said_after_everything_was_killed(run: RealRun) -> None:
    """The program goes on with its own session in another sandbox; what it is told is taken once, what does not fit not at all."""
    dialect = installed_for("codex_agent").dialect
    where = (run.run_id, "0-0")
    async with model_at(dialect, TwoInputs(dialect)) as (url, upstream):
        watching = run.spawn(*command_line(run, "codex_agent", url))
        deadline = time.monotonic() + 120
        while [row["state"] for row in await shown(run)] != ["completed"]:
            assert time.monotonic() < deadline, "the first input was not dealt with"
            await asyncio.sleep(0.2)
        asked_before = len(upstream.bodies)
        run.kill_everything()
        await asyncio.to_thread(watching.communicate)
        said = await asyncio.to_thread(run.cli, "session", "say", *where, SECOND_INPUT, timeout_s=120)
        assert (said.returncode, said.stdout) == (0, "Both are there now.\n"), said.stderr
        asked_after = len(upstream.bodies)
        again = await asyncio.to_thread(run.cli, "session", "say", *where, SECOND_INPUT, "--activation", "2")
        assert (again.returncode, again.stdout) == (0, said.stdout)
        other = await asyncio.to_thread(run.cli, "session", "say", *where, "Remove them.", "--activation", "2")
        assert (other.returncode, other.stderr) == (1, "error: activation 2 was given another input before\n")
        ended = await asyncio.to_thread(run.cli, "session", "end", *where)
        assert ended.returncode == 0, ended.stderr
        done = await asyncio.to_thread(run.cli, "eval", "attach", run.run_id, timeout_s=120)
        assert done.returncode == 0, done.stdout + done.stderr
        late = await asyncio.to_thread(run.cli, "session", "say", *where, "One more thing.")
        assert late.returncode == 1
        assert "is closed: it takes no further input" in late.stderr
    assert len(upstream.bodies) == asked_after > asked_before
    (row,) = run.rows()
    assert row["reward"] == 1.0
    found = rows(run, "select attempt, activation, state, turns from activations order by activation")
    assert [tuple(r.values()) for r in found] == [(1, 1, "completed", 3), (1, 2, "completed", 2)]
    held = run.cli("doctor")
    assert held.returncode == 0, held.stdout
