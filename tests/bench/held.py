"""Activations that are held open: 2,000 at once by one host, each many times as long as the bus waits before it hands work out again.

Two seconds stand for the half minute that the bus waits as a rule, so a call of 30 seconds is held as one of seven minutes is.
"""

from __future__ import annotations

from collections import Counter
from typing import Final

from schemas.events import ActivationCompleted, Claimed, ModelCallRequested, SessionRequested
from schemas.sandboxes import Inline
from tests.bench.processes import memory_mb, most_at_once
from tests.bench.stage import run_config, stage

COUNT: Final = 2_000
QUICK_COUNT: Final = 200
LATENCY_S: Final = 30.0
QUICK_LATENCY_S: Final = 10.0
REDELIVERED: Final = {"GYM_BUS_ACK_WAIT_S": "2", "GYM_BUS_LEASE_S": "1.5", "GYM_BUS_BOX_SLOTS": "4096"}
WITHIN_S: Final = 170.0


async def measure(*, quick: bool) -> dict[str, float]:
    """Return how many were open at once, for how many times the bus's patience, how many began or asked twice, and the cost."""
    count, latency_s = (QUICK_COUNT, QUICK_LATENCY_S) if quick else (COUNT, LATENCY_S)
    peak_mb = 0.0
    async with stage(projector=False, extra=REDELIVERED) as on:
        before_s = on.cpu_s()

        def look() -> None:
            nonlocal peak_mb
            peak_mb = max(peak_mb, memory_mb(on.pids()))

        await on.request(run_config(count, count, Inline(), latency_s=latency_s))
        end = await on.finished(WITHIN_S, look=look)
        share = (on.cpu_s() - before_s) / await on.seconds(end)
        asked: Counter[str] = Counter()
        claims: Counter[str] = Counter()
        changes: list[tuple[float, int]] = []
        async for event in on.log.read("gym.evt.0.>"):
            match event.data:
                case Claimed() if event.actor == "harness":
                    claims[event.rollout_id] += 1
                case ModelCallRequested():
                    asked[f"{event.rollout_id} {event.data.turn}"] += 1
                case SessionRequested():
                    changes.append((event.recorded_at.timestamp(), 1))
                case ActivationCompleted():
                    changes.append((event.recorded_at.timestamp(), -1))
    return {
        "held_activations": most_at_once(changes),
        "held_redeliveries_due": latency_s / float(REDELIVERED["GYM_BUS_ACK_WAIT_S"]),
        "held_begun_again": sum(claims.values()) - len(claims),
        "held_asked_again": sum(asked.values()) - len(asked),
        "held_core_share": share,
        "held_mb": peak_mb,
    }
