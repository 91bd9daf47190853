"""Machines that are made ahead: each given once, of its own run and configuration, in nobody's way, and none left over."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress

import pytest

from actors.sandbox.admission import Admission
from actors.sandbox.warm import ANSWERS_WITHIN_S, IDLE_S, LOOK_S, MOST, Made, WarmPools
from gym_bus.errors import BusUnavailable
from providers.sandboxes.base import BoxLost, Capability, CreateFailed, ExecResult
from schemas.sandboxes import Bubblewrap, Docker, Inline, SandboxConfig, SandboxLimits
from tests.support.virtual_time import run_virtual

SMALL = Bubblewrap(limits=SandboxLimits(memory_mib=100))
OTHER = Docker(image="x", limits=SandboxLimits(memory_mib=100))
MAKING_S = 2.0


class OneBox:
    """A machine that can be dead without anybody knowing."""

    def __init__(self, provider: Boxes, label: str) -> None:
        self.provider, self.label = provider, label
        self.is_alive = True
        self.is_secretly_dead = False
        self.answers_s = 0.0
        self.commands: list[str] = []

    async def exec(self, command: str, *, key: str, timeout_s: float) -> ExecResult:
        """Answer."""
        del key, timeout_s
        self.commands.append(command)
        await asyncio.sleep(self.answers_s)
        if self.is_secretly_dead:
            msg = "it was killed"
            raise BoxLost(msg)
        return ExecResult(0, "", 0, truncated=False, ended_by="exit", duration_s=0.0)

    async def destroy(self) -> None:
        """End it, not at once."""
        await asyncio.sleep(0.1)
        if self.provider.breaks_at_end:
            self.provider.breaks_at_end -= 1
            msg = "the engine does not answer"
            raise OSError(msg)
        self.provider.alive.pop(self.label, None)


class Boxes:
    """A provider that takes its time; `failures` are raised first, one after the other."""

    name = "boxes"
    capabilities: frozenset[Capability] = frozenset()

    def __init__(self) -> None:
        self.alive: dict[str, OneBox] = {}
        self.made: list[tuple[float, str]] = []
        self.failures: list[Exception] = []
        self.tried_at: list[float] = []
        self.at_once = 0
        self.breaks_at_end = 0

    async def check(self) -> None:
        """Accept everything."""

    async def create(self, label: str) -> OneBox:
        """Make one, alone."""
        self.tried_at.append(asyncio.get_running_loop().time())
        self.at_once += 1
        assert self.at_once == 1, "one at a time"
        try:
            await asyncio.sleep(MAKING_S)
            if self.failures:
                raise self.failures.pop(0)
        except asyncio.CancelledError:  # the engine goes on all the same
            self.alive[label] = OneBox(self, label)
            raise
        finally:
            self.at_once -= 1
        self.made.append((asyncio.get_running_loop().time(), label))
        box = self.alive[label] = OneBox(self, label)
        return box

    async def reap(self) -> int:
        """Find nothing."""
        return 0

    async def aclose(self) -> None:
        """Keep nothing."""


class Place:
    """The pools of one host, a provider for each configuration, and the runs that are over."""

    def __init__(self, admission: Admission | None = None) -> None:
        self.admission = admission or Admission()
        self.providers: dict[str, Boxes] = {}
        self.over: set[str] = set()
        self.is_bus_away = False
        self.pools = WarmPools(self.provider_for, self.admission, "h0.b1", self.is_over)

    def provider_for(self, config: SandboxConfig) -> Boxes:
        """Return the provider of a configuration."""
        return self.providers.setdefault(config.model_dump_json(), Boxes())

    async def is_over(self, run_id: str) -> bool:
        """Look the run up."""
        if self.is_bus_away:
            msg = "away"
            raise BusUnavailable(msg)
        return run_id in self.over

    @property
    def alive(self) -> set[str]:
        """Return the labels of the machines there are."""
        return {label for boxes in self.providers.values() for label in boxes.alive}

    async def take(self, run_id: str = "r1", sandbox: SandboxConfig = SMALL, wanted: int = 2) -> Made | None:
        """Ask for a machine."""
        return await self.pools.take(run_id, sandbox, wanted)

    async def filled(self, run_id: str = "r1", sandbox: SandboxConfig = SMALL, wanted: int = 2) -> None:
        """Ask once, and wait until all that are wanted are there."""
        assert await self.take(run_id, sandbox, wanted) is None
        await asyncio.sleep(MAKING_S * wanted + 1)


@asynccontextmanager
async def running(place: Place) -> AsyncGenerator[Place]:
    """Run the pools, and end them."""
    task = asyncio.create_task(place.pools.run())
    await asyncio.sleep(0)
    try:
        yield place
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


def scene(story: Callable[[Place], Awaitable[None]], admission: Admission | None = None) -> Place:
    """Play a story in virtual time, and look at what is left after the end."""
    place = Place(admission)

    async def play() -> None:
        async with running(place):
            await story(place)

    run_virtual(play())
    return place


def test_the_first_request_waits_for_nothing_and_the_next_are_served() -> None:
    """In the order they were made, each to one, and others follow them."""

    async def story(place: Place) -> None:
        await place.filled()
        first, second, third = await place.take(), await place.take(), await place.take()
        assert first
        assert second
        assert third is None
        assert [first.label, second.label] == ["r1.warm.h0.b1.1", "r1.warm.h0.b1.2"]
        await asyncio.sleep(2 * MAKING_S + 1)
        assert place.alive == {f"r1.warm.h0.b1.{n}" for n in (1, 2, 3, 4)}
        fourth = await place.take()
        assert fourth
        assert fourth.label == "r1.warm.h0.b1.3"

    assert scene(story).alive == {"r1.warm.h0.b1.1", "r1.warm.h0.b1.2", "r1.warm.h0.b1.3"}, "those are somebody's"


def test_no_machine_is_another_runs_or_another_configurations() -> None:
    """Whatever is ready."""

    async def story(place: Place) -> None:
        await place.filled()
        assert await place.take("r2") is None
        assert await place.take(sandbox=OTHER) is None
        assert await place.take(sandbox=SMALL.model_copy(update={"limits": SandboxLimits(memory_mib=101)})) is None
        assert await place.take()

    scene(story)


@pytest.mark.parametrize(("sandbox", "wanted"), [(SMALL, 0), (Inline(), 5)])
def test_nothing_is_made_that_nobody_wants(sandbox: SandboxConfig, wanted: int) -> None:
    """By default none is; where there is no machine there is nothing to be made ahead."""

    async def story(place: Place) -> None:
        assert await place.take(sandbox=sandbox, wanted=wanted) is None
        await asyncio.sleep(30)
        assert not place.providers

    scene(story)


def test_pools_that_do_not_run_give_nothing() -> None:
    """Before the worker runs, and after."""
    place = scene(lambda place: place.filled())
    assert run_virtual(place.take()) is None


def test_a_machine_that_cannot_be_made_fails_nobody_and_is_tried_less_and_less() -> None:
    """Whatever was raised; once one was made the waits begin anew."""

    async def story(place: Place) -> None:
        boxes = place.provider_for(SMALL)
        boxes.failures = [CreateFailed("no"), OSError("no"), ZeroDivisionError()]
        for _ in range(12):
            await place.take(wanted=1)
            await asyncio.sleep(5)
        waits = [b - a - MAKING_S for a, b in zip(boxes.tried_at, boxes.tried_at[1:], strict=False)][:3]
        assert [wait >= least for wait, least in zip(waits, (1, 5, 30), strict=True)] == [True] * 3
        assert waits[2] < 40
        assert boxes.made

    scene(story)


def test_a_dead_one_is_dropped() -> None:
    """Who asks gets the next one that answers, or has a fresh one made; the dead one is ended."""

    async def story(place: Place) -> None:
        await place.filled(wanted=3)
        boxes = place.provider_for(SMALL)
        for n in (1, 2):
            boxes.alive[f"r1.warm.h0.b1.{n}"].is_secretly_dead = True
        taken = await place.take(wanted=3)
        assert taken
        assert taken.label == "r1.warm.h0.b1.3"
        await asyncio.sleep(1)
        assert place.alive == {"r1.warm.h0.b1.3"}

    scene(story)


def test_machines_that_do_not_answer_keep_nobody_waiting_for_long() -> None:
    """However many of them there are: who asks has a fresh one made."""

    async def story(place: Place) -> None:
        await place.filled(wanted=20)
        for box in place.provider_for(SMALL).alive.values():
            box.answers_s = 100
        began = asyncio.get_running_loop().time()
        assert await place.take(wanted=20) is None
        assert asyncio.get_running_loop().time() - began <= ANSWERS_WITHIN_S + 1

    scene(story)


def test_one_that_was_asked_for_in_vain_is_ended() -> None:
    """Who asked was cancelled while the machine was looked at: nobody has got it."""

    async def story(place: Place) -> None:
        await place.filled(wanted=1)
        (box,) = place.provider_for(SMALL).alive.values()
        box.answers_s = 5
        asking = asyncio.create_task(place.take(wanted=1))
        await asyncio.sleep(1)
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking
        await asyncio.sleep(1)
        assert box.label not in place.alive

    scene(story)


def test_a_run_that_asks_no_more_keeps_nothing() -> None:
    """After an idle time; and it is served again when it comes back."""

    async def story(place: Place) -> None:
        await place.filled()
        await asyncio.sleep(IDLE_S - 10)
        assert len(place.alive) == 2
        await place.take("r2", wanted=1)
        await asyncio.sleep(20)
        assert {label.partition(".")[0] for label in place.alive} == {"r2"}
        await place.filled()
        assert await place.take()

    scene(story)


def test_a_run_that_is_over_keeps_nothing() -> None:
    """As soon as it is looked up; while the bus is away it is not over."""

    async def story(place: Place) -> None:
        await place.filled()
        place.is_bus_away = True
        place.over.add("r1")
        await asyncio.sleep(3 * LOOK_S)
        assert len(place.alive) == 2
        place.is_bus_away = False
        await asyncio.sleep(2 * LOOK_S)
        assert not place.alive

    scene(story)


def test_the_end_of_the_worker_ends_what_nobody_has_got() -> None:
    """Ready ones, those being made, and those whose end did not come about yet."""

    async def story(place: Place) -> None:
        await place.filled(wanted=3)
        boxes = place.provider_for(SMALL)
        boxes.breaks_at_end = 1
        boxes.alive["r1.warm.h0.b1.1"].is_secretly_dead = True
        assert await place.take(wanted=3)
        await asyncio.sleep(0.5)
        assert boxes.at_once == 1
        assert "r1.warm.h0.b1.1" in place.alive

    assert scene(story).alive == {"r1.warm.h0.b1.2"}


def test_who_waits_for_room_goes_first() -> None:
    """A machine that was made ahead makes way for a request that does not fit beside it, and none is made meanwhile."""

    async def story(place: Place) -> None:
        await place.filled()
        async with asyncio.timeout(1):
            await place.admission.enter("something else", OTHER)
        assert len(place.alive) == 1
        async with asyncio.timeout(1):
            await place.admission.enter("and another", OTHER)
        assert not place.alive
        waiting = asyncio.create_task(place.admission.enter("a third", OTHER))
        await asyncio.sleep(30)
        assert not place.alive
        place.admission.leave("something else")
        await waiting
        place.admission.leave("and another")
        place.admission.leave("a third")
        await place.take()
        await asyncio.sleep(LOOK_S + 2 * MAKING_S)
        assert len(place.alive) == 2

    scene(story, Admission(memory_mib=250))


def test_as_many_make_way_as_have_to() -> None:
    """A large request takes the room of several."""

    async def story(place: Place) -> None:
        await place.filled()
        async with asyncio.timeout(1):
            await place.admission.enter("large", Docker(image="x", limits=SandboxLimits(memory_mib=240)))
        assert not place.alive

    scene(story, Admission(memory_mib=250))


def test_one_that_is_made_while_somebody_waits_makes_way_at_once() -> None:
    """It had begun before anybody waited."""

    async def story(place: Place) -> None:
        await place.take(wanted=1)
        await asyncio.sleep(MAKING_S / 2)
        async with asyncio.timeout(MAKING_S):
            await place.admission.enter("something else", Docker(image="x", limits=SandboxLimits(memory_mib=200)))
        assert not place.alive

    scene(story, Admission(memory_mib=250))


def test_what_is_handed_over_is_counted_once() -> None:
    """The room that it took is that of who has it now."""

    async def story(place: Place) -> None:
        await place.filled(wanted=1)
        taken = await place.take(wanted=1)
        assert taken
        place.admission.hand_over(taken.label, "r1.0-0.b1")
        place.admission.leave(taken.label)
        assert place.admission.try_enter("one more", SMALL)
        assert not place.admission.try_enter("too many", SMALL)
        place.admission.leave("r1.0-0.b1")
        assert place.admission.try_enter("again", SMALL)

    scene(story, Admission(memory_mib=200))


def test_a_host_keeps_so_many_and_no_more() -> None:
    """However many runs there are."""

    async def story(place: Place) -> None:
        taken = 0
        for _ in range(6):
            for n in range(40):
                sandbox = SMALL.model_copy(update={"ledger_path": f"/{n}"})
                taken += await place.take(f"r{n}", sandbox, 64) is not None
            await asyncio.sleep(MAKING_S * 8)
            assert len(place.alive) - taken <= MOST
        assert len(place.alive) - taken == MOST

    scene(story)
