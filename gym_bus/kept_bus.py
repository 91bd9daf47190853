"""The embedded bus kept alive, provisioned, and restarted when its store can write again.

A server whose disk was full stays frozen after there is room again (measured with 2.14); only a restart helps. All
that was acknowledged is there afterwards.
"""

from __future__ import annotations

import asyncio
import shutil
import time
from collections.abc import Awaitable, Callable
from importlib import import_module
from typing import Any, Final, Protocol

import structlog

from gym_bus.errors import GymBusError
from gym_bus.kept_process import Backoff
from gym_bus.server import BusAddress, EmbeddedServer
from gym_bus.settings import Settings
from gym_bus.topology import FULL_SHARE

log = structlog.get_logger(__name__)

POLL_S: Final = 0.1
HEALTH_EVERY_S: Final = 2.0
SHARDS: Final = 1
HOW_TO_RAISE: Final = (
    "make room on the disk (or raise GYM_BUS_STORE_MAX_BYTES, if it is set), then `gym-bus bus down` and "
    "`gym-bus eval resume RUN`"
)
WRITE_ERRORS: Final = ("write error", "no space left", "disk quota")


class Server(Protocol):
    """What is needed of an embedded server."""

    def ensure(self, store_max_bytes: int | None = None) -> BusAddress:
        """Return the address, starting the server if none runs."""
        ...

    def address(self) -> BusAddress | None:
        """Return the address of a running server."""
        ...

    def health(self) -> tuple[bool, str]:
        """Return whether it is well, and what it says."""
        ...

    def fill(self) -> tuple[int, int] | None:
        """Return how many bytes the fullest log holds, and how many it may."""
        ...

    def stop(self, *, kill: bool = False) -> bool:
        """End it."""
        ...


Provision = Callable[[BusAddress], Awaitable[None]]


async def provision_embedded(address: BusAddress, settings: Settings, *, rebuild_queues: bool = False) -> None:
    """Create and check streams and queues, as the administrator."""
    from gym_bus.nats_bus import connect  # noqa: PLC0415  the server starts while this is imported
    from gym_bus.provision import provision  # noqa: PLC0415  the same
    from gym_bus.server import store_limit  # noqa: PLC0415  the same
    from gym_bus.topology import ADMIN  # noqa: PLC0415  the same

    store = settings.data_dir / "bus" / "store"
    limit = store_limit(store, settings.store_max_bytes)
    async with connect(address.url, ADMIN, address.passwords.get(ADMIN)) as admin:
        await provision(
            admin, shards=SHARDS, max_bytes=limit, ack_wait_s=settings.ack_wait_s, rebuild_queues=rebuild_queues
        )


def _import_client() -> None:
    """Import what provisioning needs while the server starts: a quarter of a second of a cold start."""
    import_module("gym_bus.provision")


class KeptBus:
    """Keeps the server up; `problem` says what is wrong, None if nothing is."""

    def __init__(self, settings: Settings, server: Server, provision: Provision) -> None:
        """Look after `server`; nothing happens before `keep`."""
        self.settings = settings
        self.server = server
        self.problem: str | None = None
        self.address: BusAddress | None = None
        self.restarts = 0
        self.changed = asyncio.Event()
        self.store: dict[str, Any] = {"state": "unknown"}
        self._provision = provision
        self._state = "down"
        self._is_stopping = False

    def status(self) -> dict[str, Any]:
        """Return what is known, for the status file."""
        address = self.address
        return {
            "pid": address.pid if address else None,
            "url": address.url if address else None,
            "state": "stopping" if self._is_stopping else self._state,
            "restarts": self.restarts,
            "problem": self.problem,
        }

    async def keep(self) -> None:
        """Start or adopt the server, provision it, start it again whenever it has ended, until cancelled."""
        backoff = Backoff()
        while not self._is_stopping:
            began = time.monotonic()
            try:
                starting = asyncio.to_thread(self.server.ensure, self.settings.store_max_bytes)
                address, _ = await asyncio.gather(starting, asyncio.to_thread(_import_client))
                self.address = address
                await self._provision(address)
                self._say("running", None)
                while self.server.address() is not None:  # noqa: ASYNC110  another process does it
                    await asyncio.sleep(POLL_S)
                self._say("down", "the bus has ended and is started again")
            except GymBusError as error:
                self._say("down", str(error))
                log.error("bus_failed", reason=str(error))  # noqa: TRY400  the message says it all
            self.address = None
            if not self._is_stopping:
                self.restarts += 1
                await asyncio.sleep(backoff.after(time.monotonic() - began, None))

    def _say(self, state: str, problem: str | None) -> None:
        """State how the bus is; `running` means provisioned."""
        self._state, self.problem = state, problem
        self.changed.set()

    async def watch_store(self) -> None:
        """Look at the server and the free space until cancelled; restart a server that froze on a full disk."""
        while True:
            await self.look_at_store()
            await asyncio.sleep(HEALTH_EVERY_S)

    async def look_at_store(self) -> None:
        """Look once."""
        store = self.settings.data_dir / "bus" / "store"  # may be a disk of its own
        free = shutil.disk_usage(store if store.exists() else self.settings.data_dir).free
        if self.address is None or self._is_stopping:
            self.store = {"state": "unknown", "reason": self.problem or "the bus does not run", "free_bytes": free}
            return
        is_well, said = await asyncio.to_thread(self.server.health)
        is_frozen = not is_well and any(words in said.lower() for words in WRITE_ERRORS)
        has_room = free >= self.settings.store_min_free_bytes
        self.store = {"state": "ok" if is_well and has_room else "full", "reason": None, "free_bytes": free}
        if is_frozen:
            self.store["reason"] = said
        elif not has_room:
            self.store["reason"] = f"{free:,} bytes are free, fewer than {self.settings.store_min_free_bytes:,}"
        elif not is_well:
            self.store.update(state="unknown", reason=said)
        elif (size := await asyncio.to_thread(self.server.fill)) and size[0] >= size[1] * FULL_SHARE:
            reason = f"the log holds {size[0]:,} of at most {size[1]:,} bytes; {HOW_TO_RAISE}"
            self.store.update(state="full", reason=reason)
        if is_frozen and has_room:
            log.warning("bus_restarted_after_full_disk", said=said, free_bytes=free)
            await asyncio.to_thread(self.server.stop)

    async def stop(self) -> None:
        """End the server."""
        self._is_stopping = True
        try:
            await asyncio.to_thread(self.server.stop)
        except GymBusError as error:
            log.error("bus_stop_failed", reason=str(error))  # noqa: TRY400  the message says it all
            await asyncio.to_thread(lambda: self.server.stop(kill=True))
        self.address = None


def embedded_bus(settings: Settings) -> KeptBus:
    """Return the keeper of the data directory's own server."""

    async def provision(address: BusAddress) -> None:
        await provision_embedded(address, settings)

    return KeptBus(settings, EmbeddedServer(settings.data_dir / "bus"), provision)
