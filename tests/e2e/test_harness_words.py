"""What a task says reaches the model as it is, or is refused before a sandbox is made: no program takes it for a command of its own."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Final

import pytest

from adapters.harnesses.table import BROUGHT, HARNESSES, installed_for
from schemas.base import Event
from schemas.conversation import Text
from schemas.events import LaunchRequested, ModelCallRequested
from tests.e2e.test_agent_programs import asked, model_at, rows
from tests.support.acp_agents import small
from tests.support.configured_agents import configuration_of
from tests.support.harness_place import PROGRAMS
from tests.support.model_script import backend_for, script_for
from tests.support.real_run import RealRun

WORDS: Final = {
    "help": "/help",
    "init": "/init",
    "compact": "/compact",
    "model": "/model x",
    "clear": "/clear and go on",
    "spaced": "\n /model x",
    "quit": "/quit",
    "new": "/new",
    "newtask": "/newtask",
    "think": "/think high",
    "directive": "Say so. /think high /model x",
    "run": "/run ls",
    "skill": "/skills",
    "path": "/no/such/place has a fault",
    "root": "/etc is full",
    "shell": "!ls /etc",
    "memo": "#memo",
    "file": "@/etc/hostname says what?",
    "option": "--help",
    "bye": "exit",
    "mark": "?",
    "braces": "{file:/etc/hostname} {env:HOME} $(id) `id` ${HOME} {{x}}",
}
"""By the tasks' ids. Programs know some of these words as commands."""

pytestmark = pytest.mark.harness


@pytest.fixture
async def run(tmp_path: Path) -> AsyncIterator[RealRun]:
    made = RealRun(tmp_path, {"GYM_BUS_PROGRAMS_DIR": str(PROGRAMS)}, run_id=f"words{os.getpid()}")
    yield made
    await asyncio.to_thread(made.stop)


@pytest.mark.parametrize("name", sorted([*HARNESSES, *BROUGHT]))
async def test_words_arrive_as_they_are_or_are_refused(run: RealRun, name: str) -> None:
    """Each is a task; the model is asked it word for word, or nothing was started and the message names the word."""
    dialect = backend_for(installed_for(name).dialect)
    tasks = [
        {"id": key, "question": words, "test_command": "true", "artifacts": ["hello.txt"]}
        for key, words in WORDS.items()
    ]
    (run.directory / "tasks.jsonl").write_text("".join(json.dumps(task) + "\n" for task in tasks))
    script = replace(script_for(name, dialect), commands=script_for(name, dialect).commands[-1:])
    async with model_at(dialect, script) as (url, _):
        more = (
            "retries.max_attempts=1",
            "num_samples_in_parallel=4",
            *await configuration_of(name, run.directory, small()),
        )
        await asyncio.to_thread(run.cli, *asked(run, name, url, *more), timeout_s=900)
        events = await asyncio.to_thread(run.events)
    found = rows(run, "select rollout_id, task_id, failure_kind, failure_message, reward from rollouts")
    ids = {row["rollout_id"]: row["task_id"] for row in found}
    of_tasks = [event for event in events if event.rollout_id in ids]
    arrived = {ids[event.rollout_id] for event in of_tasks if is_told(event.data, WORDS[ids[event.rollout_id]])}
    launched = {ids[event.rollout_id] for event in of_tasks if isinstance(event.data, LaunchRequested)}
    assert {row["task_id"] for row in found} == set(WORDS)
    assert launched == arrived
    assert {row["failure_kind"] for row in found if row["task_id"] not in arrived} <= {"unsupported"}


def is_told(event: Event, words: str) -> bool:
    """Say whether a model was asked `words`, by the user."""
    if not isinstance(event, ModelCallRequested):
        return False
    parts = [part for turn in event.new_turns or () if turn.role == "user" for part in turn.parts]
    return any(isinstance(part, Text) and words.strip() in part.text for part in parts)
