"""Folders of tasks by the command line: the solution gets 1, nothing gets 0, and no trick gets anything."""

from __future__ import annotations

import asyncio
import json
import re
import shutil
import time
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from adapters.harnesses.table import HARNESSES
from schemas.conversation import Request, ToolResult, ToolUse
from schemas.events import (
    ActivationFailed,
    LaunchRequested,
    SandboxCreated,
    SandboxRequested,
    SessionFailed,
    SessionRequested,
    ToolCallRequested,
    VerdictIssued,
)
from tests.e2e.test_agent_programs import MODELS, model_at
from tests.support.engine import needs_engine, python_image
from tests.support.model_script import ModelScript, backend_for, call_of
from tests.support.real_run import REPOSITORY, RealRun

pytestmark = needs_engine
FOLDERS: Final = REPOSITORY / "tests/harbor_tasks"
NAMES: Final = ("dockerfile", "hacked", "mcp", "plain", "separate")
HACKS: Final = sorted(path.stem for path in (FOLDERS / "hacked/hacks").iterdir())
BUILT_WITHIN_S: Final = 200.0
PROGRAMS: Final = {"GYM_BUS_PROGRAMS_DIR": str(REPOSITORY / ".gym-bus")}


def takes_servers(name: str) -> bool:
    return "mcp" in HARNESSES[name].grants and name != "codex_agent"


@pytest.fixture
def run(tmp_path: Path) -> Iterator[RealRun]:
    made = RealRun(tmp_path)
    yield made
    made.stop()


def results(run: RealRun, out: str) -> dict[str, dict[str, Any]]:
    """Return the rows of a run by task, failed ones too."""
    rows: dict[str, dict[str, Any]] = {}
    for name in ("rollouts.jsonl", "failures.jsonl"):
        for line in (run.directory / out / name).read_text().splitlines():
            row = json.loads(line)
            rows[row["task_id"]] = row
    return rows


def asked(run: RealRun, folder: Path, agent: str, *more: str) -> dict[str, dict[str, Any]]:
    """Run an agent on a folder; return the rows."""
    given = ("eval", "run", str(folder), "--agent", agent, "--run-id", agent, "--output", agent)
    done = run.cli(*given, "retries.max_attempts=1", *more, timeout_s=BUILT_WITHIN_S)
    assert "completed:" in done.stdout, done.stdout + done.stderr
    return results(run, agent)


def test_the_solution_gets_1_and_nothing_gets_0(run: RealRun) -> None:
    """Of each folder: a plain one, one with a Dockerfile, one with a verifier image, one with an MCP server, one that is attacked."""
    solved, untouched = asked(run, FOLDERS, "oracle"), asked(run, FOLDERS, "nop")
    assert {name: row["reward"] for name, row in solved.items()} == dict.fromkeys(NAMES, 1.0)
    assert {name: row["reward"] for name, row in untouched.items()} == dict.fromkeys(NAMES, 0.0)
    assert {row["state"] for row in (*solved.values(), *untouched.values())} == {"scored"}
    _, types, graded, sandboxes = facts(run, "oracle")
    assert graded == {
        "dockerfile": "machine",
        "hacked": "machine",
        "mcp": "machine",
        "plain": "machine",
        "separate": "files",
    }
    assert sandboxes == {
        "dockerfile": "docker",
        "hacked": "docker",
        "mcp": "bubblewrap",
        "plain": "bubblewrap",
        "separate": "docker",
    }
    assert "model_call_requested.v1" not in types
    config = yaml.safe_load((run.directory / "oracle/run_config.yaml").read_text())
    assert config["taskset"]["path"] == str(FOLDERS)
    assert config["agent"]["type"] == "oracle_agent"
    again = run.cli(
        "eval", "run", "--config", "oracle/run_config.yaml", "--run-id", "again", "--output", "again", "--limit", "1"
    )
    assert "1 planned = 1 scored" in again.stdout, again.stdout + again.stderr


def facts(run: RealRun, run_id: str) -> tuple[list[Any], set[str], dict[str, str], dict[str, str]]:
    """Return the run's events, their types, what each task's verdict was about, and what it was done in."""
    events = [event for event in run.events() if event.run_id == run_id]
    tasks = {event.rollout_id: event.data.task.task_id for event in events if isinstance(event.data, SessionRequested)}
    graded = {tasks[e.rollout_id]: e.data.graded for e in events if isinstance(e.data, VerdictIssued)}
    made = {tasks[e.rollout_id]: e.data.provider for e in events if isinstance(e.data, SandboxCreated)}
    return events, {event.type for event in events}, graded, made


