"""Waiting for what the verifier says of a call of a task's tool: it is heard, and the log is looked at from time to time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Final

import structlog

from gym_bus.bus import Stored
from gym_bus.codec import Undecodable
from gym_bus.errors import Corrupt
from gym_bus.event_log import EventLog
from gym_bus.subjects import AggregateId
from schemas.envelope import Envelope
from schemas.events import RequestParked, TaskToolCallCompleted, TaskToolCallFailed, TaskToolCallLost
from schemas.ids import environment_key
from tools.task_answers import ToolAnswer

log = structlog.get_logger(__name__)

ANSWERS: Final = (TaskToolCallCompleted, TaskToolCallFailed, TaskToolCallLost, RequestParked)
LOOK_EVERY_S: Final = 2.0


class ToolAnswers:
    """See the module."""

    def __init__(self, event_log: EventLog) -> None:
        """Hear and read `event_log`."""
        self._log = event_log
        self._waiting: dict[str, asyncio.Future[ToolAnswer]] = {}

    @asynccontextmanager
    async def hearing(self) -> AsyncGenerator[None]:
        """Hear answers while the context is open."""
        async with AsyncExitStack() as stack:
            for kind in ANSWERS:
                pattern = f"gym.live.*.*.*.verifier.*.{kind.subject_kind()}"
                await stack.enter_async_context(self._log.bus.listen(pattern, self._on_stored))
            yield

    async def of(self, asked: AggregateId, attempt: int, number: int, call: Envelope, within_s: float) -> ToolAnswer:
        """Return the answer to the `number`-th call; raises `TimeoutError`."""
        future = self._waiting.get(call.event_id)
        if future is None or future.cancelled():
            future = self._waiting[call.event_id] = asyncio.get_running_loop().create_future()
        places = (
            asked.sibling("verifier", environment_key(attempt, number)),
            asked.sibling("verifier", f"p{call.sequence}"),  # where it is set aside if it can be read by nobody
        )
        try:
            async with asyncio.timeout(within_s):
                while not future.done():
                    for place in places:
                        if found := await self._found(place, call.event_id):
                            return found
                    await asyncio.wait({future}, timeout=LOOK_EVERY_S)
                return future.result()
        finally:
            self._waiting.pop(call.event_id, None)

    async def _found(self, place: AggregateId, call_id: str) -> ToolAnswer | None:
        async for event in self._log.read(f"{place.prefix}.>"):
            if isinstance(event.data, ANSWERS) and event.data.request_id == call_id:
                return event.data
        return None

    def _on_stored(self, stored: Stored) -> None:
        try:
            data = self._log.decode(stored).data
        except (Undecodable, Corrupt) as error:
            log.warning("answer_undecodable", subject=stored.subject, reason=str(error))
            return
        if isinstance(data, ANSWERS):
            future = self._waiting.get(data.request_id)
            if future and not future.done():
                future.set_result(data)
