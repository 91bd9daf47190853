"""Answering requests over core NATS: a reply to each, several at a time, an error as a reply and never as silence."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, Final

import pydantic_core
from nats.aio.msg import Msg

from gym_bus.errors import GymBusError
from gym_bus.nats_bus import NatsBus

OPEN_MAX: Final = 32
Serve = Callable[[bytes], Awaitable[dict[str, Any]]]


class Desk:
    """Hands requests to whoever serves them; at most 32 are open, further ones wait."""

    def __init__(self, bus: NatsBus, group: asyncio.TaskGroup) -> None:
        """Reply over `bus`; serve in tasks of `group`."""
        self._bus = bus
        self._group = group
        self._room = asyncio.Semaphore(OPEN_MAX)

    @asynccontextmanager
    async def open(self, subject: str, serve: Serve) -> AsyncGenerator[None]:
        """Answer requests on `subject` with what `serve` returns, while the context is open."""

        async def on_message(message: Msg) -> None:
            await self._room.acquire()
            self._group.create_task(self._reply(message, serve))

        subscription = await self._bus.client.subscribe(subject, cb=on_message)
        try:
            yield
        finally:
            with contextlib.suppress(Exception):  # the connection may be gone
                await subscription.unsubscribe()

    async def _reply(self, message: Msg, serve: Serve) -> None:
        try:
            try:
                reply = await serve(message.data)
            except (GymBusError, ValueError, LookupError, TypeError, OSError) as error:
                reply = {"error": str(error) or type(error).__name__}
            if message.reply:
                with contextlib.suppress(GymBusError):
                    await self._bus.tell(message.reply, pydantic_core.to_json(reply, inf_nan_mode="null"))
        finally:
            self._room.release()
