"""Whole runs of agents' own programs: by the command line, in a sandbox without a network, through the gateway, graded by tests."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Mount, Route

from adapters.harnesses.table import HARNESSES, installed_for
from providers.dialects.catalog import DIALECTS
from schemas.conversation import DialectName, Reply
from tests.support.configured_agents import configuration_of
from tests.support.harness_place import PROGRAMS
from tests.support.model_script import FAILING, MAKING, ModelScript, backend_for, script_for
from tests.support.real_run import RealRun
from tests.support.upstream import Answer, Upstream, served

MODELS: Final[dict[DialectName, tuple[str, ...]]] = {
    "responses": ("model.type=openai", "model.api=responses"),
    "chat": ("model.type=openai",),
    "messages": ("model.type=anthropic",),
}
TASK: Final = {
    "id": "make-hello",
    "question": "Make hello.txt, in two steps.",
    "test_command": "grep -q 'hello from here' hello.txt",
    "artifacts": ["hello.txt"],
}


def write_task(directory: Path) -> Path:
    """Write the file of tasks."""
    path = directory / "tasks.jsonl"
    path.write_text(json.dumps(TASK) + "\n")
    return path


@asynccontextmanager
async def model_at(dialect: DialectName, answer: Answer, *, pace_s: float = 0.0) -> AsyncIterator[tuple[str, Upstream]]:
    """Give a model's server that answers so, a piece each `pace_s`, and knows its model."""

    def checked(body: dict[str, Any]) -> Reply | Response:
        if "messages" not in body and "input" not in body:  # whether there is such a model, asked before a run
            return JSONResponse({"error": {"type": "invalid_request_error", "message": "no messages"}}, 400)
        answered = answer(body) if callable(answer) and not isinstance(answer, Response) else answer
        assert isinstance(answered, Reply | Response)
        return answered

    upstream = Upstream(DIALECTS[dialect], [checked], pace_s=pace_s)

    async def models(_: Request) -> Response:
        return JSONResponse({"object": "list", "data": [{"id": "some-model", "object": "model"}]})

    app = Starlette(routes=[Route("/v1/models", models), Mount("/", upstream.app)])
    async with served(app) as url:
        yield url, upstream


@pytest.fixture
async def run(tmp_path: Path) -> AsyncIterator[RealRun]:
    """Give a data directory; programs are installed once for all tests of this checkout."""
    made = RealRun(tmp_path, {"GYM_BUS_PROGRAMS_DIR": str(PROGRAMS)})
    write_task(tmp_path)
    yield made
    await asyncio.to_thread(made.stop)


def asked(run: RealRun, name: str, url: str, *more: str) -> list[str]:
    """Return the command line of a run of one task."""
    dialect = backend_for(installed_for(name).dialect)
    where = url if dialect == "messages" else f"{url}/v1"
    return [
        *("eval", "run", "--input", str(run.directory / "tasks.jsonl"), "--run-id", run.run_id, f"agent.type={name}"),
        *(*MODELS[dialect], "model.policy_model_name=some-model", f"model.policy_base_url={where}"),
        *("--output", str(run.directory / "out"), *more),
    ]


def rows(run: RealRun, query: str) -> list[dict[str, Any]]:
    """Return what a query of the run finds."""
    done = run.cli("sql", query, "--json")
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.mark.parametrize(
    "name",
    [
        "codex_agent",
        "pi_agent",
        *(
            pytest.param(name, marks=pytest.mark.harness)
            for name in sorted(set(HARNESSES) - {"codex_agent", "pi_agent"})
        ),
    ],
)
async def test_a_program_does_a_task(run: RealRun, name: str) -> None:
    """It is launched once; what it tells is in the log while it runs; each reply is a recorded call; its files are graded."""
    dialect = backend_for(HARNESSES[name].dialect)
    script = script_for(name, dialect)
    async with model_at(dialect, script) as (url, upstream):
        more = await configuration_of(name, run.directory)
        done = await asyncio.to_thread(run.cli, *asked(run, name, url, "num_repeats=2", *more), timeout_s=400)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "2 planned = 2 scored" in done.stdout
    results = [json.loads(line) for line in (run.directory / "out/rollouts.jsonl").read_text().splitlines()]
    assert [row["reward"] for row in results] == [1.0, 1.0]
    launches = rows(run, "select * from launches order by rollout_id")
    assert [(row["state"], row["exit_code"], row["replies"], row["tool_calls"]) for row in launches] == [
        ("ended", 0, script.replies, len(script.commands)),
        ("ended", 0, script.replies, len(script.commands)),
    ]
    told = rows(run, "select kind, name, text, exit_code from trajectory where rollout_id = '0-0' order by seq, place")
    commands = [row["text"] for row in told if row["kind"] == "tool_asked"]
    assert [FAILING in words or MAKING in words for words in commands[:2]] == [True] * len(script.commands[:2])
    said = [row["text"] for row in told if row["kind"] == "said" and row["name"] == "assistant"]
    assert said[-1] == script.last_words
    calls = rows(run, "select rollout_id, count(*) as n from model_calls group by all order by all")
    assert [row["n"] for row in calls] == [script.replies] * 2
    assert sum("input" in body or "messages" in body for body in upstream.bodies) == 2 * script.replies
    held = run.cli("doctor")
    assert held.returncode == 0, held.stdout


async def test_a_program_whose_budget_is_used_up_is_graded_as_it_stands(run: RealRun) -> None:
    """However it takes the refusal of its next call: once, with the limit's name."""
    async with model_at("responses", ModelScript("responses")) as (url, _):
        budget = "budget.rollout.model_calls=1"
        done = await asyncio.to_thread(run.cli, *asked(run, "codex_agent", url, budget), timeout_s=200)
    assert done.returncode == 0, done.stdout + done.stderr
    (row,) = [json.loads(line) for line in (run.directory / "out/rollouts.jsonl").read_text().splitlines()]
    assert row["reward"] == 0.0
    (session,) = rows(run, "select data->>'$.evidence.stop_reason' as why from events where type = 'session_closed.v1'")
    assert session["why"] == "budget:model_calls"
