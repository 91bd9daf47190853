"""What is shown of a run that is over: the table per dataset, where the results are, and what to try next."""

from __future__ import annotations

import asyncio
import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from gym_bus.cli.plain import plain
from gym_bus.cli.tables import print_table
from gym_bus.client import ProjectorSilent, QueryFailed, export

if TYPE_CHECKING:
    from gym_bus.cli.course import Course
    from gym_bus.cli.reasons import Reasons
    from gym_bus.nats_bus import NatsBus

BUSY_PATIENCE_S: Final = 600.0
SILENT_PATIENCE_S: Final = 60.0
REFUSAL_PATIENCE_S: Final = 10.0
KS_SHOWN: Final = 5


async def fetch_results(bus: NatsBus, course: Course) -> tuple[dict[str, str], str | None]:
    """Have the results written by a projector that has read the run's end; return their paths, or why not."""
    began = time.monotonic()
    wanted = {str(course.shard): course.finished_sequence}
    while True:
        try:
            if paths := await export(bus, course.run_id, wanted):
                return paths, None
            reason, patience_s = "the projector is still at it", BUSY_PATIENCE_S
        except ProjectorSilent as error:
            reason, patience_s = str(error), SILENT_PATIENCE_S
        except QueryFailed as error:
            reason, patience_s = str(error), REFUSAL_PATIENCE_S
        if time.monotonic() - began > patience_s:
            return {}, f"{reason}; the results can be had later: gym-bus eval resume {course.run_id}"
        await asyncio.sleep(0.1)


def read_metrics(paths: dict[str, str]) -> dict[str, Any] | None:
    """Return the metrics that were written, None if there are none."""
    for name, path in paths.items():
        if name.startswith("metrics") and Path(path).is_file():
            metrics: dict[str, Any] = json.loads(Path(path).read_text(encoding="utf-8"))
            return metrics
    return None


def print_results(course: Course, paths: dict[str, str], why_not: str | None, reasons: Reasons) -> None:
    """Print the end of a run for a person."""
    finished = course.finished
    if finished is None:
        return
    print(
        f"\nrun {course.run_id} {finished.state}: {finished.planned} planned = {finished.scored} scored + "
        f"{finished.failed} failed + {finished.masked} masked + {finished.missing} missing"
    )
    if finished.failure:
        print(plain(f"because: {finished.failure.message}"))
    for line in reasons.lines():
        print(line)
    if metrics := read_metrics(paths):
        _print_table(metrics)
    if paths:
        print("\nresults:")
        for path in paths.values():
            print(f"  {path}")
    elif why_not:
        print(f"\nno results yet: {why_not}")
    if finished.planned:
        has_failures = bool(finished.failed or finished.missing)
        print_next(course.run_id, has_failures=has_failures, has_token_ids=reasons.has_token_ids)
    else:
        print(f"\nnext:\n  gym-bus log show {course.run_id}\n  gym-bus eval status {course.run_id}")


def print_next(run_id: str, *, has_failures: bool, has_token_ids: bool = False) -> None:
    """Print commands to try: three, and that for training rows if there can be any."""
    wanted = "coalesce(reward, 0) < 1" if has_failures else "reward < 1"
    columns = "rollout_id, state, reward, coalesce(failure_message, failure_reason) AS why"
    question = f"SELECT {columns} FROM rollouts WHERE run_id = '{run_id}' AND {wanted} LIMIT 10"  # noqa: S608  shown only
    print(f'\nnext (sql with --json: long texts in full):\n  gym-bus sql "{question}"')
    print(f"  gym-bus log show {run_id} 0-0\n  gym-bus eval status {run_id}")
    if has_token_ids:
        print(f"  gym-bus eval samples {run_id}")


def _print_table(metrics: dict[str, Any]) -> None:
    titles, *rows = table_rows(metrics)
    print()
    print_table(titles, rows)


COUNTS: Final = ("planned", "scored", "failed", "masked", "missing")


def table_rows(metrics: dict[str, Any]) -> list[list[str]]:
    """Return the rows of the table, titles first: one for each dataset, and one for all if there are several."""
    rows: dict[str, dict[str, Any]] = dict(metrics.get("by_dataset") or {})
    if len(rows) != 1:
        rows["all"] = metrics
    ks = sorted({int(k) for row in rows.values() for k in row.get("pass_at_k") or {}})
    shown_ks = ks if len(ks) <= KS_SHOWN else [*ks[: KS_SHOWN - 1], ks[-1]]
    table = [["dataset", "tasks", *COUNTS, "mean reward", *(f"pass@{k}" for k in shown_ks)]]
    for name, row in rows.items():
        counts, passes = row.get("counts") or {}, row.get("pass_at_k") or {}
        cells = [name, str((row.get("tasks") or {}).get("planned", "-")), *(str(counts.get(c, "-")) for c in COUNTS)]
        table.append([*cells, _mean(row), *(_number((passes.get(str(k)) or {}).get("value")) for k in shown_ks)])
    return table


def _number(value: Any) -> str:
    return f"{value:.3f}" if isinstance(value, int | float) else "-"


def _mean(row: dict[str, Any]) -> str:
    """Return the mean with its 95 % interval over tasks."""
    text, interval = _number(row.get("mean_reward")), row.get("ci95_across_tasks")
    return f"{text} [{interval['low']:.3f}, {interval['high']:.3f}]" if interval else text
