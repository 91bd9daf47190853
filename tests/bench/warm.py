# ruff: noqa: ASYNC240  what is measured here may block
"""From asking for a sandbox to its first command's result: one that was made ahead against one that is made now, turn by turn."""

from __future__ import annotations

import asyncio
import secrets
import tempfile
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from statistics import median
from typing import Final

from actors.sandbox.admission import Admission
from actors.sandbox.warm import WarmPools
from providers.sandboxes import Box, make_provider
from schemas.sandboxes import Bubblewrap, Docker, SandboxConfig
from tests.support.engine import IMAGE, USER

PAIRS: Final = 40
QUICK_PAIRS: Final = 10
READY_WITHIN_S: Final = 30.0


async def _first_command_ms(get: Callable[[], Awaitable[Box]]) -> float:
    began = time.perf_counter()
    box = await get()
    done = await box.exec("true", key="k", timeout_s=30)
    took = (time.perf_counter() - began) * 1e3
    assert done.exit_code == 0
    await box.destroy()
    return took


async def measure(kind: str, *, quick: bool) -> dict[str, float]:
    """Return the medians and their ratio; what fills the pool again is waited for, and not measured."""
    config: SandboxConfig = Docker(image=IMAGE, user=USER) if kind == "docker" else Bubblewrap()
    with tempfile.TemporaryDirectory(prefix="gym-bus-bench-", dir="/var/tmp") as directory:
        Path(directory).chmod(0o755)
        provider = make_provider(config, Path(directory))
        pools = WarmPools(lambda _: provider, Admission(), f"bench.{secrets.token_hex(4)}", _never)
        running = asyncio.create_task(pools.run())
        await asyncio.sleep(0)

        async def cold() -> Box:
            return await provider.create(f"bench.{secrets.token_hex(8)}")

        async def warm() -> Box:
            made = await pools.take("bench", config, 1)
            assert made is not None
            return made.box

        try:
            await pools.take("bench", config, 1)
            pairs = []
            for _ in range((QUICK_PAIRS if quick else PAIRS) + 1):
                await _filled(pools)
                pairs.append((await _first_command_ms(warm), await _first_command_ms(cold)))
        finally:
            running.cancel()
            with suppress(asyncio.CancelledError):
                await running
            await provider.aclose()
    warm_ms, cold_ms = (median(pair[n] for pair in pairs[1:]) for n in (0, 1))
    return {
        f"sandbox_warm_ms_{kind}": warm_ms,
        f"sandbox_cold_ms_{kind}": cold_ms,
        f"sandbox_warm_ratio_{kind}": warm_ms / cold_ms,
    }


async def measure_bubblewrap(*, quick: bool) -> dict[str, float]:
    """See `measure`."""
    return await measure("bubblewrap", quick=quick)


async def measure_docker(*, quick: bool) -> dict[str, float]:
    """See `measure`."""
    return await measure("docker", quick=quick)


async def _filled(pools: WarmPools) -> None:
    async with asyncio.timeout(READY_WITHIN_S):
        while not any(pool.ready for pool in pools._pools.values()):
            await asyncio.sleep(0.005)
        await asyncio.sleep(0.02)


async def _never(run_id: str) -> bool:
    del run_id
    return False
