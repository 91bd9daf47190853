"""What the rest of gym-bus needs of a bus: seven verbs, and three values.

`gym_bus.nats_bus` speaks to a NATS server; `gym_bus.memory_bus` is a bus in one process with the same contract and with faults to
inject. One contract suite (`tests/unit/test_bus_contract.py`) runs against both.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Protocol

from gym_bus.errors import GymBusError


class Conflict(GymBusError):
    """The aggregate's last sequence is not the expected one: read it back before deciding anything."""


@dataclass(frozen=True, slots=True)
class Stored:
    """A stored event: its subject, its bytes and its place in the stream."""

    subject: str
    body: bytes
    sequence: int


class Delivery(Protocol):
    """A request handed to a worker. None of its verbs waits; a lost one only causes another delivery."""

    @property
    def stored(self) -> Stored:
        """Return the request as the event it is in the log."""
        ...

    def ack(self) -> None:
        """Say that the request is answered; a lost acknowledgement only causes another delivery."""
        ...

    def in_progress(self) -> None:
        """Ask for another `ack_wait`."""
        ...

    def later(self, delay_s: float) -> None:
        """Ask to be handed the request again after `delay_s`."""
        ...


class Slots:
    """How many requests a worker may hold at once. Whoever gives one back wakes the loop that fetches."""

    def __init__(self, capacity: int) -> None:
        """Start with `capacity` free slots."""
        self.capacity = capacity
        self.taken = 0
        self.changed = asyncio.Event()

    @property
    def free(self) -> int:
        """Return how many more requests may be held."""
        return max(0, self.capacity - self.taken)

    def take(self) -> None:
        """Use one slot."""
        self.taken += 1

    def give(self) -> None:
        """Give one slot back."""
        self.taken -= 1
        self.changed.set()


OnDelivery = Callable[[Delivery], None]
OnStored = Callable[[Stored], None]
OnTold = Callable[[str, bytes], None]
Listening = AbstractAsyncContextManager[None]


class Bus(Protocol):
    """A bus as one kind of actor sees it."""

    async def append(self, subject: str, body: bytes, *, fence: str, expected: int) -> int:
        """Store `body` under `subject` if the last sequence under `<fence>.>` is `expected`; return its sequence.

        Raises `Conflict`, `BusUnavailable` (it may have been stored, or be stored later), `StoreFull`, `BusRefused`.
        """
        ...

    def read(self, pattern: str, *, after: int = 0, latest: bool = False) -> AsyncIterator[Stored]:
        """Yield everything stored under `pattern` (one shard) with a sequence above `after`, in order, up to now.

        With `latest`, only the newest event of each subject (at most 1,024 subjects): a server finds those by its index, while
        reading all makes it look through what lies between.
        """
        ...

    async def last(self, pattern: str) -> Stored | None:
        """Return the newest event under `pattern` (one shard)."""
        ...

    async def work(self, kind: str, place: str, slots: Slots, deliver: OnDelivery) -> None:
        """Hand requests of `kind` at `place` to `deliver` while slots are free, until cancelled; takes a slot for each."""
        ...

    def listen(self, pattern: str, on_stored: OnStored) -> Listening:
        """Hear stored events under the live `pattern`, in order, at most once, while the context is open."""
        ...

    async def tell(self, subject: str, body: bytes) -> None:
        """Send a message that nobody has to hear."""
        ...

    def hear(self, pattern: str, on_told: OnTold) -> Listening:
        """Hear what is told under `pattern` while the context is open."""
        ...
