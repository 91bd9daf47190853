"""The heartbeat of a process, told to the others over the bus, and theirs, heard."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Final

from gym_bus.errors import GymBusError
from gym_bus.nats_bus import NatsBus
from gym_bus.runtime.presence import Presence, host_of

PULSES: Final = "gym.hb.>"
GONE: Final = "gone "


@asynccontextmanager
async def pulse(bus: NatsBus, kind: str, presence: Presence, every_s: float) -> AsyncGenerator[None]:
    """Say `every_s` that the worker of `presence` lives, hear who else does, and say goodbye at the end."""
    subject = f"gym.hb.{kind}.{host_of(presence.worker)}"

    async def beat() -> None:
        while True:
            with contextlib.suppress(GymBusError):
                await bus.tell(subject, presence.worker.encode())
            presence.forget_old()
            await asyncio.sleep(every_s)

    bus.on_reconnect(presence.reset)
    async with bus.hear(PULSES, lambda _, body: _note(presence, body)):
        beating = asyncio.create_task(beat())
        try:
            yield
        finally:
            beating.cancel()
            with contextlib.suppress(GymBusError):
                await bus.tell(subject, f"{GONE}{presence.worker}".encode())


def _note(presence: Presence, body: bytes) -> None:
    text = body.decode(errors="replace")
    if text.startswith(GONE):
        presence.gone(text.removeprefix(GONE))
    else:
        presence.heard(text)
