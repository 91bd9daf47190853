"""Machines in the making: one of a label at a time, and none of a provider that is closed."""

from __future__ import annotations

import asyncio
from collections.abc import Container, Generator
from contextlib import contextmanager, suppress
from typing import Final

from providers.sandboxes.base import CreateFailed

CLOSES_WITHIN_S: Final = 60.0


class InTheMaking:
    """What a provider is making now, by label."""

    def __init__(self) -> None:
        """Begin with nothing."""
        self._labels: set[str] = set()
        self._none_left = asyncio.Event()
        self._none_left.set()
        self._is_closed = False

    @contextmanager
    def one(self, label: str, made: Container[str]) -> Generator[None]:
        """Make the machine `label` in here; raises `CreateFailed` if it is among those `made`, or being made, or comes too late."""
        if self._is_closed:
            raise CreateFailed(f"sandbox {label}: its provider is closed")
        if label in self._labels or label in made:
            raise CreateFailed(f"sandbox {label} exists already")
        self._labels.add(label)
        self._none_left.clear()
        try:
            yield
        finally:
            self._labels.discard(label)
            if not self._labels:
                self._none_left.set()

    async def aclose(self) -> None:
        """Let no other begin, and wait for those that have begun, for `CLOSES_WITHIN_S` at most: images may take longer to fetch."""
        self._is_closed = True
        with suppress(TimeoutError):
            async with asyncio.timeout(CLOSES_WITHIN_S):
                await self._none_left.wait()
