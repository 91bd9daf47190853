"""`gym-bus eval …` as a user runs it, and how long it takes to the first model call."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Final

from gym_bus.client import connect_cli, open_log
from gym_bus.settings import load_settings
from schemas.events import ModelCallRequested
from tests.bench.stage import ROOT, RUN, data_directory, environment

TIMEOUT_S: Final = 110.0


def run_arguments(data_dir: Path, size: int, in_flight: int) -> tuple[str, ...]:
    """Return the arguments of a run of `size` rollouts of chain_sum in the inline sandbox."""
    tasks = ("taskset.type=reasoning_gym", f"taskset.datasets=[{{name: chain_sum, size: {size}}}]")
    window = (f"num_samples_in_parallel={in_flight}", "ramp_per_s=100000", "sandbox.type=inline")
    return (*tasks, *window, "--run-id", RUN, "--output", str(data_dir / "out"))


def eval_command(data_dir: Path, *arguments: str) -> None:
    """Run `gym-bus eval …` to its end; raises if it does not end with 0."""
    done = subprocess.run(
        [sys.executable, "-m", "gym_bus.cli", "eval", *arguments, "--data-dir", str(data_dir)],
        cwd=ROOT,
        env=environment(data_dir),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    if done.returncode:
        msg = f"gym-bus eval {arguments[0]} ended with {done.returncode}: {(done.stdout + done.stderr)[-1000:]}"
        raise RuntimeError(msg)


async def measure_cold_start(*, quick: bool) -> dict[str, float]:
    """From starting `eval run` on an empty data directory to the first model call, by the log."""
    async with data_directory() as data_dir:
        settings = load_settings({"GYM_BUS_DATA_DIR": str(data_dir)})
        began = time.time()
        eval_command(data_dir, "run", *run_arguments(data_dir, 4, 4))
        whole_s = time.time() - began
        async with connect_cli(settings) as bus:
            log = open_log(bus, settings)
            calls = [e async for e in log.read(f"gym.evt.0.{RUN}.*.model.>") if isinstance(e.data, ModelCallRequested)]
            over: Any = await log.last(f"gym.evt.0.{RUN}._.collector._.run_finished")
        return {
            "cold_start_s": calls[0].recorded_at.timestamp() - began,
            "cold_run_finished_s": over.recorded_at.timestamp() - began,
            "cold_command_s": whole_s,
        }
