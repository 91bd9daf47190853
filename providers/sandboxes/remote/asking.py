"""Calls that may be repeated: each with a deadline, and again after a wait that grows, a few times."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from providers.sandboxes.remote.cloud import CloudRefused

T = TypeVar("T")
TRIES: Final = 4
PAUSE_S: Final = 0.1
WORTH_ANOTHER: Final = frozenset({"unreachable", "busy", "failed"})


async def asked(call: Callable[[], Awaitable[T]], timeout_s: float) -> T:
    """Return what `call` returns; raises `CloudRefused` after the last try. A deadline that passed is not tried again."""
    for n in range(TRIES):
        try:
            async with asyncio.timeout(timeout_s):
                return await call()
        except TimeoutError:
            raise CloudRefused("unreachable", f"there was no answer within {timeout_s:g} s") from None
        except CloudRefused as error:
            if error.kind not in WORTH_ANOTHER or n == TRIES - 1:
                raise
        await asyncio.sleep(PAUSE_S * 2**n * random.uniform(0.5, 1.5))  # noqa: S311  no secret
    raise AssertionError
