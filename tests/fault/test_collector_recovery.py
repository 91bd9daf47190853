"""Histories that broke a run once, kept as tests."""

from __future__ import annotations

import asyncio

from providers.models.base import ModelAnswer, ModelCall
from schemas.config import Retries
from schemas.events import RunPaused, RunResumeRequested
from tests.support.fake_model import FakeModel, fails, says, settled, with_model
from tests.support.virtual_time import run_virtual
from tests.support.world import World, config


def test_resumed_after_a_restart_with_two_halted_attempts() -> None:
    """A run paused twice by a refused key, then taken over by a new host and resumed, ends; no attempt is started twice."""

    async def scenario() -> None:
        world = World(tasks=6)
        is_good = False

        def answer(call: ModelCall) -> ModelAnswer:
            if not is_good:
                raise fails("provider_auth", terminal=True)
            return says("<answer>1</answer>")

        async def pauses(count: int) -> None:
            while len([e for e in world.events() if isinstance(e.data, RunPaused)]) < count:
                await asyncio.sleep(0.2)

        with_model(world, FakeModel(answer))
        world.start_host()
        await world.request_run("r1", config(num_samples_in_parallel=3, retries=Retries(backoff_s=0.1)))
        await pauses(1)
        await world.control("r1", RunResumeRequested(config_digest="digest"), "1")
        await pauses(2)
        world.hosts["h0"].kill()
        await asyncio.sleep(3)
        is_good = True
        world.start_host()
        await asyncio.sleep(6)
        await world.control("r1", RunResumeRequested(config_digest="digest"), "2")
        finished = await world.finished("r1", 200)
        await settled(world)
        assert (finished.planned, finished.scored) == (6, 6)

    run_virtual(scenario())
