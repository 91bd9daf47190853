"""What is read from the log may be older than what is known already: an answer under way is overtaken by later events."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from gym_bus.bus import Stored
from gym_bus.memory_bus import MemoryBus
from providers.models.base import ModelAnswer, ModelCall, ModelError
from schemas.config import ScriptedModel
from schemas.values import Failure, Message, Usage
from tests.support import world as world_module
from tests.support.checks import check_log
from tests.support.virtual_time import run_virtual
from tests.support.world import World, config

READ_S = 0.02


class SlowReading(MemoryBus):
    """A bus whose answers to reads take a while on their way, as those of a large log do."""

    async def read(self, pattern: str, *, after: int = 0, latest: bool = False) -> AsyncIterator[Stored]:
        """Yield what was stored when the read began."""
        found = [stored async for stored in super().read(pattern, after=after, latest=latest)]
        await asyncio.sleep(READ_S)
        for stored in found:
            yield stored


class DownAtFirst:
    """A model that refuses each call three times."""

    async def complete(self, call: ModelCall) -> ModelAnswer:
        """Refuse, or answer."""
        await asyncio.sleep(0.01)
        if call.tries <= 3:
            raise ModelError(Failure(kind="provider_unavailable", message="503", stage="model"))
        return ModelAnswer(Message(role="assistant", content="<answer>1</answer>"), "stop", Usage())

    async def aclose(self) -> None:
        """Nothing to give back."""


async def run_with_a_read_at(at_s: float) -> None:
    """Have every session read the log again once, as after a reconnect, while its model call is tried again and again."""
    world = World(tasks=4, latency_s=0.002)
    world.model_for = lambda _: DownAtFirst()  # type: ignore[method-assign]
    world.start_host()
    await world.request_run("r1", config(model=ScriptedModel(max_tries=6)))
    await asyncio.sleep(at_s)
    world.hosts["h0"].workers["harness"].reread_all()
    await world.finished("r1", 300)
    await world.quiet()
    check_log(world.events())
    await world.stop()


@pytest.mark.parametrize("step", range(12))
def test_a_read_that_was_overtaken_changes_nothing(monkeypatch: pytest.MonkeyPatch, step: int) -> None:
    """Whenever the log is read again while a model call is retried, no try is repeated under its id, and the run ends."""
    monkeypatch.setattr(world_module, "MemoryBus", SlowReading)
    run_virtual(run_with_a_read_at(0.5 + step * READ_S * 0.9))
