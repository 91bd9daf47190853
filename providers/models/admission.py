"""How many calls a backend gets at once: the rest wait their turn, first come, first served."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from providers.models.failures import failed


class Admission:
    """See the module."""

    def __init__(self, places: int | None) -> None:
        """Let `places` calls in at once; None is no bound."""
        self._places = places
        self._free = asyncio.Semaphore(places) if places else None

    @asynccontextmanager
    async def turn(self, within_s: float) -> AsyncGenerator[float | None]:
        """Give the seconds that were waited, None where nobody ever waits; raises `ModelError` after `within_s` of waiting."""
        if self._free is None:
            yield None
            return
        began = time.monotonic()
        try:
            async with asyncio.timeout(within_s):
                await self._free.acquire()
        except TimeoutError as error:
            text = f"waited {within_s:g} s for one of {self._places} places (max_concurrent_requests)"
            raise failed("provider_unavailable", text) from error
        try:
            yield round(time.monotonic() - began, 4)
        finally:
            self._free.release()
