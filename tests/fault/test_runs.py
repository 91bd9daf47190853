"""What a run does when things go wrong outside: failing models, frozen hosts, cancel, pause, poison."""

from __future__ import annotations

import asyncio
from collections import Counter
from itertools import pairwise
from pathlib import Path

import pytest

from gym_bus.memory_bus import MemoryBus
from providers.models.base import ModelAnswer, ModelCall
from schemas.config import Retries, ScriptedModel
from schemas.events import (
    Claimed,
    ModelCallFailed,
    RequestParked,
    RolloutFinished,
    RunCancelRequested,
    RunPaused,
    RunResumed,
    RunResumeRequested,
)
from schemas.sandboxes import Inline
from tests.support.checks import check_ledger, final_table
from tests.support.fake_model import FakeModel, fails, says, settled, with_model
from tests.support.virtual_time import run_virtual
from tests.support.world import World, config, read_ledger


def test_model_down_for_a_while() -> None:
    """A model that fails for 15 s costs waits, no rollout and no reward."""

    async def scenario() -> None:
        world = World(tasks=6)
        loop = asyncio.get_running_loop()

        def answer(call: ModelCall) -> ModelAnswer:
            if loop.time() < 1015:
                raise fails("provider_unavailable")
            return says("<answer>1</answer>")

        with_model(world, FakeModel(answer))
        world.start_host()
        await world.request_run("r1", config())
        finished = await world.finished("r1")
        await settled(world)
        assert (finished.scored, finished.failed, finished.missing) == (6, 0, 0)
        waits = [e.data.retry_in_s for e in world.events() if isinstance(e.data, ModelCallFailed)]
        assert len(waits) > 6
        assert all(w and w > 0 for w in waits)

    run_virtual(scenario())


def test_attempts_are_capped() -> None:
    """A rollout whose machine keeps failing is tried three times, later each time, and ends failed without a reward."""

    async def scenario() -> None:
        world = World(tasks=1)

        def answer(call: ModelCall) -> ModelAnswer:
            raise fails("provider_unavailable")

        with_model(world, FakeModel(answer))
        world.start_host()
        await world.request_run("r1", config(model=ScriptedModel(max_tries=2), retries=Retries(backoff_s=5)))
        finished = await world.finished("r1")
        await settled(world)
        assert (finished.scored, finished.failed) == (0, 1)
        ends = [e for e in world.events() if isinstance(e.data, RolloutFinished)]
        assert [e.attempt for e in ends] == [1, 2, 3]
        assert [e.data.state for e in ends] == ["retryable", "retryable", "exhausted"]
        assert all(e.data.reward is None for e in ends)
        gaps = [(b.recorded_at - a.recorded_at).total_seconds() for a, b in pairwise(ends)]
        assert gaps[0] > 5
        assert gaps[1] > 10

    run_virtual(scenario())


def test_the_cap_survives_restarts() -> None:
    """Attempts are counted in the log: a host that comes back does not start counting anew."""

    async def scenario() -> None:
        world = World(tasks=1)

        def answer(call: ModelCall) -> ModelAnswer:
            raise fails("provider_unavailable")

        model = with_model(world, FakeModel(answer))
        world.start_host()
        await world.request_run("r1", config(model=ScriptedModel(max_tries=1), retries=Retries(backoff_s=20)))
        while not any(isinstance(e.data, RolloutFinished) for e in world.events()):
            await asyncio.sleep(0.2)
        world.hosts["h0"].kill()
        await asyncio.sleep(1)
        world.start_host()
        finished = await world.finished("r1")
        await settled(world)
        assert finished.failed == 1
        assert len(model.calls) == 3

    run_virtual(scenario())


def test_refused_key_pauses_the_run_and_resume_completes_it() -> None:
    """A refused key stops the run instead of failing its rollouts; resumed with a good key it completes."""

    async def scenario() -> None:
        world = World(tasks=20)
        is_good = False

        def answer(call: ModelCall) -> ModelAnswer:
            if not is_good:
                raise fails("provider_auth", terminal=True)
            return says("<answer>1</answer>")

        with_model(world, FakeModel(answer))
        world.start_host()
        await world.request_run("r1", config(num_samples_in_parallel=4))
        while not any(isinstance(e.data, RunPaused) for e in world.events()):
            await asyncio.sleep(0.2)
        await asyncio.sleep(5)
        paused = [e for e in world.events() if isinstance(e.data, RunPaused)]
        assert len(paused) == 1
        assert "provider_auth" in paused[0].data.reason
        assert len({e.rollout_id for e in world.events() if isinstance(e.data, RolloutFinished)}) <= 5
        is_good = True
        await world.control("r1", RunResumeRequested(config_digest="digest"), "1")
        finished = await world.finished("r1")
        await settled(world)
        assert (finished.planned, finished.scored) == (20, 20)

    run_virtual(scenario())


