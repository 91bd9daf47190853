"""Agents' own programs in containers: the same runs as in bubblewrap, in an image of Debian with Python (`scripts/python_image`)."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from adapters.harnesses.table import BROUGHT, HARNESSES, installed_for
from tests.e2e.test_agent_programs import asked, model_at, rows, write_task
from tests.support.configured_agents import configuration_of
from tests.support.engine import USER, python_image
from tests.support.model_script import backend_for, script_for
from tests.support.real_run import REPOSITORY, RealRun

pytestmark = pytest.mark.harness


@pytest.fixture(scope="module")
def image() -> str:
    """Return the image, which is made at first use: a minute or two."""
    return python_image()


@pytest.fixture
async def run(tmp_path: Path, image: str) -> AsyncIterator[RealRun]:
    """Give a data directory."""
    assert image
    made = RealRun(tmp_path, {"GYM_BUS_PROGRAMS_DIR": str(REPOSITORY / ".gym-bus")})
    write_task(tmp_path)
    yield made
    await asyncio.to_thread(made.stop)


@pytest.mark.parametrize("name", sorted([*HARNESSES, *BROUGHT]))
async def test_a_program_does_a_task_in_a_container(run: RealRun, image: str, name: str) -> None:
    """Through the door to the gateway, without a network, as a user without rights; its files are graded in a fresh container."""
    dialect = backend_for(installed_for(name).dialect)
    more = await configuration_of(name, run.directory)
    script = script_for(name, dialect)
    container = ("sandbox.type=docker", f"sandbox.image={image}", f"sandbox.user={USER}")
    async with model_at(dialect, script) as (url, upstream):
        done = await asyncio.to_thread(run.cli, *asked(run, name, url, *container, *more), timeout_s=400)
    assert done.returncode == 0, done.stdout + done.stderr
    results = [json.loads(line) for line in (run.directory / "out/rollouts.jsonl").read_text().splitlines()]
    assert [row["reward"] for row in results] == [1.0]
    (launch,) = rows(run, "select * from launches")
    assert (launch["state"], launch["exit_code"], launch["replies"]) == ("ended", 0, script.replies)
    assert launch["tool_calls"] == len(script.commands)
    assert sum("input" in body or "messages" in body for body in upstream.bodies) == script.replies
    held = run.cli("doctor")
    assert held.returncode == 0, held.stdout
