"""What is cancelled at a bad moment: while a model call is being stated, while the run changes hands."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from actors.collector.rollout import CANCEL_GRACE_S
from adapters.benchmarks.base import Grade
from gym_bus.errors import BusUnavailable
from gym_bus.settings import Settings
from schemas.config import ScriptedModel, SimpleAgent
from schemas.events import (
    ModelCallRequested,
    RolloutFinished,
    RunCancelRequested,
    RunFinished,
    RunPaused,
    RunResumeRequested,
    SessionFailed,
    VerdictIssued,
    VerdictRequested,
)
from schemas.ids import RUN_LEVEL
from schemas.tasks import Evidence
from tests.support import world as world_module
from tests.support.checks import check_log
from tests.support.invariants import check_invariants
from tests.support.virtual_time import run_virtual
from tests.support.world import SumGrader, World, config


class SlowGrader(SumGrader):
    """A grader that takes five seconds."""

    takes_s = 5.0

    async def grade(self, verifier: str, verifier_data: dict[str, Any], evidence: Evidence) -> Grade:
        """Grade, in the end."""
        await asyncio.sleep(self.takes_s)
        return await super().grade(verifier, verifier_data, evidence)


class SlowerGrader(SlowGrader):
    """A grader that takes longer than a cancelled run waits."""

    takes_s = 60.0


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


def test_what_outlasts_a_cancelled_run_is_missing_for_good(monkeypatch: pytest.MonkeyPatch) -> None:
    """Verdicts that come after the run was counted change nothing: each rollout had said that it is over."""
    monkeypatch.setattr(world_module, "SumGrader", SlowerGrader)

    async def scenario() -> None:
        world = World(tasks=4)
        world.start_host()
        await world.request_run("r1", config(num_samples_in_parallel=4))
        while len(world.events(VerdictRequested)) < 4:
            await asyncio.sleep(0.1)
        await world.control("r1", RunCancelRequested(reason="enough"), "1")
        asked = asyncio.get_running_loop().time()
        finished = await world.finished("r1")
        assert CANCEL_GRACE_S <= asyncio.get_running_loop().time() - asked < CANCEL_GRACE_S + 5
        await asyncio.sleep(120)
        assert (finished.scored, finished.missing, len(world.events(VerdictIssued))) == (0, 4, 4)
        ends = [event.data for event in world.events(RolloutFinished)]
        assert [end.state for end in ends if isinstance(end, RolloutFinished)] == ["missing"] * 4
        check_log(world.events())
        check_invariants(world)
        await world.stop()

    run_virtual(scenario())


def test_an_ending_that_was_not_heard_back_is_read_before_a_cancelled_run_is_counted() -> None:
    """What was stored, and never acknowledged, counts: the course that broke off is taken up again first."""

    async def scenario() -> None:
        settings = Settings(ack_wait_s=2.0, lease_s=1.5, reread_s=0.5, append_patience_s=2)
        world = World(tasks=1, settings=settings)
        world.start_host()
        await asyncio.sleep(0.001)
        bus = world.hosts["h0"].buses["collector"]
        append, until = bus.append, 0.0

        async def silent(subject: str, body: bytes, *, fence: str, expected: int) -> int:
            nonlocal until
            now = asyncio.get_running_loop().time()
            if subject.endswith("rollout_finished") and not until:
                await append(subject, body, fence=fence, expected=expected)
                until = now + 5
                await world.control("r1", RunCancelRequested(reason="enough"), "1")
            if until and now < until and subject.split(".")[4] != RUN_LEVEL:
                raise BusUnavailable("no answer")
            return await append(subject, body, fence=fence, expected=expected)

        monkeypatched = pytest.MonkeyPatch()
        monkeypatched.setattr(bus, "append", silent)
        await world.request_run("r1", config(num_repeats=1))
        finished = await world.finished("r1")
        monkeypatched.undo()
        assert until
        assert (finished.state, finished.scored, finished.missing) == ("cancelled", 1, 0)
        check_log(world.events())
        check_invariants(world)
        await world.stop()

    run_virtual(scenario())


def test_who_takes_a_session_over_after_its_run_was_cancelled_knows_of_it() -> None:
    """The cancel was said when nobody heard: it is read, and the session ends instead of going on."""

    async def scenario() -> None:
        world = World(tasks=1)
        world.start_host("c0", ("collector", "sandbox", "verifier"))
        harness = world.start_host("a0", ("harness",))
        await world.request_run("r1", config(model=ScriptedModel(latency_s=20)))
        await first_try(world)
        harness.kill()
        await asyncio.sleep(1)
        await world.control("r1", RunCancelRequested(reason="enough"), "1")
        await asyncio.sleep(2)
        world.start_host("a1", ("harness",))
        taken_at = asyncio.get_running_loop().time()
        async with asyncio.timeout(60):
            while not world.events(SessionFailed):
                await asyncio.sleep(0.1)
        assert asyncio.get_running_loop().time() - taken_at < 10
        assert len(world.events(ModelCallRequested)) == 1, "nothing more is asked for"
        finished = await world.finished("r1")
        assert (finished.state, finished.missing) == ("cancelled", 1)
        await world.quiet()
        check_log(world.events())
        check_invariants(world)
        await world.stop()

    run_virtual(scenario())


def test_a_run_whose_last_rollout_breaks_off_again_and_again_pauses() -> None:
    """It is not over while one of its rollouts has not ended; when it goes on, so does that one."""

    async def scenario() -> None:
        settings = Settings(ack_wait_s=2.0, lease_s=1.5, reread_s=0.5, append_patience_s=2)
        world = World(tasks=1, settings=settings)
        world.start_host()
        await asyncio.sleep(0.001)
        bus = world.hosts["h0"].buses["collector"]
        append, is_away = bus.append, True

        async def refusing(subject: str, body: bytes, *, fence: str, expected: int) -> int:
            if is_away and subject.split(".")[4] != RUN_LEVEL:
                raise BusUnavailable("no answer")
            return await append(subject, body, fence=fence, expected=expected)

        monkeypatched = pytest.MonkeyPatch()
        monkeypatched.setattr(bus, "append", refusing)
        await world.request_run("r1", config(num_repeats=1))
        async with asyncio.timeout(600):
            while not world.events(RunPaused):
                await asyncio.sleep(1)
        assert not world.events(RunFinished)
        is_away = False
        await world.control("r1", RunResumeRequested(config_digest="digest"), "1")
        finished = await world.finished("r1")
        monkeypatched.undo()
        assert (finished.state, finished.scored) == ("completed", 1)
        check_invariants(world)
        await world.stop()

    run_virtual(scenario())