def test_a_model_that_is_not_there_pauses_the_run_and_resume_completes_it() -> None:
    """After three attempts in a row, of whichever rollouts: those that follow keep their attempts until somebody has looked."""

    async def scenario() -> None:
        world = World(tasks=20)
        is_there = False

        def answer(call: ModelCall) -> ModelAnswer:
            if not is_there:
                raise fails("transport_unreachable")
            return says("<answer>1</answer>")

        with_model(world, FakeModel(answer))
        world.start_host()
        await world.request_run("r1", config(model=ScriptedModel(max_tries=1), num_samples_in_parallel=4))
        while not any(isinstance(e.data, RunPaused) for e in world.events()):
            await asyncio.sleep(0.2)
        await asyncio.sleep(60)
        (paused,) = [e.data for e in world.events() if isinstance(e.data, RunPaused)]
        assert "transport_unreachable" in paused.reason
        ends = [e for e in world.events() if isinstance(e.data, RolloutFinished)]
        assert 3 <= len(ends) <= 7
        assert {e.data.state for e in ends} == {"retryable"}
        is_there = True
        await world.control("r1", RunResumeRequested(config_digest="digest"), "1")
        finished = await world.finished("r1")
        await settled(world)
        assert (finished.planned, finished.scored) == (20, 20)

    run_virtual(scenario())


def test_a_model_that_is_away_now_and_then_pauses_nothing() -> None:
    """What ends well, or otherwise, between two such attempts says that it is there."""

    async def scenario() -> None:
        world = World(tasks=20)

        def answer(call: ModelCall) -> ModelAnswer:
            if int(call.task_id.rsplit("/", 1)[-1]) % 2 == 0 and len(model.calls) <= 20:
                raise fails("transport_unreachable")
            return says("<answer>1</answer>")

        model = with_model(world, FakeModel(answer))
        world.start_host()
        await world.request_run("r1", config(model=ScriptedModel(max_tries=1), num_samples_in_parallel=1))
        finished = await world.finished("r1")
        await settled(world)
        assert finished.scored == 20
        assert any(isinstance(e.data, RolloutFinished) and e.data.state == "retryable" for e in world.events())

    run_virtual(scenario())


def test_resume_under_another_configuration_is_refused() -> None:
    """A resume that names another configuration changes nothing and is answered."""

    async def scenario() -> None:
        world = World(tasks=2)

        def answer(call: ModelCall) -> ModelAnswer:
            raise fails("provider_auth", terminal=True)

        with_model(world, FakeModel(answer))
        world.start_host()
        await world.request_run("r1", config())
        while not any(isinstance(e.data, RunPaused) for e in world.events()):
            await asyncio.sleep(0.2)
        await world.control("r1", RunResumeRequested(config_digest="other"), "1")
        await asyncio.sleep(10)
        parked = [e.data for e in world.events() if isinstance(e.data, RequestParked)]
        assert len(parked) == 1
        assert "digest" in parked[0].failure.message
        assert not [e for e in world.events() if isinstance(e.data, RunResumed)]
        await world.stop()

    run_virtual(scenario())


@pytest.mark.parametrize("hosts", [1, 2])
def test_cancel(hosts: int) -> None:
    """A cancelled run winds up: open model calls are stated, sessions end, the rest is missing, nothing is scored twice."""

    async def scenario() -> None:
        world = World(tasks=30)
        model = with_model(world, FakeModel(lambda _: says("<answer>1</answer>")))
        model.delay_s = 3.0
        for number in range(hosts):
            world.start_host(f"h{number}")
        await world.request_run("r1", config(num_samples_in_parallel=5))
        await asyncio.sleep(8)
        await world.control("r1", RunCancelRequested(reason="enough"), "1")
        cancelled_at = asyncio.get_running_loop().time()
        finished = await world.finished("r1")
        assert asyncio.get_running_loop().time() - cancelled_at < 10
        await settled(world)
        assert finished.state == "cancelled"
        assert finished.planned == 30 == finished.scored + finished.failed + finished.masked + finished.missing
        assert finished.missing > 5

    run_virtual(scenario())


