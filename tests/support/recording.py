"""Recordings for tests: a run of scripted models in memory, and its log in a file as `gym-bus log export` writes it."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

from schemas.base import Event
from schemas.config import ModelConfig, ReplayModel
from schemas.envelope import Envelope
from schemas.events import RunFinished
from tests.support.virtual_time import run_virtual
from tests.support.world import World, config


def run_with(model: ModelConfig, *, tasks: int = 3, repeats: int = 2) -> tuple[list[Envelope], RunFinished]:
    """Return the log of a small run and its end."""

    async def work() -> tuple[list[Envelope], RunFinished]:
        world = World(tasks=tasks)
        world.start_host()
        try:
            await world.request_run("r1", config(model=model, num_repeats=repeats))
            finished = await world.finished("r1")
            await world.quiet()
        finally:
            await world.stop()
        return world.events(), finished

    return run_virtual(work())


def write(path: Path, events: Iterable[Envelope]) -> ReplayModel:
    """Write a recording; return the model that replays it."""
    path.write_text("".join(json.dumps(event.model_dump(mode="json")) + "\n" for event in events))
    return ReplayModel(recording=str(path))


def of_type(events: Iterable[Envelope], kind: type[Event]) -> list[Envelope]:
    """Return the events of one type."""
    return [event for event in events if isinstance(event.data, kind)]
