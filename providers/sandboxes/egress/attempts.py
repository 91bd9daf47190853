"""The account of what a box tried to reach."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Attempt:
    """One connection that a box asked for: where to (as far as it said so), what became of it and why, bytes out and in.

    `address` is the one that was connected to. `is_allowed` tells whether it was let through at first; `reason` why it was not, or why
    it ended otherwise than by its two ends. `phase` is the one in which it began.
    """

    host: str
    port: int
    address: str | None
    is_allowed: bool
    reason: str
    sent_bytes: int
    received_bytes: int
    duration_s: float
    phase: str


class Attempts:
    """Keeps the first `bound` attempts until they are taken, counts the rest, and hands each to `on_attempt` as it ends."""

    def __init__(self, bound: int, on_attempt: Callable[[Attempt], None] | None = None) -> None:
        self._bound = bound
        self._on_attempt = on_attempt
        self._kept: list[Attempt] = []
        self._dropped = 0

    def add(self, attempt: Attempt) -> None:
        """Write down an attempt that is over."""
        if len(self._kept) < self._bound:
            self._kept.append(attempt)
        else:
            self._dropped += 1
        if self._on_attempt is not None:
            self._on_attempt(attempt)

    def take(self) -> tuple[list[Attempt], int]:
        """Return what was tried since the last time, in the order of its end, and how many more were not kept."""
        kept, dropped = self._kept, self._dropped
        self._kept, self._dropped = [], 0
        return kept, dropped
