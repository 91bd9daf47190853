"""A projector in a process of its own, on a real bus, to be killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def start_projector(data_dir: Path, faults: Mapping[str, str] | None = None) -> subprocess.Popen[bytes]:
    """Start `python -m actors.host --kinds projector` on the bus under `data_dir`."""
    environ = {**os.environ, "GYM_BUS_DATA_DIR": str(data_dir), "PYTHONPATH": str(ROOT), **(faults or {})}
    log = (data_dir / "projector.log").open("ab")
    with log:
        return subprocess.Popen(
            [sys.executable, "-m", "actors.host", "--kinds", "projector"],
            env=environ,
            stdout=log,
            stderr=log,
            cwd=data_dir,
        )


def stop(process: subprocess.Popen[bytes]) -> int:
    """End a projector in good order and return its exit code."""
    if process.poll() is None:
        process.send_signal(signal.SIGTERM)
    return process.wait(20)