def test_cancel_of_a_finished_run_is_answered() -> None:
    """Cancelling what is over is stated as such and leaves no request behind."""

    async def scenario() -> None:
        world = World(tasks=1)
        world.start_host()
        await world.request_run("r1", config())
        await world.finished("r1")
        await world.control("r1", RunCancelRequested(reason="late"), "1")
        await settled(world)
        assert [e.data.failure.message for e in world.events() if isinstance(e.data, RequestParked)]

    run_virtual(scenario())


def test_zombie_is_fenced(tmp_path: Path) -> None:
    """A host that was frozen past its lease and comes back finds its rollouts taken over; its late events are refused."""

    async def scenario() -> None:
        ledger = tmp_path / "ledger"
        world = World(tasks=6)
        world.start_host("h0")
        model = ScriptedModel(error_rate=0.2, latency_s=2.0, ledger_path=str(ledger))
        await world.request_run("r1", config(model=model, sandbox=Inline(ledger_path=str(ledger))))
        await asyncio.sleep(3)
        zombie = world.hosts["h0"]
        thaw = asyncio.Event()
        for bus in zombie.buses.values():
            bus.frozen = thaw
        world.start_host("h1")
        await asyncio.sleep(12)
        thaw.set()
        finished = await world.finished("r1")
        await settled(world)
        events = world.events()
        assert finished.scored == 6
        owners = Counter(e.data.worker for e in events if isinstance(e.data, Claimed))
        assert len(owners) == 2
        check_ledger(events, read_ledger(ledger))

    run_virtual(scenario())


def test_two_workers_given_one_rollout(tmp_path: Path) -> None:
    """With every request handed out twice, each rollout still has one story."""

    async def scenario() -> None:
        ledger = tmp_path / "ledger"
        world = World(tasks=6)
        world.server.faults.delivered_twice = 1.0
        for number in range(3):
            world.start_host(f"h{number}")
        model = ScriptedModel(latency_s=1.0, ledger_path=str(ledger))
        await world.request_run("r1", config(model=model, sandbox=Inline(ledger_path=str(ledger))))
        await world.finished("r1")
        world.server.faults.delivered_twice = 0.0
        await settled(world)
        check_ledger(world.events(), read_ledger(ledger))
        assert len(final_table(world.events())) == 6

    run_virtual(scenario())


def test_poison_request_is_set_aside() -> None:
    """Bytes that are no event are parked with the reason, and their neighbours finish."""

    async def scenario() -> None:
        world = World(tasks=3)
        world.start_host()
        prefix = "gym.evt.0.r1.9-9.collector._"
        await MemoryBus(world.server, "collector").append(
            f"{prefix}.cmd.harness.any", b'{"torn', fence=prefix, expected=0
        )
        await world.request_run("r1", config())
        finished = await world.finished("r1")
        await world.quiet(60)
        parked = [s for s in world.server.events if s.subject.endswith("request_parked")]
        assert len(parked) == 1
        assert finished.scored == 3
        await world.stop()

    run_virtual(scenario())


def test_window_is_full_all_the_time() -> None:
    """The window slides: as many rollouts are under way as asked for, never more."""

    async def scenario() -> None:
        world = World(tasks=60)
        under_way, peak = 0, 0

        class Counting(FakeModel):
            async def complete(self, call: ModelCall) -> ModelAnswer:
                nonlocal under_way, peak
                under_way += 1
                peak = max(peak, under_way)
                try:
                    await asyncio.sleep(0.5 + (hash(call.task_id) % 10) / 10)
                    return says("<answer>1</answer>")
                finally:
                    under_way -= 1

        with_model(world, Counting(lambda _: says("")))
        world.start_host()
        await world.request_run("r1", config(num_samples_in_parallel=12))
        await world.finished("r1")
        await settled(world)
        assert peak == 12

    run_virtual(scenario())
