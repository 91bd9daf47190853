"""Who is alive: heartbeats on the bus, and the lease after which a silent worker's work may be taken over.

A lease only saves money (two workers doing the same thing); the fence is the safety.
"""

from __future__ import annotations

from typing import Final

from gym_bus.clock import Clock

FORGET_AFTER_LEASES: Final = 10


def incarnation(host_id: str, boot_id: str) -> str:
    """Return the name of one life of a host."""
    return f"{host_id}.{boot_id}"


def host_of(worker: str) -> str:
    """Return the host of an incarnation."""
    return worker.partition(".")[0]


class Presence:
    """Remembers when each incarnation was last heard of; counts anew after every reconnect to the bus."""

    def __init__(self, clock: Clock, worker: str, lease_s: float) -> None:
        """Look at the others with the eyes of `worker`."""
        self._clock = clock
        self.worker = worker
        self._lease_s = lease_s
        self._heard: dict[str, float] = {}
        self._left: dict[str, float] = {}
        self._since = clock.monotonic()

    def heard(self, worker: str) -> None:
        """Note a heartbeat."""
        self._heard[worker] = self._clock.monotonic()

    def gone(self, worker: str) -> None:
        """Note that `worker` has said goodbye: its lease is over."""
        self._heard.pop(worker, None)
        self._left[worker] = self._clock.monotonic()

    def reset(self) -> None:
        """Start all leases anew: while the bus was away nobody could be heard."""
        self._since = self._clock.monotonic()

    def silent_for_s(self, worker: str) -> float:
        """Return how long `worker` has not been heard of, in seconds, counted from the last reconnect at the earliest."""
        return self._clock.monotonic() - max(self._heard.get(worker, 0.0), self._since)

    def is_alive(self, worker: str) -> bool:
        """Say whether `worker` may still be at work; an earlier life of this very host is not (its lock was free)."""
        if worker in self._left or (worker != self.worker and host_of(worker) == host_of(self.worker)):
            return False
        return worker == self.worker or self.silent_for_s(worker) < self._lease_s

    def remaining_s(self, worker: str) -> float:
        """Return how long `worker` would have to stay silent to lose its lease."""
        return max(0.05, self._lease_s - self.silent_for_s(worker))

    def is_place_alive(self, host_id: str) -> bool:
        """Say whether any life of `host_id` has been heard of within the lease."""
        lives = [worker for worker in self._heard if host_of(worker) == host_id]
        if any(self.silent_for_s(worker) < self._lease_s for worker in lives):
            return True
        if any(host_of(worker) == host_id for worker in self._left) and not lives:
            return False
        return self._clock.monotonic() - self._since < self._lease_s

    def forget_old(self) -> None:
        """Drop who has been silent for ten leases."""
        now = self._clock.monotonic()
        for worker, at in list(self._heard.items()):
            if now - at > FORGET_AFTER_LEASES * self._lease_s:
                del self._heard[worker]
        for worker, at in list(self._left.items()):
            if now - at > FORGET_AFTER_LEASES * self._lease_s:
                del self._left[worker]
