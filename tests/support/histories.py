"""Logs of whole runs in which much happened, taken apart into the lives of their aggregates, to be folded at every prefix."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from actors.collector.rollout import RolloutMachine
from actors.collector.room import Room
from actors.collector.run import RunMachine
from actors.harness.session import SessionMachine
from actors.sandbox.box import BoxMachine
from actors.verifier.verdict import VerdictMachine
from gym_bus.event_log import Draft, EventLog, Writer
from gym_bus.memory_bus import Faults, MemoryBus, MemoryServer
from gym_bus.runtime.machine import Machine
from gym_bus.subjects import AggregateId, aggregate
from schemas.config import Retries, RunConfig, ScriptedModel
from schemas.envelope import Envelope
from schemas.events import (
    RolloutFinished,
    RunCancelled,
    RunCancelRequested,
    RunPaused,
    RunRequested,
    RunStarted,
    SandboxRequested,
    SessionRequested,
    VerdictRequested,
)
from schemas.ids import RUN_LEVEL, sandbox_key, session_key, verdict_key
from schemas.tasks import Task
from schemas.values import HALTING
from tests.support.logs import simulate
from tests.support.world import LoopClock, World, config, sum_tasks

NAMES = ("failing", "killed", "cancelled", "paused", "frozen")


@dataclass(frozen=True, eq=False)
class Life:
    """One aggregate of a log: its machine, where it begins, and all that its owner may be told in the course of it."""

    machine: Machine[Any]
    where: AggregateId
    attempt: int
    first: Any
    events: Sequence[Envelope]

    def is_own(self, event: Envelope) -> bool:
        """Say whether the aggregate itself holds the event."""
        return (event.rollout_id, event.actor, event.key) == (self.where.rollout_id, self.where.actor, self.where.key)

    def states(self) -> list[Any]:
        """Return the state before the first event and after each one."""
        found = [self.first]
        for event in self.events:
            found.append(self.machine.evolve(found[-1], event))
        return found

    def id_of(self, draft: Draft) -> str:
        """Return the id under which the log would store `draft`."""
        log = EventLog(MemoryBus(MemoryServer(), "cli"), None, _Stopped(), worker="w", patience_s=1)  # type: ignore[arg-type]
        return log._head(Writer(self.where, self.attempt, 0, 0, 0), 0, draft).event_id


class _Stopped(LoopClock):
    def monotonic(self) -> float:
        """Return always the same: no loop is needed."""
        return 0.0


async def _failing(world: World) -> None:
    """Tries that fail, arguments that are broken, attempts that are used up."""
    world.start_host()
    model = ScriptedModel(error_rate=0.3, failure_rate=0.3, malformed_rate=0.4, latency_s=0.2, max_tries=1)
    await world.request_run("r1", config(model=model, num_repeats=2, retries=Retries(max_attempts=2, backoff_s=0.5)))


async def _killed(world: World) -> None:
    """Hosts that are killed in the middle of everything, with acknowledgements and live messages lost."""
    world.start_host("h0")
    world.start_host("h1")
    await world.request_run("r1", config(model=ScriptedModel(latency_s=0.6, failure_rate=0.3), num_repeats=2))
    for host_id, after_s in (("h0", 0.9), ("h1", 2.3), ("h0", 2.1)):
        await asyncio.sleep(after_s)
        world.hosts[host_id].kill()
        world.start_host(host_id)


async def _cancelled(world: World) -> None:
    """A run that is ended early, twice."""
    world.start_host()
    await world.request_run("r1", config(model=ScriptedModel(latency_s=2.0), num_repeats=3, num_samples_in_parallel=4))
    await asyncio.sleep(7)
    await world.control("r1", RunCancelRequested(reason="enough"), "1")
    await world.control("r1", RunCancelRequested(reason="really"), "2")


async def _paused(world: World) -> None:
    """A store that is full twice."""
    world.start_host()
    await world.request_run("r1", config(model=ScriptedModel(latency_s=1.0), num_repeats=3, num_samples_in_parallel=3))
    for pauses in (1, 2):
        await asyncio.sleep(2)
        world.room = Room(0, "the store is full")
        async with asyncio.timeout(100):
            while len(world.events(RunPaused)) < pauses:
                await asyncio.sleep(0.1)
        world.room = Room()


async def _frozen(world: World) -> None:
    """A host that stands still past its lease, and comes back to find everything taken over."""
    world.start_host("h0")
    await world.request_run("r1", config(model=ScriptedModel(latency_s=1.5, failure_rate=0.2)))
    await asyncio.sleep(2)
    thaw = asyncio.Event()
    for bus in world.hosts["h0"].buses.values():
        bus.frozen = thaw
    world.start_host("h1")
    await asyncio.sleep(12)
    thaw.set()


_STORIES = {"failing": _failing, "killed": _killed, "cancelled": _cancelled, "paused": _paused, "frozen": _frozen}


@cache
def history(name: str) -> tuple[Envelope, ...]:
    """Return the log of one of `NAMES`."""

    async def work(world: World) -> None:
        await _STORIES[name](world)
        await world.finished("r1")
        await world.quiet()

    faults = Faults(seed=3, ack_lost=0.05, live_lost=0.1, delivered_twice=0.1) if name == "killed" else None
    return tuple(simulate(work, tasks=4, faults=faults).events())


def _heard(events: Sequence[Envelope], rollout_id: str, attempt: int, after: int) -> tuple[Envelope, ...]:
    """Return what an aggregate's owner folds: its rollout's events of its attempt, and that the run is cancelled."""
    return tuple(
        e
        for e in events
        if e.sequence > after
        and (
            (e.rollout_id == rollout_id and rollout_id != RUN_LEVEL and e.attempt == attempt)
            or _is_for_all(e, rollout_id)
        )
    )


def _is_for_all(event: Envelope, rollout_id: str) -> bool:
    return event.rollout_id == RUN_LEVEL and (rollout_id == RUN_LEVEL or isinstance(event.data, RunCancelled))


@cache
def lives(name: str) -> tuple[Life, ...]:
    """Return every aggregate with a machine in the log of `name`."""
    events = history(name)
    found: list[Life] = []
    for event in events:
        machine: Machine[Any]
        match event.data:
            case RunRequested():
                machine, kind, key = RunMachine(), "collector", "_"
            case SessionRequested():
                machine, kind, key = SessionMachine(), "harness", session_key(event.attempt)
            case SandboxRequested():
                machine, kind, key = BoxMachine(), "sandbox", sandbox_key(event.attempt)
            case VerdictRequested():
                machine, kind, key = VerdictMachine(), "verifier", verdict_key(event.attempt)
            case _:
                continue
        where = aggregate(event.run_id, event.rollout_id, kind, key)
        heard = _heard(events, event.rollout_id, event.attempt, event.sequence)
        found.append(Life(machine, where, event.attempt, machine.begin(event), heard))
    return (*found, *_rollouts(events))


def tasks_of(events: Sequence[Envelope]) -> dict[int, Task]:
    """Return the tasks of the world, by index."""
    count = max(int(e.rollout_id.split("-")[0]) for e in events if e.rollout_id != RUN_LEVEL) + 1
    return dict(enumerate(sum_tasks(count)))


def _rollouts(events: Sequence[Envelope]) -> Iterator[Life]:
    run_config: RunConfig = next(e.data.config for e in events if isinstance(e.data, RunRequested))
    started = next(e.event_id for e in events if isinstance(e.data, RunStarted))
    tasks = tasks_of(events)
    causes: dict[tuple[str, int], tuple[str, int]] = {}
    for event in events:
        if isinstance(event.data, RolloutFinished) and event.data.retry_at:
            _, failures = causes.get((event.rollout_id, event.attempt), (started, 0))
            counted = event.data.failure is not None and event.data.failure.kind not in HALTING
            causes[event.rollout_id, event.attempt + 1] = (event.event_id, failures + counted)
    for rollout_id, attempt in sorted({(e.rollout_id, e.attempt) for e in events if e.rollout_id != RUN_LEVEL}):
        index, repeat = map(int, rollout_id.split("-"))
        cause, failures = causes.get((rollout_id, attempt), (started, 0))
        machine = RolloutMachine(tasks[index], repeat, run_config, attempt=attempt, failures=failures, cause=cause)
        heard = _heard(events, rollout_id, attempt, 0)
        yield Life(machine, aggregate("r1", rollout_id, "collector", "_"), attempt, machine.first, heard)
