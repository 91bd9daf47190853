"""One small run on a `MemoryBus` in virtual time, disturbed at one boundary, with everything that must hold checked at its end."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from gym_bus import boundary, inputs
from gym_bus.errors import Permanent, Retryable
from gym_bus.memory_bus import Faults
from schemas.config import ScriptedModel
from schemas.events import RunFinished
from schemas.sandboxes import Inline
from schemas.tasks import Task
from tests.support.checks import check_ledger, check_log, final_table
from tests.support.invariants import check_invariants, is_sampled
from tests.support.virtual_time import run_virtual
from tests.support.world import SimHost, World, config, kill_at, read_ledger, with_follow_ups

RESTART_AFTER_S = 0.3


@dataclass(frozen=True)
class Outcome:
    """What a run came to."""

    table: dict[str, tuple[str, float | None]]
    hits: dict[str, int]
    finished: RunFinished
    kills: int


Targets = Sequence[tuple[str, int]]


def run_disturbed(
    ledger: Path,
    targets: Targets = (),
    what: Literal["host", "bus"] = "host",
    hosts: int = 1,
    faults: Faults | None = None,
    follow_ups: int = 0,
    *,
    from_outside: bool = False,
) -> Outcome:
    """Run eight rollouts; kill the host (it comes back) or the bus at each target: a boundary, and for the how many-th time.

    Each of their sessions has `follow_ups` further inputs; `from_outside` they are given one after the other, as by `session say`,
    to sessions that keep snapshots often.
    """
    return run_virtual(_run(ledger, targets, what, hosts, faults, follow_ups, from_outside=from_outside))


async def _run(
    ledger: Path,
    targets: Targets,
    what: str,
    hosts: int,
    faults: Faults | None,
    follow_ups: int,
    *,
    from_outside: bool,
) -> Outcome:
    world = World(tasks=4, ledger=ledger, faults=faults)
    world.tasks = [with_follow_ups(task, follow_ups) for task in world.tasks]
    said = {task.index: [messages[0].content or "" for messages in task.input.follow_ups] for task in world.tasks}
    if from_outside:
        world.tasks = [waiting(task) for task in world.tasks]
        world.settings = world.settings.model_copy(update={"snapshot_every": 4})
    loop = asyncio.get_running_loop()
    struck = 0

    def come_back(host: SimHost) -> None:
        nonlocal struck
        struck += 1
        loop.call_later(RESTART_AFTER_S, lambda: world.start_host(host.host_id, host.kinds))

    def kill_bus(name: str) -> None:
        nonlocal struck
        world.hits[name] += 1
        if (name, world.hits[name]) in targets:
            struck += 1
            world.server.kill()

    if what == "host":
        kill_at(world, targets, come_back)
    else:
        boundary.install(kill_bus)
    try:
        for number in range(hosts):
            world.start_host(f"h{number}")
        model = ScriptedModel(error_rate=0.3, ledger_path=str(ledger))
        await world.request_run("r1", config(model=model, sandbox=Inline(ledger_path=str(ledger)), num_repeats=2))
        if from_outside:
            await asyncio.gather(*(speak(world, f"{n}-{repeat}", said[n]) for n in said for repeat in range(2)))
        finished = await world.finished("r1", 300)
        await world.quiet(100)
    finally:
        boundary.install(None)
        await world.stop()
    events = world.events()
    check_log(events)
    check_ledger(events, read_ledger(ledger))
    if is_sampled():
        check_invariants(world)
    return Outcome(final_table(events), dict(world.hits), finished, struck)


def waiting(task: Task) -> Task:
    """Return the task without inputs of its own; it waits for them."""
    given = task.input.model_copy(update={"follow_ups": (), "awaits_input_s": 3600.0})
    return task.model_copy(update={"input": given})


async def speak(world: World, rollout_id: str, said: Sequence[str]) -> None:
    """Do what somebody does who gives a rollout's session its inputs, whatever happens meanwhile, and then ends it."""
    log = world.cli_log()
    while True:
        try:
            standing = await inputs.standing_of(log, "r1", rollout_id)
            for number, words in enumerate(said, 2):
                while number - 1 not in standing.answers and standing.end is None:
                    await asyncio.sleep(0.1)
                    await standing.refresh(log)
                await inputs.give(log, standing, words, activation=number, within_s=600)
            if standing.end is None:  # else the word was heard, and its acknowledgement lost
                await inputs.end(log, standing)
        except (Retryable, Permanent):  # no bus, no session yet, or another attempt
            await asyncio.sleep(0.1)
        else:
            return
