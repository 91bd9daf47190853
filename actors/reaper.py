"""What the dead leave behind: requests to places whose host is gone, answered by another; machines of dead processes, ended."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

import structlog

from gym_bus.bus import Slots
from gym_bus.errors import GymBusError
from gym_bus.runtime.presence import Presence
from gym_bus.runtime.worker import Worker
from gym_bus.subjects import ANY, CONTROL

log = structlog.get_logger(__name__)

ADOPTED_SLOTS: Final = 256
BOXES_EVERY_S: Final = 60.0


async def reap_boxes(reap: Callable[[], Awaitable[int]], clear: Callable[[], Awaitable[int]]) -> None:
    """End what dead processes of this host left behind, and what is left of runs that are over, every minute until cancelled."""
    while True:
        if count := await reap() + await clear():
            log.info("sandboxes_reaped", count=count)
        await asyncio.sleep(BOXES_EVERY_S)


async def reap_places(
    worker: Worker, presence: Presence, host_id: str, places: Callable[[], Awaitable[Sequence[str]]], lease_s: float
) -> None:
    """Look once per lease, until cancelled, for places that are silent, and take their requests for another two leases."""
    while True:
        await asyncio.sleep(lease_s)
        try:
            known = await places()
        except GymBusError as error:
            log.warning("places_unknown", reason=str(error))
            continue
        silent = [p for p in known if p not in {ANY, CONTROL, host_id} and not presence.is_place_alive(p)]
        if not silent:
            continue
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(2 * lease_s), asyncio.TaskGroup() as group:
                for place in silent:
                    slots = Slots(ADOPTED_SLOTS)
                    group.create_task(worker.shell.log.bus.work(worker.role.kind, place, slots, worker.taker(slots)))
