"""A run, and a session, outlive any number of hosts as long as something comes of each; what kills every host is set aside."""

from __future__ import annotations

import asyncio

from gym_bus import boundary
from providers.models.base import ModelAnswer, ModelCall
from schemas.config import Retries, ScriptedModel, SimpleAgent
from schemas.events import Claimed, RequestParked, RolloutFinished
from tests.support.fake_model import FakeModel, calls_tools, says, settled, with_model
from tests.support.virtual_time import run_virtual
from tests.support.world import SimHost, World, config, kill_at


def claims_of(world: World, actor: str, rollout_id: str) -> int:
    """Return how often an aggregate was claimed."""
    return len([e for e in world.events(Claimed) if (e.actor, e.rollout_id) == (actor, rollout_id)])


def dying_at(world: World, name: str, times: int) -> list[SimHost]:
    """Have the host die each time it reaches a boundary, and come back; return the list that the dead are noted in."""
    dead: list[SimHost] = []

    def come_back(host: SimHost) -> None:
        dead.append(host)
        asyncio.get_running_loop().call_later(0.3, lambda: world.start_host(host.host_id, host.kinds))

    kill_at(world, [(name, 1)] * times, come_back)
    return dead


def test_a_run_outlives_many_hosts() -> None:
    """It is claimed by each of them and states next to nothing of its own; its rollouts go on, so it is not set aside."""

    async def scenario() -> None:
        world = World(tasks=30)
        world.start_host()
        model = ScriptedModel(latency_s=1.0, error_rate=0)
        retries = Retries(max_attempts=20, backoff_s=0.05)
        await world.request_run("r1", config(model=model, num_samples_in_parallel=2, retries=retries))
        for _ in range(20):
            await asyncio.sleep(3.5)
            world.hosts["h0"].kill()
            world.start_host()
        finished = await world.finished("r1", 2000)
        assert finished.scored == 30
        assert claims_of(world, "collector", "_") > 2 * world.settings.max_takeovers
        assert not world.events(RequestParked)
        await settled(world)

    run_virtual(scenario())


def test_a_session_outlives_many_hosts() -> None:
    """Each gets one more answer of the model or of a tool, and dies."""

    async def scenario() -> None:
        world = World(tasks=1)

        def answers(call: ModelCall) -> ModelAnswer:
            return calls_tools('{"command": "echo $((1+1))"}') if call.turn < 12 else says("<answer>1</answer>")

        with_model(world, FakeModel(answers)).delay_s = 0.1

        dead = dying_at(world, "model.result_appended", 11)
        try:
            world.start_host()
            agent, retries = SimpleAgent(max_steps=20), Retries(max_attempts=20, backoff_s=0.05)
            await world.request_run("r1", config(agent=agent, retries=retries))
            assert (await world.finished("r1", 2000)).scored == 1
        finally:
            boundary.install(None)
        assert len(dead) == 11
        assert not world.events(RequestParked)
        await settled(world)

    run_virtual(scenario())


def test_what_kills_every_host_is_set_aside() -> None:
    """A session whose model call nobody survives is parked after some hosts, and the run ends without it."""

    async def scenario() -> None:
        world = World(tasks=1)

        dead = dying_at(world, "model.effect_started", 40)
        try:
            world.start_host()
            await world.request_run("r1", config(retries=Retries(max_attempts=1)))
            finished = await world.finished("r1", 2000)
        finally:
            boundary.install(None)
        assert finished.failed == 1
        assert world.settings.max_takeovers <= len(dead) < 2 * world.settings.max_takeovers
        (end,) = [e.data for e in world.events(RolloutFinished)]
        assert end.failure is not None  # type: ignore[attr-defined]
        assert end.failure.kind == "parked"  # type: ignore[attr-defined]
        await world.stop()

    run_virtual(scenario())
