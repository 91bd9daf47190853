"""Run the measurements: `python -m tests.bench [--quick] [--runs N] [--only NAME …]`.

Prints a table and writes `results/bench.json`. Ends with 0 whatever the figures are, with 1 if a measurement broke.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import signal
import sys
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final

import structlog
import uvloop

from tests.bench import (
    append,
    box_work,
    boxes,
    command_line,
    crowd,
    faults,
    gateway,
    harness,
    held,
    projector,
    throughput,
    warm,
)
from tests.bench.report import OTHERS, Record, busy_cores, load_average, loop_ms, print_table, save

Measure = Callable[..., Awaitable[dict[str, float]]]
TIMEOUT_S: Final = 180.0


@dataclass(frozen=True, slots=True)
class Family:
    """Figures that one measurement gives together; `runs` is how often by default."""

    measure: Measure
    names: tuple[str, ...]
    runs: int = 3


async def _projector(*, quick: bool) -> dict[str, float]:
    return await asyncio.to_thread(projector.measure, 20_000 if quick else 100_000)


FAMILIES: Final = {
    "append": Family(
        append.measure,
        ("append_ratio", "append_ratio_same_client", "append_per_s", "bare_per_s", "unfenced_per_s", "eventlog_per_s"),
        1,
    ),
    "throughput": Family(
        throughput.measure_plain,
        (
            "rollouts_per_s",
            "cpu_ms_per_rollout",
            "log_bytes_per_rollout",
            "log_events_per_rollout",
            "disk_bytes_per_rollout_3000",
            "projection_bytes_per_rollout_3000",
        ),
    ),
    "bubblewrap": Family(throughput.measure_bubblewrap, ("rollouts_per_s_bubblewrap",)),
    "latency": Family(throughput.measure_latency, ("rollouts_per_s_200ms_256",)),
    "latency_constant": Family(throughput.measure_latency_constant, ("rollouts_per_s_200ms_256_constant",)),
    "memory": Family(
        throughput.measure_memory, ("rss_mb_2000_in_flight", "rss_mb_idle", "rollouts_per_s_200ms_2000"), 1
    ),
    "cold_start": Family(command_line.measure_cold_start, ("cold_start_s", "cold_run_finished_s", "cold_command_s"), 5),
    "kill_all": Family(
        faults.measure_kill_all,
        (
            "answers_asked_again",
            "calls_repaid",
            "calls_in_flight_at_kill",
            "calls_wasted",
            "calls_of_later_attempts",
            "calls_of_extra_turns",
            "resume_s",
        ),
    ),
    "takeover": Family(faults.measure_takeover, ("takeover_s", "takeover_run_s", "takeover_rollout_s")),
    "gateway": Family(
        gateway.measure,
        (
            "gateway_ratio",
            "gateway_ratio_same_client",
            "gateway_cpu_ms_per_call",
            "gateway_bare_cpu_ms_per_call",
            "gateway_calls_per_core_s",
        ),
    ),
    "gateway_latency": Family(
        gateway.measure_latency,
        (
            "gateway_added_p50_ms",
            "gateway_added_p99_ms",
            "gateway_first_token_added_p50_ms",
            "gateway_first_token_added_p99_ms",
            "gateway_bare_added_p50_ms",
            "gateway_bare_first_token_added_p50_ms",
            "gateway_added_p50_ms_1",
            "gateway_added_p99_ms_1",
            "gateway_first_token_added_p50_ms_1",
            "gateway_first_token_added_p99_ms_1",
            "gateway_bare_added_p50_ms_1",
            "gateway_bare_first_token_added_p50_ms_1",
        ),
        1,
    ),
    "gateway_latency_512": Family(
        gateway.measure_many,
        (
            "gateway_added_p50_ms_512",
            "gateway_added_p99_ms_512",
            "gateway_first_token_added_p50_ms_512",
            "gateway_first_token_added_p99_ms_512",
        ),
        1,
    ),
    "gateway_crowds": Family(
        gateway.measure_crowds,
        (
            "gateway_throughput_256_over_128",
            "gateway_throughput_512_over_128",
            "gateway_open_streams",
            "gateway_open_streams_core_share",
            "gateway_open_streams_mb",
        ),
        1,
    ),
    "gateway_log": Family(gateway.measure_log, ("log_growth_200_over_100_turns",), 1),
    "boxes_bubblewrap": Family(
        boxes.measure_bubblewrap,
        ("sandbox_create_ratio_bubblewrap", "sandbox_create_ms_bubblewrap", "sandbox_bare_create_ms_bubblewrap"),
    ),
    "boxes_docker": Family(
        boxes.measure_docker,
        ("sandbox_create_ratio_docker", "sandbox_create_ms_docker", "sandbox_bare_create_ms_docker"),
    ),
    "warm_bubblewrap": Family(
        warm.measure_bubblewrap,
        ("sandbox_warm_ms_bubblewrap", "sandbox_cold_ms_bubblewrap", "sandbox_warm_ratio_bubblewrap"),
    ),
    "warm_docker": Family(
        warm.measure_docker, ("sandbox_warm_ms_docker", "sandbox_cold_ms_docker", "sandbox_warm_ratio_docker")
    ),
    "box_work_bubblewrap": Family(
        box_work.measure_bubblewrap,
        (
            "sandbox_exec_standing_ms_bubblewrap",
            "sandbox_put_mib_s_bubblewrap",
            "sandbox_get_mib_s_bubblewrap",
            "checkpoint_1000_files_s_bubblewrap",
            "checkpoint_again_1000_files_s_bubblewrap",
            "restore_1000_files_s_bubblewrap",
            "checkpoint_200_mb_s_bubblewrap",
            "checkpoint_again_200_mb_s_bubblewrap",
            "restore_200_mb_s_bubblewrap",
        ),
        1,
    ),
    "box_work_docker": Family(
        box_work.measure_docker,
        (
            "sandbox_exec_standing_ms_docker",
            "sandbox_put_mib_s_docker",
            "sandbox_get_mib_s_docker",
            "sandbox_exec_fresh_ms_docker",
            "sandbox_bare_put_mib_s_docker",
            "sandbox_bare_get_mib_s_docker",
            "checkpoint_1000_files_s_docker",
            "checkpoint_again_1000_files_s_docker",
            "restore_1000_files_s_docker",
            "checkpoint_200_mb_s_docker",
            "checkpoint_again_200_mb_s_docker",
            "restore_200_mb_s_docker",
        ),
        1,
    ),
    "box_bus": Family(box_work.measure_bus, ("sandbox_exec_ms",), 1),
    "box_held": Family(
        box_work.measure_held,
        ("sandbox_held_boxes", "sandbox_held_made_s", "sandbox_held_all_run_s", "sandbox_held_mib_each"),
        1,
    ),
    "harness": Family(
        harness.measure,
        (
            "harness_start_ratio",
            *(
                f"harness_{what}_{name}"
                for name in harness.AGENTS
                for what in ("start_ratio", "start_ms", "bare_start_ms")
            ),
        ),
        1,
    ),
    "crowd_codex": Family(crowd.measure_codex, ("crowd_codex_at_once", "crowd_codex_lost", "crowd_codex_mb"), 1),
    "crowd_pi": Family(crowd.measure_pi, ("crowd_pi_at_once", "crowd_pi_lost", "crowd_pi_mb"), 1),
    "held": Family(
        held.measure,
        (
            "held_activations",
            "held_redeliveries_due",
            "held_begun_again",
            "held_asked_again",
            "held_core_share",
            "held_mb",
        ),
        1,
    ),
    "projector": Family(
        _projector,
        ("projector_events_per_s", "projector_bare_events_per_s", "projector_ratio", "projector_lag_s"),
    ),
}


def _wanted(only: list[str]) -> dict[str, Family]:
    """Return the families named, or that give a figure named."""
    unknown = [n for n in only if n not in FAMILIES and all(n not in f.names for f in FAMILIES.values())]
    if unknown:
        msg = f"no measure is called {unknown[0]}: families are {', '.join(FAMILIES)}"
        raise SystemExit(msg)
    return {name: f for name, f in FAMILIES.items() if not only or name in only or set(f.names) & set(only)}


def _measure(name: str, family: Family, runs: int, *, quick: bool) -> dict[str, Record]:
    """Measure a family some times; a broken measurement has no value and a reason."""
    records = {figure: Record() for figure in family.names}
    for run in range(runs):
        busy, load, loop = busy_cores(), load_average(), loop_ms()
        print(
            f"{name} {run + 1}/{runs} (load {load:.2f}, {busy:.2f} cores busy, loop {loop:g} ms)",
            file=sys.stderr,
            flush=True,
        )

        async def bounded() -> dict[str, float]:
            async with asyncio.timeout(TIMEOUT_S):
                return await family.measure(quick=quick)

        try:
            found = uvloop.run(bounded())
        except Exception as error:  # noqa: BLE001  one broken measurement does not take the others with it
            reason = f"{type(error).__name__}: {error}"[:1000]
            print(f"  broke: {reason}", file=sys.stderr, flush=True)
            for record in records.values():
                record.reason = reason
            break
        print("  " + ", ".join(f"{key} {value:.4g}" for key, value in found.items()), file=sys.stderr, flush=True)
        for figure, record in records.items():
            record.add(found[figure], load, found.get(OTHERS), loop)
    return records


def main() -> int:
    """Measure, print, save; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench", description="Measure; prints a table.")
    parser.add_argument("--only", nargs="+", default=[], metavar="NAME", help="families or figures to measure")
    parser.add_argument("--quick", action="store_true", help="fewer rollouts, one run each; not for publishing")
    parser.add_argument("--runs", type=int, help="measure each so often instead of its own default")
    options = parser.parse_args()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(130))
    records: dict[str, Record] = {}
    for name, family in _wanted(options.only).items():
        runs = options.runs or (1 if options.quick else family.runs)
        records |= _measure(name, family, runs, quick=options.quick)
        save(records, is_quick=options.quick)
    print_table(records)
    return 1 if any(record.reason for record in records.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
