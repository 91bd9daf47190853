"""Whole runs of agents' own programs whose task offers a tool: by MCP, or by a command of their shell, graded by what it left."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Final

import pytest

from adapters.harnesses.table import HARNESSES
from tests.e2e.test_agent_programs import asked, model_at, rows
from tests.support.acp_agents import opencode, small
from tests.support.configured_agents import configuration_of
from tests.support.noting import NOTED, NotingScript, noting
from tests.support.real_run import REPOSITORY, RealRun

TASK: Final = {
    "id": "make-and-note",
    "question": "Make hello.txt, then write down that it is made.",
    "tools": ["note", {"name": "price", "use": "lookup", "description": "The price of a thing."}],
    "tool_data": {"price": {"table": {"tea": "3"}}},
    "expected_records": {"note": [NOTED]},
}


@pytest.fixture
async def run(tmp_path: Path) -> AsyncIterator[RealRun]:
    """Give a data directory and the task; programs are installed once for all tests of this checkout."""
    made = RealRun(tmp_path, {"GYM_BUS_PROGRAMS_DIR": str(REPOSITORY / ".gym-bus")})
    (tmp_path / "tasks.jsonl").write_text(json.dumps(TASK) + "\n")
    yield made
    await asyncio.to_thread(made.stop)


def results(run: RealRun) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (run.directory / "out/rollouts.jsonl").read_text().splitlines()]


@pytest.mark.parametrize(
    "name",
    [
        "codex_agent",
        "pi_agent",
        *(
            pytest.param(name, marks=pytest.mark.harness)
            for name in sorted(set(HARNESSES) - {"codex_agent", "pi_agent", "aider"})
        ),
    ],
)
async def test_a_program_calls_a_tool_of_its_task(run: RealRun, name: str) -> None:
    """A command that fails, one that succeeds, the tool: it is called once, in a pair of events, and the verdict is 1."""
    more = await configuration_of(name, run.directory)
    await check_the_note(run, name, noting(name), *more, by_mcp="mcp" in HARNESSES[name].grants)


@pytest.mark.harness
@pytest.mark.parametrize("tools_by", ["mcp", "command"])
async def test_an_agent_by_the_protocol_calls_a_tool_of_its_task(run: RealRun, tools_by: str) -> None:
    """OpenCode is given the task's server with its session; the small agent, which has no client for it, the command."""
    agent = opencode() if tools_by == "mcp" else small(tools_by="command")
    more = await configuration_of("acp_agent", run.directory, agent)
    await check_the_note(run, "acp_agent", noting("acp_agent"), *more, by_mcp=tools_by == "mcp")


async def check_the_note(run: RealRun, name: str, script: NotingScript, *more: str, by_mcp: bool) -> None:
    async with model_at(script.dialect, script) as (url, upstream):
        done = await asyncio.to_thread(run.cli, *asked(run, name, url, *more), timeout_s=400)
    assert done.returncode == 0, done.stdout + done.stderr
    assert [row["reward"] for row in results(run)] == [1.0], results(run)
    (call,) = rows(run, "select * from task_tool_calls")
    assert (call["tool"], call["state"], call["is_error"], call["number"]) == ("note", "completed", False, 1)
    assert json.loads(call["arguments"]) == {"text": NOTED}
    assert json.loads(call["record"]) == NOTED
    assert 0 <= call["duration_s"] <= call["waited_s"] < 30
    (verdict,) = rows(run, "select data->>'$.graded' as graded from events where type = 'verdict_issued.v1'")
    assert verdict["graded"] == "records"
    told = rows(run, "select kind, name, text from trajectory order by seq, place")
    assert any("Noted." in (row["text"] or "") for row in told if row["kind"] == "tool_done")
    prompt = rows(run, "select data->>'$.prompt' as prompt from events where type = 'launch_requested.v1'")[0]["prompt"]
    assert ("gym-tool" in prompt) == (not by_mcp)
    assert len([body for body in upstream.bodies if "input" in body or "messages" in body]) == len(script.commands) + (
        name != "mini_swe_agent"
    )
    held = run.cli("doctor")
    assert held.returncode == 0, held.stdout
