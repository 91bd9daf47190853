"""Loops that compact, by the command itself: a model behind HTTP, a real sandbox, and hosts that are killed in the middle."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from providers.dialects.catalog import DIALECTS
from schemas.conversation import Reply, Text, TokenUsage, ToolUse
from schemas.events import ContextCompacted, ModelCallCompleted
from tests.support.backend import SUM, write_sums
from tests.support.checks import check_log, final_table
from tests.support.real_run import RealRun
from tests.support.served_doubles import KEY, Double
from tests.support.upstream import served

ROUNDS = 4
OLD = "[gone]"
HISTORY = {
    "policy": {"tool_results": {"keep_last_results": 1, "omission_marker": OLD}},
    "schedule": {"type": "rolling_recency"},
    "guards": {"max_total_tokens": 60},
    "summary": {"keep_last_rounds": 1},
}
COMPACTING = {"type": "simple_agent_with_compaction", "max_steps": 20, "context_history": HISTORY}
SEARCHING = {
    "type": "browsecomp_agent",
    "enable_tools": True,
    "context_reset_tokens": 60,
    "context_reset_keep_rounds": 1,
    "answer_pattern": "<answer>",
}


@pytest.fixture
def run(tmp_path: Path) -> Iterator[RealRun]:
    """A run's place, with nothing left behind afterwards."""
    place = RealRun(tmp_path)
    yield place
    place.stop()
    assert not place.pids()


class Worker:
    """A model that runs a command for some turns, counting them in a file, and says the sum in the end."""

    def __init__(self, double: Double) -> None:
        """Answer in the place of `double`'s model."""
        self.double = double
        self.turns = 0
        self.told: list[list[dict[str, Any]]] = []
        double.answers = [self.answer]

    def answer(self, body: dict[str, Any]) -> Reply:
        """Answer as asked; ten tokens a message."""
        messages = body["messages"]
        self.told.append(messages)
        usage = TokenUsage(input_tokens=10 * len(messages), output_tokens=10)
        return Reply(dialect="chat", id="r", model="m", parts=self._parts(messages), stop_reason="stop", usage=usage)

    def _parts(self, messages: list[dict[str, Any]]) -> tuple[Text | ToolUse, ...]:
        last = str(messages[-1].get("content"))
        if messages[-1]["role"] == "user" and "Write down, in plain text" in last:
            return (Text(text=f"So far {self.turns} turns."),)
        if messages[-1]["role"] == "user" and "update_progress" in last:
            return (ToolUse(id="n", name="update_progress", arguments=json.dumps({"progress": f"{self.turns} turns"})),)
        self.turns += 1
        if self.turns <= ROUNDS:
            command = "echo a longer line >>lines; wc -l <lines; echo in a longer text"
            return (ToolUse(id=f"c{self.turns}", name="shell", arguments=json.dumps({"command": command})),)
        found = SUM.search(json.dumps(messages))
        assert found is not None
        total = int(found[1]) + int(found[2])
        return (Text(text=f"<answer>{total}</answer>" if self.turns > ROUNDS + 1 else f"It is {total}."),)


def _arguments(run: RealRun, url: str, agent: dict[str, Any]) -> tuple[str, ...]:
    path = write_sums(run.directory / "sums.jsonl", 1)
    config = run.directory / "run.json"
    config.write_text(json.dumps({"agent": agent, "sandbox": {"type": "bubblewrap"}}))
    model = ("--model-type", "openai", "--model-url", f"{url}/v1", "--model", "up", "--model-api-key", KEY)
    where = ("--run-id", run.run_id, "--output", str(run.directory / "out"))
    return ("eval", "run", "--config", str(config), "--input", str(path), *where, *model)


def _kill_hosts(run: RealRun) -> None:
    for pid in run.pids():
        if b"actors.host" in Path(f"/proc/{pid}/cmdline").read_bytes():
            os.kill(pid, signal.SIGKILL)


@pytest.mark.parametrize(("agent", "policy"), [(COMPACTING, "summary"), (SEARCHING, "reset")])
async def test_a_killed_session_goes_on_with_the_context_that_it_had(
    run: RealRun, agent: dict[str, Any], policy: str
) -> None:
    """All hosts are killed at the first prompt of the new context; what follows asks just that, and the answer is right."""
    double = Double(DIALECTS["chat"])
    worker = Worker(double)
    was_killed = False

    def answer(body: dict[str, Any]) -> Reply:
        nonlocal was_killed
        text = json.dumps(body["messages"])
        if not was_killed and "not shown any longer" in text and "Write down" not in text:
            was_killed = True
            worker.told.append(body["messages"])
            _kill_hosts(run)
            return Reply(dialect="chat", id="r", model="m", parts=(Text(text="lost"),), stop_reason="stop")
        return worker.answer(body)

    double.answers = [answer]
    async with served(double.app) as url:
        done = await asyncio.to_thread(run.cli, *_arguments(run, url, agent))
    assert done.returncode == 0, done.stdout + done.stderr
    events = await asyncio.to_thread(run.events)
    check_log(events)
    assert was_killed
    assert {e.attempt for e in events} == {1}, "another attempt was made"
    assert list(final_table(events).values()) == [("scored", 1.0)]
    again = [n for n, told in enumerate(worker.told) if told in worker.told[:n]]
    assert len(again) == 1, "the prompt of the killed call, and no other, was asked twice"
    compacted = [e.data for e in events if isinstance(e.data, ContextCompacted)]
    assert policy in {data.policy for data in compacted}
    calls = [e for e in events if isinstance(e.data, ModelCallCompleted)]
    assert len(calls) == len(worker.told) - 1
    rows = await asyncio.to_thread(
        run.cli, "sql", "select policy, tokens_before, tokens_after from compactions order by number", "--json"
    )
    assert rows.returncode == 0, rows.stderr
    told = [json.loads(line) for line in rows.stdout.splitlines()]
    assert [row["policy"] for row in told] == [data.policy for data in compacted]
    assert told[-1]["tokens_before"] > told[-1]["tokens_after"], "the context is smaller than it was"
