"""A bus in one process, with the contract of `gym_bus.bus` and with faults to inject; for tests and simulations.

It keeps what a server keeps (the events, the queues' states) in `MemoryServer`; each host has clients of it, which die with the host.
Faults: acknowledgements lost after the event was stored, live messages lost, requests delivered twice, the server killed (what was
delivered and not acknowledged is handed out again at once, as a real server does).
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from gym_bus import boundary
from gym_bus.bus import Conflict, Listening, OnDelivery, OnStored, OnTold, Slots, Stored
from gym_bus.errors import BusRefused, BusUnavailable, StoreFull
from gym_bus.subjects import FACT_TOKENS, event_subject_of_queued, matches, parse_event, queue_subject_of_event
from gym_bus.topology import rights


@dataclass
class Faults:
    """Shares (0 to 1) of what goes wrong, drawn from a seeded generator."""

    seed: int = 0
    ack_lost: float = 0.0
    live_lost: float = 0.0
    delivered_twice: float = 0.0
    random: random.Random = field(init=False)

    def __post_init__(self) -> None:
        """Seed the generator."""
        self.random = random.Random(self.seed)  # noqa: S311  faults, not secrets

    def strikes(self, share: float) -> bool:
        """Say whether a fault of this share happens now."""
        return share > 0 and self.random.random() < share


@dataclass
class _Queued:
    subject: str
    stored: Stored
    visible_at: float = 0.0
    token: int = 0
    is_doubled: bool = False


def _queue_of(subject: str) -> str:
    return ".".join(subject.split(".")[:4])


class MemoryServer:
    """What is stored, and who listens."""

    def __init__(
        self, *, ack_wait_s: float = 10.0, faults: Faults | None = None, max_messages: int | None = None
    ) -> None:
        """Start empty."""
        self.ack_wait_s = ack_wait_s
        self.faults = faults or Faults()
        self.max_messages = max_messages
        self.events: list[Stored] = []
        self.is_down = False
        self.kills = 0
        self._by_prefix: dict[str, list[Stored]] = {}
        self._rollouts: dict[str, list[Stored]] = {}
        self._queues: dict[str, dict[int, _Queued]] = {}
        self._listeners: dict[int, tuple[str, OnStored]] = {}
        self._hearers: dict[int, tuple[str, OnTold]] = {}
        self._next = 0
        self.on_kill: list[Callable[[], None]] = []

    def number(self) -> int:
        """Return a new number."""
        self._next += 1
        return self._next

    def kill(self) -> None:
        """Kill and restart the server: stored events stay, deliveries in flight are forgotten and handed out again."""
        self.kills += 1
        for queue in self._queues.values():
            for item in queue.values():
                item.visible_at = 0.0
                item.token = self.number()
        for call in list(self.on_kill):
            call()

    def last_under(self, prefix: str) -> Stored | None:
        """Return the last event of an aggregate."""
        found = self._by_prefix.get(prefix)
        return found[-1] if found else None

    def append(self, subject: str, body: bytes, fence: str, expected: int) -> int:
        """Store one event under the rule of expected sequences."""
        tail = self.last_under(fence)
        if (tail.sequence if tail else 0) != expected:
            msg = f"{subject}: wrong last sequence: {tail.sequence if tail else 0}"
            raise Conflict(msg)
        if self.max_messages is not None and len(self.events) >= self.max_messages:
            msg = "the bus's store is full: maximum messages exceeded"
            raise StoreFull(msg)
        stored = Stored(subject, body, len(self.events) + 1)
        self.events.append(stored)
        parsed = parse_event(subject)
        self._by_prefix.setdefault(parsed.aggregate.prefix, []).append(stored)
        self._rollouts.setdefault(f"{parsed.aggregate.run_id}.{parsed.aggregate.rollout_id}", []).append(stored)
        if parsed.to:
            queued = queue_subject_of_event(subject)
            self._queues.setdefault(_queue_of(queued), {})[stored.sequence] = _Queued(queued, stored)
        live = "gym.live." + subject.removeprefix("gym.evt.")
        if not self.faults.strikes(self.faults.live_lost):
            for pattern, on_stored in list(self._listeners.values()):
                if matches(pattern, live):
                    asyncio.get_running_loop().call_soon(on_stored, stored)
        return stored.sequence

    def select(self, pattern: str, after: int) -> list[Stored]:
        """Return what is stored under a pattern above `after`."""
        parts = pattern.split(".")
        pool = (
            self.events
            if "*" in parts[3:5] or len(parts) < FACT_TOKENS - 2
            else self._rollouts.get(f"{parts[3]}.{parts[4]}", [])
        )
        return [e for e in pool if e.sequence > after and matches(pattern, e.subject)]

    def take(self, kind: str, place: str, now: float) -> _Queued | None:
        """Hand out the oldest visible request."""
        for item in self._queues.get(f"gym.cmd.{kind}.{place}", {}).values():
            if item.visible_at <= now:
                item.visible_at = now + self.ack_wait_s
                item.token = self.number()
                if not item.is_doubled and self.faults.strikes(self.faults.delivered_twice):
                    item.is_doubled = True
                    item.visible_at = now
                return item
        return None

    def settle(self, item: _Queued, token: int, visible_at: float | None) -> None:
        """Acknowledge (None) or put back a request; a delivery from before a restart or a redelivery has no say."""
        queue = self._queues.get(_queue_of(item.subject), {})
        if item.token != token or item.stored.sequence not in queue:
            return
        if visible_at is None:
            del queue[item.stored.sequence]
        else:
            item.visible_at = visible_at

    def queue_names(self) -> list[str]:
        """Return the names of the queues that hold something."""
        return [name for name, queue in self._queues.items() if queue]

    def pending(self) -> int:
        """Return how many requests are not acknowledged."""
        return sum(len(q) for q in self._queues.values())

    @asynccontextmanager
    async def listening(self, pattern: str, on_stored: OnStored) -> AsyncGenerator[None]:
        """Register a listener."""
        number = self.number()
        self._listeners[number] = (pattern, on_stored)
        try:
            yield
        finally:
            del self._listeners[number]

    @asynccontextmanager
    async def hearing(self, pattern: str, on_told: OnTold) -> AsyncGenerator[None]:
        """Register a hearer."""
        number = self.number()
        self._hearers[number] = (pattern, on_told)
        try:
            yield
        finally:
            del self._hearers[number]

    def tell(self, subject: str, body: bytes) -> None:
        """Pass a message on."""
        for pattern, on_told in list(self._hearers.values()):
            if matches(pattern, subject):
                asyncio.get_running_loop().call_soon(on_told, subject, body)


class MemoryDelivery:
    """See `gym_bus.bus.Delivery`."""

    def __init__(self, client: MemoryBus, item: _Queued) -> None:
        """Hand out `item`."""
        self.stored = Stored(event_subject_of_queued(item.subject), item.stored.body, item.stored.sequence)
        self._client = client
        self._item = item
        self._token = item.token

    def _settle(self, visible_in: float | None) -> None:
        client = self._client
        if client.is_dead or (client.frozen and not client.frozen.is_set()):
            return
        now = asyncio.get_running_loop().time()
        client.server.settle(self._item, self._token, None if visible_in is None else now + visible_in)

    def ack(self) -> None:
        """Acknowledge."""
        self._settle(None)

    def in_progress(self) -> None:
        """Ask for more time."""
        self._settle(self._client.server.ack_wait_s)

    def later(self, delay_s: float) -> None:
        """Ask for it again later."""
        self._settle(delay_s)


class MemoryBus:
    """A client of a `MemoryServer` for one kind of actor; see `gym_bus.bus.Bus`."""

    def __init__(self, server: MemoryServer, user: str, *, latency_s: float = 0.0) -> None:
        """Connect `user`; each append and read takes `latency_s` of the loop's time."""
        self.server = server
        self.is_dead = False
        self.frozen: asyncio.Event | None = None
        self._user = user
        self._latency_s = latency_s
        self._allowed = rights(user)["publish"]
        self._seen_rights: set[tuple[str, str]] = set()

    async def _arrive(self) -> None:
        """Take time; a dead client never gets anywhere."""
        await asyncio.sleep(self._latency_s)
        if self.frozen:
            await self.frozen.wait()
        if self.is_dead:
            await asyncio.get_running_loop().create_future()
        if self.server.is_down:
            await asyncio.sleep(2.0)
            msg = "no answer from the bus"
            raise BusUnavailable(msg)

    async def append(self, subject: str, body: bytes, *, fence: str, expected: int) -> int:
        """Store one event."""
        if not any(matches(pattern, subject) for pattern in self._allowed):
            msg = f"this bus user may not publish to {subject}: see gym_bus.topology.rights"
            raise BusRefused(msg)
        await self._arrive()
        sequence = self.server.append(subject, body, fence, expected)
        boundary.reach(self._user, "append_sent")
        if self.server.faults.strikes(self.server.faults.ack_lost):
            await asyncio.sleep(2.0)
            msg = f"no answer from the bus to {subject}"
            raise BusUnavailable(msg)
        await self._arrive()
        return sequence

    async def read(self, pattern: str, *, after: int = 0, latest: bool = False) -> AsyncIterator[Stored]:
        """Yield stored events."""
        await self._arrive()
        found = self.server.select(pattern, after)
        if latest:
            found = sorted({s.subject: s for s in found}.values(), key=lambda s: s.sequence)
        for stored in found:
            yield stored

    async def last(self, pattern: str) -> Stored | None:
        """Return the newest event."""
        await self._arrive()
        found = self.server.select(pattern, 0)
        return found[-1] if found else None

    async def work(self, kind: str, place: str, slots: Slots, deliver: OnDelivery) -> None:
        """Hand out requests."""
        loop = asyncio.get_running_loop()
        while True:
            await self._arrive() if not self.server.is_down else await asyncio.sleep(0.1)
            while slots.free and not self.server.is_down and (item := self.server.take(kind, place, loop.time())):
                slots.take()
                deliver(MemoryDelivery(self, item))
                await asyncio.sleep(0)
            await asyncio.sleep(0.01)

    def listen(self, pattern: str, on_stored: OnStored) -> Listening:
        """Hear stored events."""
        return self.server.listening(pattern, lambda stored: None if self.is_dead else on_stored(stored))

    async def tell(self, subject: str, body: bytes) -> None:
        """Send a message."""
        await self._arrive()
        self.server.tell(subject, body)

    def hear(self, pattern: str, on_told: OnTold) -> Listening:
        """Hear messages."""
        return self.server.hearing(pattern, lambda subject, body: None if self.is_dead else on_told(subject, body))
