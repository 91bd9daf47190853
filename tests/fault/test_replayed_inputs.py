"""A recorded run whose sessions were given inputs from outside, run again: they are given the same, and wait for nobody."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from schemas.config import ModelConfig, ScriptedModel
from schemas.envelope import Envelope
from schemas.events import ActivationCompleted, ActivationStarted, RunFinished, RunPaused, SessionRequested
from schemas.tasks import Task
from tests.fault.memory_run import speak
from tests.support.recording import of_type, write
from tests.support.virtual_time import run_virtual
from tests.support.world import World, config, with_follow_ups

SOON_S = 60.0
"""Far less than the hour for which the tasks wait."""


def waiting_tasks(own: int) -> list[Task]:
    """Return two tasks that wait for inputs from outside, after `own` of their own."""
    tasks = [with_follow_ups(task, own) for task in World(tasks=2).tasks]
    return [task.replaced(input=task.input.replaced(awaits_input_s=3600.0)) for task in tasks]


def words_for(tasks: Sequence[Task]) -> dict[str, list[str]]:
    """Return what each rollout is told: the task's own inputs, and one more in the first repeat, two in the second."""
    return {
        f"{task.index}-{repeat}": [
            *(messages[0].content or "" for messages in task.input.follow_ups),
            *(f"And what is {task.index} + {10 * repeat + n}?" for n in range(repeat + 1)),
        ]
        for task in tasks
        for repeat in range(2)
    }


def played(
    tasks: Sequence[Task], model: ModelConfig, said: dict[str, list[str]], within_s: float = 600.0
) -> tuple[list[Envelope], RunFinished | None]:
    """Run two repeats of each task, and tell each session `said`; return the log and the run's end, None if it was paused."""

    async def work() -> tuple[list[Envelope], RunFinished | None]:
        world = World()
        world.tasks = list(tasks)
        world.start_host()
        try:
            await world.request_run("r1", config(model=model, num_repeats=2))
            await asyncio.gather(*(speak(world, rollout, words) for rollout, words in said.items()))
            finished = await ended(world, within_s)
            if finished:
                await world.quiet()
        finally:
            await world.stop()
        return world.events(), finished

    return run_virtual(work())


async def ended(world: World, within_s: float) -> RunFinished | None:
    """Wait until the run is over, or paused."""
    async with asyncio.timeout(within_s):
        while not of_type(world.events(), RunPaused):
            if found := of_type(world.events(), RunFinished):
                data = found[0].data
                assert isinstance(data, RunFinished)
                return data
            await asyncio.sleep(0.1)
    return None


def inputs_of(events: list[Envelope]) -> dict[tuple[str, int], Any]:
    """Return the inputs that were taken, by rollout and number."""
    taken = [(e.rollout_id, e.data) for e in of_type(events, ActivationStarted)]
    return {(rollout, data.activation): (data.fingerprint, data.messages) for rollout, data in taken}


def answers_of(events: list[Envelope]) -> dict[tuple[str, int], Any]:
    """Return what came of each input, by rollout and number."""
    done = [(e.rollout_id, e.data) for e in of_type(events, ActivationCompleted)]
    return {(rollout, data.activation): data.evidence for rollout, data in done}


@pytest.mark.parametrize("own", [0, 1])
def test_a_replay_is_given_the_inputs_from_outside_again(own: int, tmp_path: Path) -> None:
    """Each session gets the same words under the same numbers, its own first, and ends where it ended."""
    tasks = waiting_tasks(own)
    said = words_for(tasks)
    recorded, before = played(tasks, ScriptedModel(error_rate=0.3), said)
    assert len(inputs_of(recorded)) == sum(len(words) for words in said.values())
    replayed, after = played(tasks, write(tmp_path / "run.jsonl", recorded), {}, SOON_S)
    assert inputs_of(replayed) == inputs_of(recorded)
    assert answers_of(replayed) == answers_of(recorded)
    assert after == before
    assert [e.data.continuation for e in of_type(replayed, SessionRequested)] == [
        e.data.continuation for e in of_type(recorded, SessionRequested)
    ]


def test_a_recording_without_inputs_ends_at_once(tmp_path: Path) -> None:
    """Where nobody said anything, a replay waits for nobody either."""
    tasks = waiting_tasks(0)
    recorded, _ = played(tasks, ScriptedModel(), {f"{n}-{repeat}": [] for n in range(2) for repeat in range(2)})
    replayed, finished = played(tasks, write(tmp_path / "run.jsonl", recorded), {}, SOON_S)
    assert not inputs_of(replayed)
    assert answers_of(replayed) == answers_of(recorded)
    assert finished


def test_a_recording_that_cannot_be_read_pauses_the_run(tmp_path: Path) -> None:
    """No session begins with inputs that are not known; the reason names file and line."""
    tasks = waiting_tasks(0)
    model = write(tmp_path / "run.jsonl", [])
    (tmp_path / "run.jsonl").write_text("{}\n")
    events, finished = played(tasks, model, {}, SOON_S)
    assert finished is None
    (paused,) = [e.data for e in of_type(events, RunPaused)]
    assert isinstance(paused, RunPaused)
    assert "run.jsonl:1: no event" in paused.reason
    assert not of_type(events, SessionRequested)
