"""Complete rollouts a second, and what one costs: processor time, bytes in the log, bytes on disk, memory."""

from __future__ import annotations

from typing import Final

from schemas.config import RunConfig
from schemas.sandboxes import Bubblewrap, Inline
from tests.bench.processes import memory_mb
from tests.bench.report import OTHERS, Others
from tests.bench.stage import Stage, disk_bytes, run_config, stage

TIMEOUT_S: Final = 110.0


async def _rate(on: Stage, config: RunConfig, size: int, name: str) -> dict[str, float]:
    """Return rollouts a second, and how many cores others used meanwhile."""
    others = Others(on.cpu_s())
    await on.request(config)
    end = await on.finished(TIMEOUT_S)
    return {OTHERS: others.cores(on.cpu_s()), name: size / await on.seconds(end)}


async def measure_plain(*, quick: bool) -> dict[str, float]:
    """64 in flight, a model without latency, a tool call in the inline sandbox, graded by the real grader."""
    size = 1_000 if quick else 3_000
    async with stage() as on:
        before, bytes_before, cpu_before = await on.stream(), disk_bytes(on.data_dir / "bus" / "store"), on.cpu_s()
        rate = await _rate(on, run_config(size, 64, Inline()), size, "rollouts_per_s")
        await on.projected(30)
        cpu, after = on.cpu_s() - cpu_before, await on.stream()
        projection = sum(path.stat().st_size for path in on.data_dir.glob("projections.duckdb*"))
        return {
            **rate,
            "cpu_ms_per_rollout": cpu / size * 1e3,
            "log_bytes_per_rollout": (after["bytes"] - before["bytes"]) / size,
            "log_events_per_rollout": (after["messages"] - before["messages"]) / size,
            "disk_bytes_per_rollout_3000": (disk_bytes(on.data_dir / "bus" / "store") - bytes_before) / size,
            "projection_bytes_per_rollout_3000": projection / size,
        }


async def measure_bubblewrap(*, quick: bool) -> dict[str, float]:
    """32 in flight, each with a bubblewrap sandbox of its own."""
    size = 100 if quick else 300
    async with stage() as on:
        return await _rate(on, run_config(size, 32, Bubblewrap()), size, "rollouts_per_s_bubblewrap")


async def measure_latency(*, quick: bool) -> dict[str, float]:
    """256 in flight, model calls of 200 ms with half of it as spread."""
    size = 1_500 if quick else 5_000
    async with stage() as on:
        config = run_config(size, 256, Inline(), latency_s=0.2, latency_spread=0.5)
        return await _rate(on, config, size, "rollouts_per_s_200ms_256")


async def measure_latency_constant(*, quick: bool) -> dict[str, float]:
    """256 in flight, model calls of exactly 200 ms: they come and go in waves."""
    size = 1_500 if quick else 5_000
    async with stage() as on:
        config = run_config(size, 256, Inline(), latency_s=0.2)
        return await _rate(on, config, size, "rollouts_per_s_200ms_256_constant")


async def measure_memory(*, quick: bool) -> dict[str, float]:
    """2,000 in flight at 200 ms; the peak of the sum over all processes."""
    size = 3_000 if quick else 6_000
    async with stage(extra={"GYM_BUS_BOX_SLOTS": "4096"}) as on:
        idle = memory_mb(on.pids())
        peak = 0.0

        def look() -> None:
            nonlocal peak
            peak = max(peak, memory_mb(on.pids()))

        await on.request(run_config(size, 2_000, Inline(), latency_s=0.2, latency_spread=0.5))
        end = await on.finished(TIMEOUT_S, look=look)
        return {
            "rss_mb_2000_in_flight": peak,
            "rss_mb_idle": idle,
            "rollouts_per_s_200ms_2000": size / await on.seconds(end),
        }
