"""Time as a dependency: the wall clock for what is written down, the loop's clock for what is waited for."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import Protocol


class Clock(Protocol):
    """What the actors know about time."""

    def now(self) -> datetime:
        """Return the wall clock, UTC; never used for order or for leases."""
        ...

    def monotonic(self) -> float:
        """Return seconds that only go forward."""
        ...


class SystemClock:
    """The machine's clocks; monotonic time is the running loop's, so that a test loop may run ahead."""

    def now(self) -> datetime:
        """Return the wall clock, UTC."""
        return datetime.now(UTC)

    def monotonic(self) -> float:
        """Return the running loop's time in seconds."""
        return asyncio.get_running_loop().time()
