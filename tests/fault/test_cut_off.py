"""What is cancelled at a bad moment: while a model call is being stated, while the run changes hands."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from adapters.benchmarks.base import Grade
from schemas.config import ScriptedModel, SimpleAgent
from schemas.events import ModelCallRequested, RunCancelRequested, VerdictIssued, VerdictRequested
from schemas.tasks import Evidence
from tests.support import world as world_module
from tests.support.checks import check_log
from tests.support.invariants import check_invariants
from tests.support.virtual_time import run_virtual
from tests.support.world import SumGrader, World, config


class SlowGrader(SumGrader):
    """A grader that takes five seconds."""

    async def grade(self, verifier: str, verifier_data: dict[str, Any], evidence: Evidence) -> Grade:
        """Grade, in the end."""
        await asyncio.sleep(5)
        return await super().grade(verifier, verifier_data, evidence)


async def slow_statements() -> World:
    """Return a world in which what is stated about model calls takes a while to be acknowledged."""
    world = World(tasks=2)
    world.start_host()
    await asyncio.sleep(0.001)
    world.hosts["h0"].buses["model"]._latency_s = 0.2
    return world


async def first_try(world: World) -> None:
    """Wait until the first try is in the log; its acknowledgement takes another 200 ms."""
    async with asyncio.timeout(60):
        while not world.events(ModelCallRequested):
            await asyncio.sleep(0.001)


def test_a_cancel_leaves_no_model_call_without_an_answer() -> None:
    """The run is cancelled in that moment."""

    async def scenario() -> None:
        world = await slow_statements()
        await world.request_run("r1", config(model=ScriptedModel(latency_s=1)))
        await first_try(world)
        await world.control("r1", RunCancelRequested(reason="enough"), "1")
        await world.finished("r1")
        await world.quiet()
        check_log(world.events())
        await world.stop()

    run_virtual(scenario())


def test_a_deadline_leaves_no_model_call_without_an_answer() -> None:
    """The session's time is up in that moment."""

    async def scenario() -> None:
        world = await slow_statements()
        agent = SimpleAgent(timeout_s=0.7)
        await world.request_run("r1", config(model=ScriptedModel(latency_s=1), agent=agent))
        await world.finished("r1")
        await world.quiet()
        check_log(world.events())
        await world.stop()

    run_virtual(scenario())


def test_a_cancelled_run_that_changes_hands_counts_what_is_open(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another collector answers a second cancel while verdicts are awaited: its count is right, and nothing ends after it."""
    monkeypatch.setattr(world_module, "SumGrader", SlowGrader)

    async def scenario() -> None:
        world = World(tasks=6)
        world.start_host("w0", ("harness", "sandbox", "verifier"))
        for host_id in ("c0", "c1"):
            world.start_host(host_id, ("collector",))
        await world.request_run("r1", config(num_samples_in_parallel=3))
        await asyncio.sleep(2)
        assert len(world.events(VerdictRequested)) == 3
        for number in range(4):
            await world.control("r1", RunCancelRequested(reason="enough"), str(number))
        finished = await world.finished("r1")
        await world.quiet()
        await asyncio.sleep(30)
        check_log(world.events())
        assert finished.scored == len(world.events(VerdictIssued))
        check_invariants(world)
        await world.stop()

    run_virtual(scenario())