def test_no_trick_gets_a_reward(run: RealRun) -> None:
    """Each is worth 0, or is left out of what counts; none is worth more. Beside them the solution shows that the task can be done."""
    folder = run.directory / "hacks"
    for hack in HACKS:
        shutil.copytree(FOLDERS / "hacked", folder / f"hack-{hack}")
        shutil.copy(FOLDERS / "hacked/hacks" / f"{hack}.sh", folder / f"hack-{hack}/solution/solve.sh")
    shutil.copytree(FOLDERS / "hacked", folder / "honest")
    rows = asked(run, folder, "oracle")
    assert rows.pop("honest")["reward"] == 1.0
    assert set(rows) == {f"hack-{hack}" for hack in HACKS}
    assert {name: row.get("reward") for name, row in rows.items() if row.get("reward")} == {}
    kinds = {name: row["failure_kind"] for name, row in rows.items() if row["state"] != "scored"}
    assert kinds == {"hack-4": "reward_invalid", "hack-4-race": "reward_invalid", "hack-6": "verifier_error"}
    events, *_ = facts(run, "oracle")
    assert not [event for event in events if isinstance(event.data, ActivationFailed)]


def test_what_grades_a_task_never_enters_the_agents_machine(run: RealRun) -> None:
    """Neither tests nor solution are in what a session is asked with, nor in its sandbox's request, but for an oracle's solution."""
    asked(run, FOLDERS / "plain", "nop")
    asked(run, FOLDERS / "plain", "oracle")
    for run_id, has_solution in (("nop", False), ("oracle", True)):
        events, *_ = facts(run, run_id)
        given = [e.data for e in events if isinstance(e.data, SessionRequested | SandboxRequested)]
        assert given
        for data in given:
            text = data.model_dump_json()
            assert "test.sh" not in text
            assert "expected" not in text
            assert ("solve.sh" in text) is has_solution


def test_a_task_that_an_agent_cannot_be_given_is_refused_before_anything_starts(run: RealRun) -> None:
    for folder, words in (
        ("mcp", "tools by MCP (weather), which mini_swe_agent cannot be given; those that can: claude_code_agent"),
        (".", "mcp: it offers"),
    ):
        done = run.cli("eval", "run", str(FOLDERS / folder), "--agent", "mini_swe")
        assert done.returncode == 2, done.stdout
        assert words in done.stderr
    done = run.cli("eval", "run", str(FOLDERS), "--agent", "nobody")
    assert done.returncode == 2
    assert "no agent is called 'nobody'" in done.stderr
    assert not run.data_dir.exists() or not run.pids()


def test_a_killed_run_of_a_folder_goes_on(run: RealRun) -> None:
    """All processes die while the solution is at work; another attempt is graded, and the first is no reward."""
    task = run.directory / "slow"
    shutil.copytree(FOLDERS / "dockerfile", task)
    script = task / "solution/solve.sh"
    script.write_text("#!/bin/sh\nsleep 4\n" + script.read_text())
    given = ("eval", "run", str(task), "--agent", "oracle", "--run-id", run.run_id, "--output", "out", "--detach")
    started = run.cli(*given, "retries.backoff_s=0.2", timeout_s=BUILT_WITHIN_S)
    assert started.returncode == 0, started.stdout + started.stderr
    until = time.monotonic() + BUILT_WITHIN_S
    while not any(isinstance(event.data, ToolCallRequested) for event in run.events()) and time.monotonic() < until:
        time.sleep(0.2)
    run.kill_everything()
    done = run.cli("eval", "resume", run.run_id, timeout_s=BUILT_WITHIN_S)
    assert "1 planned = 1 scored" in done.stdout, done.stdout + done.stderr
    (row,) = results(run, "out").values()
    assert (row["reward"], row["attempts"]) == (1.0, 2)


async def test_a_program_does_a_task_of_a_folder(tmp_path: Path) -> None:
    """Codex works in the task's own directory, as the task says how long; its work is graded by the task's tests."""
    run = RealRun(tmp_path, PROGRAMS)
    task = run.directory / "greet"
    shutil.copytree(FOLDERS / "plain", task)
    (task / "tests/test.sh").write_text(
        "grep -q 'hello from here' /app/hello.txt && echo 1 >/logs/verifier/reward.txt\n"
    )
    (task / "task.toml").write_text("[agent]\ntimeout_sec = 345.0\n[environment]\nenv = {PLACE = 'here'}\n")
    script = ModelScript("responses", ('echo "hello from $PLACE" >hello.txt',))
    try:
        async with model_at("responses", script) as (url, _):
            model = ("--model", "some-model", "--model-url", f"{url}/v1", "model.api=responses")
            rows = await asyncio.to_thread(asked, run, task, "codex", *model)
        assert [(name, row["reward"], row["state"]) for name, row in rows.items()] == [("greet", 1.0, "scored")]
        events = await run._events()
        (session,) = [event.data for event in events if isinstance(event.data, SessionRequested)]
        assert (session.agent.type, session.agent.timeout_s, session.solution) == ("codex_agent", 345.0, None)
    finally:
        await asyncio.to_thread(run.stop)


