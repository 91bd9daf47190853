"""A session's hand: it asks a real sandbox actor, over a real bus, and waits for the answer."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from gym_bus.clock import SystemClock
from gym_bus.event_log import Draft, EventLog
from gym_bus.nats_bus import connect
from gym_bus.subjects import aggregate
from schemas.base import Answer, Event
from schemas.events import ToolCallCompleted, ToolCallRequested
from tests.support.gateway_process import Place

ANSWERED_WITHIN_S = 90


class Asker:
    """A session's hand: it asks the sandbox actor and waits for the answer."""

    def __init__(self, log: EventLog, writer: Any) -> None:
        self._log = log
        self._writer = writer
        self.heard: asyncio.Queue[Any] = asyncio.Queue()
        self._asked = 0

    async def ask(self, data: Event, place: str = "any") -> Event:
        """Return the answer to a request."""
        self._asked += 1
        asked = await self._log.append(self._writer, Draft(data, None, str(self._asked), place=place))
        async with asyncio.timeout(ANSWERED_WITHIN_S):
            while True:
                answer = self._log.decode(await self.heard.get()).data
                if isinstance(answer, Answer) and answer.request_id == asked.event_id:
                    return answer

    async def run(self, command: str, place: str) -> str:
        """Return what a command printed, and its exit code if that is not 0."""
        request = ToolCallRequested(call_id="c", turn=self._asked, index=0, tool="shell", command=command, timeout_s=30)
        done = await self.ask(request, place)
        assert isinstance(done, ToolCallCompleted)
        return done.output if done.exit_code == 0 else f"{done.exit_code}: {done.output}"


@asynccontextmanager
async def asker(place: Place) -> AsyncIterator[Asker]:
    """Give a session's hand, with a sandbox actor."""
    with place.process("sandbox", "h0"):
        async with hand(place) as asking:
            yield asking


@asynccontextmanager
async def hand(place: Place) -> AsyncIterator[Asker]:
    """Give a session's hand."""
    address = place.address
    async with connect(address.url, "harness", address.passwords["harness"]) as bus:
        log = EventLog(bus, place.codec, SystemClock(), worker="h9.y", patience_s=10)
        writer = await log.claim(aggregate("r1", "9-9", "harness", "s1"), 1, None)
        asking = Asker(log, writer)
        async with bus.listen("gym.live.*.*.*.sandbox.>", asking.heard.put_nowait):
            yield asking
