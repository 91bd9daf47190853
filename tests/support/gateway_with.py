"""A gateway in front of any backend, on a log in memory with one open session."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import httpx

from actors.gateway.app import Gateway
from actors.gateway.grants import mint
from gym_bus.blobs import MemoryBlobs
from gym_bus.clock import SystemClock
from gym_bus.codec import Codec
from gym_bus.memory_bus import MemoryServer
from providers.models.backends import Backend
from schemas.base import Event
from schemas.envelope import Envelope
from tests.support.gateway_place import KEY, alone, log_as, open_session
from tests.support.upstream import served


@dataclass
class Front:
    """What a test talks to, and the log behind it."""

    url: str
    token: str
    server: MemoryServer
    codec: Codec

    async def post(self, body: dict[str, Any], path: str = "/v1/chat/completions") -> httpx.Response:
        """Return the answer to a call."""
        headers = {"authorization": f"Bearer {self.token}"}
        async with httpx.AsyncClient(timeout=60) as client:
            return await client.post(f"{self.url}{path}", json=body, headers=headers)

    def events(self, *kinds: type[Event]) -> list[Envelope]:
        """Return the log, or the events of some types."""
        events = [self.codec.decode(s.subject, s.body, s.sequence) for s in self.server.events]
        return [event for event in events if not kinds or isinstance(event.data, kinds)]


@asynccontextmanager
async def gateway_with(backend: Backend) -> AsyncIterator[Front]:
    """Give a gateway that calls `backend`."""
    server, codec = MemoryServer(), Codec(MemoryBlobs())
    grant = await open_session(server, codec)
    gateway = Gateway(log_as("model", server, codec, "g0.x"), SystemClock(), KEY, lambda *_: backend, alone("g0.x"))
    async with asyncio.TaskGroup() as group:
        running = group.create_task(gateway.run())
        try:
            async with served(gateway.app) as url:
                yield Front(url, mint(KEY, grant), server, codec)
        finally:
            running.cancel()