@dataclass(frozen=True)
class WeatherScript(ModelScript):
    """Asks the tool `weather`, whatever the harness calls it, then writes the word that it said to a file."""

    commands: tuple[str, ...] = ("weather", "")

    def _call(self, call_id: str, request: Request, command: str) -> ToolUse:
        if command:
            return call_of(request, call_id, command, city="Oslo")
        said = [part.model_dump_json() for turn in request.turns for part in turn.parts if isinstance(part, ToolResult)]
        found = re.search(r"rain", said[-1])
        return super()._call(call_id, request, f"echo {found[0] if found else 'nothing'} >weather.txt")


@pytest.mark.parametrize(
    "name",
    ["codex_agent", *(pytest.param(name, marks=pytest.mark.harness) for name in HARNESSES if takes_servers(name))],
)
async def test_a_program_does_a_task_with_a_server_of_tools(tmp_path: Path, name: str) -> None:
    """The server that the folder brings along runs in the agent's sandbox, and what it said is what the task wants to be written.

    Where it cannot be started no model is asked, and that is no reward; the failure says which it was, and why.
    """
    run, dialect = RealRun(tmp_path, PROGRAMS), backend_for(HARNESSES[name].dialect)
    shutil.copytree(FOLDERS / "mcp", tmp_path / "tasks/good")
    shutil.copytree(FOLDERS / "mcp", tmp_path / "tasks/without")
    (tmp_path / "tasks/without/task.toml").write_text(
        "[[environment.mcp_servers]]\nname = 'Weather'\ntransport = 'stdio'\ncommand = 'no-such-server'\n"
    )
    try:
        async with model_at(dialect, WeatherScript(dialect)) as (url, upstream):
            where = url if dialect == "messages" else f"{url}/v1"
            model = ("--model", "some-model", "--model-url", where, *MODELS[dialect], "agent.timeout_s=150")
            rows = await asyncio.to_thread(asked, run, tmp_path / "tasks", name, *model)
        assert (rows["good"]["reward"], rows["good"]["state"]) == (1.0, "scored")
        assert (rows["without"]["state"], rows["without"]["failure_kind"]) == ("exhausted", "tool_unreachable")
        assert len([body for body in upstream.bodies if "input" in body or "messages" in body]) == 3
        events = await run._events()
        launches = [e.data for e in events if isinstance(e.data, LaunchRequested)]
        assert {server.name for launch in launches for server in launch.mcp_servers} == {"weather", "Weather"}
        (failed,) = [e.data.failure for e in events if isinstance(e.data, SessionFailed)]
        assert failed.stage == "seed"
        assert "weather: " in failed.message
        assert "no-such-server" in failed.message
    finally:
        await asyncio.to_thread(run.stop)


@pytest.mark.harness
async def test_an_image_brings_along_a_server_and_skills(tmp_path: Path) -> None:
    """Both lie in the task's own image: the model is told of the skill, and the server is started from there."""
    image = await asyncio.to_thread(python_image)
    run, task = RealRun(tmp_path, PROGRAMS), tmp_path / "task"
    shutil.copytree(FOLDERS / "mcp", task)
    (server,) = tomllib.loads((task / "task.toml").read_text())["environment"]["mcp_servers"]
    code = server["args"][1].replace('"rain"', '__import__("os").environ["SKY"]')
    skill = task / "environment/skills/umbrellas/SKILL.md"
    skill.parent.mkdir(parents=True)
    skill.write_text("---\nname: umbrellas\ndescription: When to take a gentle umbrella.\n---\n\nIf it rains.\n")
    (task / "environment/server.py").write_text(code)
    (task / "environment/Dockerfile").write_text(
        f"FROM {image}\nWORKDIR /app\nCOPY skills /skills\nCOPY server.py /opt/weather/server.py\n"
    )
    (task / "task.toml").write_text(
        "[environment]\nenv = {SKY = 'rain'}\nskills_dir = '/skills'\n[[environment.mcp_servers]]\nname = 'weather'\n"
        "transport = 'stdio'\ncommand = 'python3'\nargs = ['/opt/weather/server.py']\n"
    )
    try:
        async with model_at("responses", WeatherScript("responses")) as (url, upstream):
            model = ("--model", "some-model", "--model-url", f"{url}/v1", "model.api=responses")
            rows = await asyncio.to_thread(asked, run, task, "codex", *model)
        assert [(row["reward"], row["state"]) for row in rows.values()] == [(1.0, "scored")], rows
        assert "When to take a gentle umbrella." in json.dumps(upstream.bodies)
    finally:
        await asyncio.to_thread(run.stop)
