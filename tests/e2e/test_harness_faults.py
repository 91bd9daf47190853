"""Each agent's own program against each way its model can fail it, and killed itself: bounded, classified, never a reward.

One run holds a task for each fault; the model's server knows it by the question, answers the first call well and then fails for ever.
What was seen is written to results/harness-faults/, out of which `tests.fault_table` makes the table of docs/harnesses.md.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections import Counter
from collections.abc import AsyncIterator, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import pytest
from starlette.responses import JSONResponse, Response, StreamingResponse

from adapters.harnesses.table import BROUGHT, HARNESSES, installed_for
from providers.dialects.catalog import DIALECTS
from providers.dialects.unfolding import unfold
from schemas.conversation import DialectName, Reply
from tests.e2e.test_agent_programs import asked, model_at, rows
from tests.fault_table import RESULTS
from tests.support.acp_agents import small
from tests.support.configured_agents import configuration_of
from tests.support.harness_place import PROGRAMS
from tests.support.model_script import ModelScript, backend_for, script_for
from tests.support.real_run import RealRun

pytestmark = pytest.mark.harness

FAULTS: Final = {
    "limited": {"provider_rate_limited", "agent_timeout"},
    "broken": {"provider_unavailable", "agent_timeout"},
    "garbage": {"provider_bad_answer", "agent_timeout"},
    "cut": {"transport_unreachable", "agent_timeout"},
    "silent": {"agent_timeout"},
    "killed": {"agent_failed"},
    "refused": {"provider_auth"},
}
"""What each is to be called in the end, whichever program met it; some still try again when their time is over."""
LIMIT_S: Final = int(os.environ.get("GYM_BUS_TEST_FAULT_LIMIT_S") or 45)
"""What a program has; more of it on a machine that is busy with other things."""
SLOW: Final = {
    "opencode_agent": 120,
    "kilocode_agent": 150,
    "openclaw_agent": 120,
    "hermes_agent": 60,
    "qwen_code": 60,
    "openhands": 150,
    "terminus_2_agent": 150,
}
"""Those that need more, as four of them start at once."""
GRACE_S: Final = 15
CALLS_MAX: Final = 400
TELLS_AT_THE_END: Final = {"mini_swe_agent"}
"""Those whose account is one document, written when they end by themselves."""
CALLS_NOTHING: Final = {"aider"}
"""Those that run no command, and so none that kills them."""
STATUS: Final = {"limited": 429, "broken": 500, "refused": 401}
BY: Final = "fault"
SEEN: Final = (
    "select r.task_id, r.failure_kind, l.duration_s, l.ended_by, l.exit_code from rollouts r"
    " join launches l using (run_id, rollout_id)"
)
"""What came of each fault: its class, and how the program ended."""
SUICIDE: Final = (
    "for d in /proc/[0-9]*; do p=${d#/proc/}; [ $p = $$ ] && continue; {"
    """ tr '\\0' '\\n' <$d/environ | grep -q ^GYM_BUS_LAUNCH || grep -q /opt/gym-bus/ $d/cmdline; } 2>/dev/null"""
    """ && all="$all $p"; done; by=kill; $by -9 $all"""
)
"""Kills the program itself, and all that it started, but not its supervisor. Copilot runs no `kill` that is not told a number."""


def faults_of(name: str) -> dict[str, set[str]]:
    """Return what can happen to a program, and what each is to be called."""
    return {fault: kinds for fault, kinds in FAULTS.items() if fault != "killed" or name not in CALLS_NOTHING}


def write_tasks(directory: Path, faults: Iterable[str]) -> None:
    """Write a task for each fault."""
    tasks = [
        {"id": fault, "question": f"Make hello.txt. {BY}:{fault}:", "test_command": "true", "artifacts": ["hello.txt"]}
        for fault in faults
    ]
    (directory / "tasks.jsonl").write_text("".join(json.dumps(task) + "\n" for task in tasks))


class FailingModel:
    """Answers a conversation's first call like the script, and then as its question says."""

    def __init__(self, dialect: DialectName, script: ModelScript) -> None:
        self.dialect = dialect
        self.script = script
        self.asked = Counter[str]()

    def __call__(self, body: dict[str, Any]) -> Reply | Response:
        """Return the reply, or the failure."""
        (fault,) = [fault for fault in FAULTS if f"{BY}:{fault}:" in json.dumps(body)]
        self.asked[fault] += 1
        reply = self.script(body)
        return reply if reply.id == "reply0" else self._failed(fault, body, reply)

    def _failed(self, fault: str, body: dict[str, Any], reply: Reply) -> Reply | Response:
        if fault in STATUS:
            problem = {"type": "error", "error": {"type": "x", "message": fault}}
            return JSONResponse(problem, STATUS[fault], headers={"retry-after": "1"})
        match fault:
            case "garbage":
                return Response("<html>no JSON, no stream</html>", media_type="text/event-stream")
            case "cut":
                return StreamingResponse(cut(reply, self.dialect, body), media_type="text/event-stream")
            case "silent":
                return StreamingResponse(silent(), media_type="text/event-stream")
            case _:
                return replace(self.script, commands=(self.script.commands[0], SUICIDE))(body)


