"""What a run does when the log has no room, or hardly any."""

from __future__ import annotations

import asyncio

from actors.collector.room import ROLLOUT_BYTES, Room
from schemas.events import (
    RolloutFinished,
    RunPaused,
)
from tests.support.fake_model import FakeModel, says, settled, with_model
from tests.support.virtual_time import run_virtual
from tests.support.world import World, config


def test_full_store_pauses_admission_and_goes_on() -> None:
    """While the store is nearly full nothing new starts; with room again the run goes on by itself."""

    async def scenario() -> None:
        world = World(tasks=40)
        model = with_model(world, FakeModel(lambda _: says("<answer>1</answer>")))
        model.delay_s = 1.0
        world.start_host()
        await world.request_run("r1", config(num_samples_in_parallel=4))
        await asyncio.sleep(4)
        world.room = Room(-5, "the store holds 95 of 100 bytes")
        await asyncio.sleep(20)
        paused = [e.data for e in world.events() if isinstance(e.data, RunPaused)]
        assert len(paused) == 1
        assert paused[0].kind == "store"
        before = len(model.calls)
        await asyncio.sleep(20)
        assert len(model.calls) == before
        world.room = Room()
        finished = await world.finished("r1")
        await settled(world)
        assert finished.scored == 40

    run_virtual(scenario())


def test_a_log_nearly_full_is_filled_slowly() -> None:
    """With room for a few rollouts, a few are under way, and the log is looked at before each start that might find no room."""

    async def scenario() -> None:
        world = World(tasks=40)
        model = with_model(world, FakeModel(lambda _: says("<answer>1</answer>")))
        model.delay_s = 1.0
        limit = 40 * ROLLOUT_BYTES

        async def look_at_log() -> Room:
            used = ROLLOUT_BYTES * len(world.events(RolloutFinished))
            return Room(limit - used, "the store is full" if used >= limit else None)

        world.look_at_log = look_at_log  # type: ignore[method-assign]
        world.start_host()
        await world.request_run("r1", config(num_samples_in_parallel=30, num_repeats=2))
        await asyncio.sleep(60)
        assert [e.data.kind for e in world.events() if isinstance(e.data, RunPaused)] == ["store"]
        assert len(world.events(RolloutFinished)) == 40
        limit = 1000 * ROLLOUT_BYTES
        assert (await world.finished("r1")).scored == 80
        await settled(world)

    run_virtual(scenario())


def test_appends_wait_while_the_store_refuses() -> None:
    """A store that refuses every append delays the run and loses nothing."""

    async def scenario() -> None:
        world = World(tasks=10)
        world.start_host()
        await world.request_run("r1", config())
        await asyncio.sleep(0.4)
        world.server.max_messages = len(world.server.events)
        await asyncio.sleep(30)
        world.server.max_messages = None
        finished = await world.finished("r1")
        await settled(world)
        assert finished.scored == 10

    run_virtual(scenario())
