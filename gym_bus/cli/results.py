"""What is shown of a run that is over: the table per dataset, where the results are, and what to try next."""

from __future__ import annotations

import asyncio
import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from gym_bus.client import ProjectorSilent, QueryFailed, export

if TYPE_CHECKING:
    from gym_bus.cli.course import Course
    from gym_bus.nats_bus import NatsBus

EXPORT_PATIENCE_S: Final = 60.0


async def fetch_results(bus: NatsBus, run_id: str) -> tuple[dict[str, str], str | None]:
    """Have the results written; return their paths, or why there are none (yet)."""
    deadline = time.monotonic() + EXPORT_PATIENCE_S
    reason = ""
    while time.monotonic() < deadline:
        try:
            return await export(bus, run_id), None
        except ProjectorSilent as error:
            reason = str(error)
        except QueryFailed as error:
            return {}, str(error)
        await asyncio.sleep(0.2)
    return {}, f"{reason}; the results can be had later: gym-bus eval resume {run_id}"


def read_metrics(paths: dict[str, str]) -> dict[str, Any] | None:
    """Return the metrics that were written, None if there are none."""
    for name, path in paths.items():
        if name.startswith("metrics") and Path(path).is_file():
            metrics: dict[str, Any] = json.loads(Path(path).read_text(encoding="utf-8"))
            return metrics
    return None


def print_results(course: Course, paths: dict[str, str], why_not: str | None) -> None:
    """Print the end of a run for a person."""
    finished = course.finished
    if finished is None:
        return
    print(
        f"\nrun {course.run_id} {finished.state}: {finished.planned} planned = {finished.scored} scored + "
        f"{finished.failed} failed + {finished.masked} masked + {finished.missing} missing"
    )
    if finished.failure:
        print(f"because: {finished.failure.message}")
    if metrics := read_metrics(paths):
        _print_table(metrics)
    if paths:
        print("\nresults:")
        for path in paths.values():
            print(f"  {path}")
    elif why_not:
        print(f"\nno results yet: {why_not}")
    print_next(course.run_id, has_failures=bool(finished.failed or finished.missing))


def print_next(run_id: str, *, has_failures: bool) -> None:
    """Print three commands to try."""
    wanted = "state != 'scored'" if has_failures else "reward < 1"
    question = f"SELECT rollout_id, state, reward, failure_reason FROM rollouts WHERE run_id = '{run_id}' AND {wanted} LIMIT 10"
    print(f'\nnext:\n  gym-bus sql "{question}"\n  gym-bus log show {run_id} 0-0\n  gym-bus eval status {run_id}')


def _print_table(metrics: dict[str, Any]) -> None:
    from rich.console import Console  # noqa: PLC0415  only at the end of a run
    from rich.table import Table  # noqa: PLC0415  the same

    rows = table_rows(metrics)
    if not rows:
        return
    table = Table(box=None, pad_edge=False, header_style="bold")
    for i, title in enumerate(rows[0]):
        table.add_column(title, justify="left" if i == 0 else "right")
    for row in rows[1:]:
        table.add_row(*row)
    print()
    Console(highlight=False).print(table)


COLUMNS: Final = ("tasks", "planned", "scored", "failed", "masked", "missing")


def table_rows(metrics: dict[str, Any]) -> list[list[str]]:
    """Return the rows of the table, titles first: one for each dataset, and one for all if there are several."""
    datasets: dict[str, dict[str, Any]] = dict(metrics.get("datasets") or {})
    if (overall := metrics.get("overall")) and len(datasets) != 1:
        datasets["all"] = overall
    passes = sorted({key for row in datasets.values() for key in _passes(row)}, key=lambda k: int(k.rpartition("@")[2]))
    if not datasets:
        return []
    rows = [["dataset", *COLUMNS, "mean reward", *passes]]
    for name, row in datasets.items():
        known = _passes(row)
        rows.append(
            [name, *(str(row.get(c, "-")) for c in COLUMNS), _mean(row), *(_number(known.get(key)) for key in passes)]
        )
    return rows


def _passes(row: dict[str, Any]) -> dict[str, float | None]:
    return {str(key): value for key, value in row.items() if str(key).startswith("pass@")}


def _number(value: Any) -> str:
    return f"{value:.3f}" if isinstance(value, int | float) else "-"


def _mean(row: dict[str, Any]) -> str:
    interval = row.get("mean_reward_ci95")
    text = _number(row.get("mean_reward"))
    if isinstance(interval, list) and len(interval) == 2 and all(isinstance(x, int | float) for x in interval):  # noqa: PLR2004
        return f"{text} ± {(interval[1] - interval[0]) / 2:.3f}"
    return text