async def cut(reply: Reply, dialect: DialectName, body: dict[str, Any]) -> AsyncIterator[bytes]:
    """Begin a reply, and end the connection in the middle."""
    writer = DIALECTS[dialect].stream_writer(DIALECTS[dialect].read_request(body))
    for delta in list(unfold(reply))[:2]:
        yield writer.write(delta)
    raise ConnectionResetError  # the server closes without an end


async def silent() -> AsyncIterator[bytes]:
    """Say nothing, for long."""
    await asyncio.sleep(10 * LIMIT_S)
    yield b""


@pytest.fixture
async def run(tmp_path: Path) -> AsyncIterator[RealRun]:
    made = RealRun(tmp_path, {"GYM_BUS_PROGRAMS_DIR": str(PROGRAMS)}, run_id=f"faults{os.getpid()}")
    yield made
    await asyncio.to_thread(made.stop)


@pytest.mark.parametrize("name", sorted([*HARNESSES, *BROUGHT]))
async def test_a_model_that_fails_is_a_failure_of_the_machinery(run: RealRun, name: str) -> None:
    """Whatever the program does about it: it ends, its failure has a class and no reward, and what it told is kept.

    A key that is refused concerns all: it pauses the run.
    """
    dialect, faults = backend_for(installed_for(name).dialect), faults_of(name)
    write_tasks(run.directory, faults)
    configuration = await configuration_of(name, run.directory, small())
    model = FailingModel(dialect, script_for(name, dialect))
    async with model_at(dialect, model) as (url, upstream):
        limit_s = max(SLOW.get(name, 0), LIMIT_S)
        more = ("retries.max_attempts=1", f"agent.timeout_s={limit_s}", "num_samples_in_parallel=4")
        done = await asyncio.to_thread(run.cli, *asked(run, name, url, *more, *configuration), timeout_s=560)
        found = await ended(run)
    write_down(name, model, rows(run, SEEN))
    assert "paused: provider_auth" in done.stdout, done.stdout + done.stderr
    kinds = {row["task_id"]: row["failure_kind"] for row in found}
    assert {fault for fault, kind in kinds.items() if kind not in faults[fault]} == set(), kinds
    assert [row["reward"] for row in found] == [None] * len(faults)
    launches = rows(run, "select * from launches order by rollout_id")
    assert len(launches) == len(faults)
    told = rows(run, "select rollout_id, count(*) as n from trajectory where kind = 'tool_asked' group by all")
    expected = 0 if name in TELLS_AT_THE_END | CALLS_NOTHING else 1
    assert len(told) >= expected * len(faults), told
    assert max(row["duration_s"] for row in launches if row["duration_s"]) < limit_s + GRACE_S
    assert programs_of(launches) == []
    assert len(upstream.bodies) < CALLS_MAX
    held = run.cli("doctor")
    assert held.returncode == 0, held.stdout


def write_down(name: str, model: FailingModel, seen: list[dict[str, Any]]) -> None:
    """Write what came of each fault to a file."""
    RESULTS.mkdir(parents=True, exist_ok=True)
    told = {row.pop("task_id"): row for row in seen}
    faults = {fault: {**told[fault], "calls": model.asked[fault]} for fault in faults_of(name)}
    (RESULTS / f"{name}.json").write_text(json.dumps(faults, indent=1) + "\n")


async def ended(run: RealRun) -> list[dict[str, Any]]:
    """Return the rollouts, once the last one has ended or failed; what is running when a run pauses goes on."""
    async with asyncio.timeout(300):
        while True:
            query = "select task_id, failure_kind, reward from rollouts order by rollout_id"
            found = await asyncio.to_thread(rows, run, query)
            if all(row["failure_kind"] or row["reward"] is not None for row in found):
                return found
            await asyncio.sleep(1)


def programs_of(launches: list[dict[str, Any]]) -> list[str]:
    """Return the command lines of what still runs of `launches`."""
    marks = [f"=l{launch['launch_id']}".encode() for launch in launches]
    found = []
    for entry in Path("/proc").glob("[0-9]*/environ"):
        try:
            if any(mark in entry.read_bytes() for mark in marks):
                found.append((entry.parent / "cmdline").read_text())
        except OSError:
            continue
    return found
