"""Keeps machines alive: each is renewed three times in its lifetime, for as long as this process runs, up to an age."""

from __future__ import annotations

import asyncio
from typing import Protocol


class Renewed(Protocol):
    """What can be kept."""

    async def renew(self) -> None:
        """Let it live for another lifetime from now on; never raises."""
        ...


class Keeper:
    """One task for all that is kept; there is none while nothing is."""

    def __init__(self, lifetime_s: int, max_age_s: float) -> None:
        self._lifetime_s = lifetime_s
        self._max_age_s = max_age_s
        self._since: dict[Renewed, float] = {}
        self._task: asyncio.Task[None] | None = None

    def keep(self, one: Renewed) -> None:
        """Renew `one` from now on."""
        loop = asyncio.get_running_loop()
        self._since[one] = loop.time()
        if self._task is None or self._task.done():
            self._task = loop.create_task(self._renew_all())

    def drop(self, one: Renewed) -> None:
        """Renew `one` no more; safe to repeat."""
        self._since.pop(one, None)

    async def aclose(self) -> None:
        """Stop."""
        self._since.clear()
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
            self._task = None

    async def _renew_all(self) -> None:
        loop = asyncio.get_running_loop()
        while self._since:
            await asyncio.sleep(self._lifetime_s / 3)
            due = [one for one, since in self._since.items() if loop.time() - since < self._max_age_s]
            async with asyncio.TaskGroup() as group:
                for one in due:
                    group.create_task(one.renew())
