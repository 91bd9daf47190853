"""The log's room: nothing new starts when the log is nearly full, and few start when it is about to be."""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final

from gym_bus.clock import Clock

LOOK_EVERY_S: Final = 2.0
ROLLOUT_BYTES: Final = 32 * 1024
"""What a rollout is expected to add to the log: some three times the shortest one. The log's last tenth is for longer ones."""


@dataclass(frozen=True, slots=True)
class Room:
    """How many bytes the log may take until nothing new starts, and why, if that is so already."""

    left: int = sys.maxsize
    refusal: str | None = None


Look = Callable[[], Awaitable[Room]]
"""Looks how much room the log has."""


class Admission:
    """How many rollouts may be under way: the log is looked at every 2 s, and before a start that might find no room."""

    def __init__(self, look: Look, clock: Clock) -> None:
        """Ask `look` for the room."""
        self._look = look
        self._clock = clock
        self._room = Room()
        self._looked_at = -LOOK_EVERY_S
        self._taken = 0

    @property
    def refusal(self) -> str | None:
        """Say why nothing may start, if so."""
        return self._room.refusal

    @property
    def allows_one(self) -> bool:
        """Return whether the room seen last is enough for one more."""
        return not self.refusal and self._taken < max(1, self._room.left // ROLLOUT_BYTES)

    def take(self) -> None:
        """Note that a rollout has been started."""
        self._taken += 1

    async def look(self, under_way: int) -> None:
        """Look at the log, if it is time, while `under_way` rollouts still need room there."""
        now = self._clock.monotonic()
        is_time = now - self._looked_at >= LOOK_EVERY_S
        if is_time or not (self.refusal or self.allows_one):
            self._looked_at, self._taken = now, under_way
            self._room = await self._look()

    def forget(self) -> None:
        """Look anew before the next start."""
        self._looked_at, self._room = -LOOK_EVERY_S, Room()
