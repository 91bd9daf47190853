"""Logs to project: what real actors wrote in a simulated world, as stored bytes."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import Any

from gym_bus.blobs import MemoryBlobs
from gym_bus.bus import Stored
from projections import Batch, Ingest, memory_store
from projections.store import Connection
from schemas.config import ScriptedModel
from tests.support.virtual_time import run_virtual
from tests.support.world import World, config

RUN = "r1"


async def _run(tasks: int, repeats: int) -> tuple[list[Stored], MemoryBlobs]:
    world = World(tasks=tasks)
    world.start_host()
    model = ScriptedModel(error_rate=0.3, failure_rate=0.15)
    await world.request_run(RUN, config(num_repeats=repeats, model=model))
    await world.finished(RUN)
    await world.quiet()
    await world.stop()
    return list(world.server.events), world.blobs


@cache
def finished_log(tasks: int = 6, repeats: int = 2) -> tuple[list[Stored], MemoryBlobs]:
    """Return the log of a run that is over, and its blobs."""
    with ThreadPoolExecutor(1) as pool:  # a loop of its own, also when the caller runs in one
        return pool.submit(lambda: run_virtual(_run(tasks, repeats))).result()


def simulate(work: Callable[[World], Coroutine[Any, Any, None]], **world: Any) -> World:
    """Return the world after `work` has been done in it, in virtual time."""

    async def run() -> World:
        made = World(**world)
        try:
            await work(made)
        finally:
            await made.stop()
        return made

    with ThreadPoolExecutor(1) as pool:
        return pool.submit(lambda: run_virtual(run())).result()


def batch(stored: list[Stored], after: int = 0) -> Batch:
    """Return one batch of shard 0."""
    return Batch(0, after, [(s.sequence, s.subject, s.body) for s in stored])


def project(stored: list[Stored], blobs: MemoryBlobs | None = None) -> Connection:
    """Return a projection of a whole log."""
    connection = memory_store()
    Ingest(connection, blobs or MemoryBlobs()).apply(batch(stored))
    return connection
