"""The metrics of a run, from how its rollouts ended. Every number stands beside its denominator.

planned = scored + failed + masked + missing. A mean is over scored rollouts only: an infrastructure failure is never
a reward. pass@k is the unbiased estimate of Chen et al. 2021 (https://arxiv.org/abs/2107.03374): for a task with n
scored rollouts of which w did not pass, 1 - C(w, k) / C(n, k); a task with fewer than k scored rollouts is left out
of that k, and counted as left out.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist, fmean, stdev
from typing import Any, Final

from projections import queries
from projections.store import Connection

PASS_REWARD: Final = 1.0
ALL_K_UP_TO: Final = 16
LISTED_MAX: Final = 1_000


@dataclass(frozen=True, slots=True)
class Row:
    """How one rollout ended: what it counts as, and its reward if it was scored."""

    task_id: str
    repeat: int
    counted: str
    reward: float | None


def metrics_of(connection: Connection, run_id: str) -> dict[str, Any]:
    """Return the metrics of a run as JSON's own types; the same rows give the same numbers."""
    rows = [Row(*row) for row in connection.execute(queries.text("metric_rows"), [run_id]).fetchall()]
    run = connection.execute(queries.text("metric_run"), [run_id]).fetchone()
    planned, missing, model, state, taskset = run or (0, 0, None, None, None)
    datasets: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        datasets[dataset_of(row.task_id) or taskset or "_"].append(row)
    counts = {name: sum(r.counted == name for r in rows) for name in ("scored", "failed", "masked")}
    return {
        "run_id": run_id,
        "run_state": state,
        "model": model,
        "counts": {"planned": planned, **counts, "missing": missing},
        **summarize(rows),
        "by_dataset": {
            name: {"counts": counts_of(datasets[name]), **summarize(datasets[name])} for name in sorted(datasets)
        },
    }


def dataset_of(task_id: str) -> str:
    """Return the group of a task: its id without the last part, nor a number before it (a generator's seed); perhaps nothing."""
    parts = task_id.split("/")[:-1]
    if len(parts) > 1 and parts[-1].lstrip("-").isdigit():
        parts = parts[:-1]
    return "/".join(parts)


def counts_of(rows: Sequence[Row]) -> dict[str, int]:
    """Return planned = scored + failed + masked + missing."""
    counts = {name: sum(r.counted == name for r in rows) for name in ("scored", "failed", "masked", "missing")}
    return {"planned": len(rows), **counts}


def summarize(rows: Sequence[Row]) -> dict[str, Any]:
    """Return means, intervals and pass@k of some rollouts."""
    by_task: dict[str, list[tuple[int, float]]] = {row.task_id: [] for row in rows}
    by_repeat: dict[int, list[float]] = defaultdict(list)
    for row in rows:
        if row.counted == "scored" and row.reward is not None:
            by_task[row.task_id].append((row.repeat, row.reward))
            by_repeat[row.repeat].append(row.reward)
    tasks = {task: [reward for _, reward in sorted(scores)] for task, scores in by_task.items() if scores}
    without = sorted(task for task, scores in by_task.items() if not scores)
    rewards = [reward for scores in tasks.values() for reward in scores]
    return {
        "mean_reward": fmean(rewards) if rewards else None,
        "mean_reward_over": len(rewards),
        "ci95_across_tasks": interval([fmean(scores) for scores in tasks.values()]),
        "ci95_across_repeats": interval([fmean(scores) for scores in by_repeat.values()]),
        "tasks": {
            "planned": len(by_task),
            "with_a_score": len(tasks),
            "without_a_score": len(without),
            "without_a_score_ids": without[:LISTED_MAX],
        },
        "pass_threshold": PASS_REWARD,
        "is_binary": all(reward in {0.0, 1.0} for reward in rewards),
        "pass_at_k": pass_at_k(list(tasks.values()), len(by_task)),
        "pass_at_1_avg_of_n": pass_at_1(list(tasks.values())),
    }


def pass_at_1(tasks: Sequence[Sequence[float]]) -> dict[str, Any]:
    """Return the mean over tasks of the share of scored rollouts that passed, and how many rollouts a task had."""
    if not tasks:
        return {"value": None, "tasks": 0, "n_min": 0, "n_max": 0}
    share = fmean(fmean(reward >= PASS_REWARD for reward in scores) for scores in tasks)
    return {"value": share, "tasks": len(tasks), "n_min": min(map(len, tasks)), "n_max": max(map(len, tasks))}


def pass_at_k(tasks: Sequence[Sequence[float]], planned: int) -> dict[str, dict[str, Any]]:
    """Return for every k the estimate, over how many tasks, and how many were left out with fewer than k scores."""
    most = max(map(len, tasks), default=0)
    ks = [k for k in range(1, most + 1) if k <= ALL_K_UP_TO or k & (k - 1) == 0 or k == most]
    found: dict[str, dict[str, Any]] = {}
    for k in ks:
        values = [
            unbiased(len(scores), sum(reward < PASS_REWARD for reward in scores), k)
            for scores in tasks
            if len(scores) >= k
        ]
        found[str(k)] = {"value": fmean(values), "tasks": len(values), "excluded_tasks": planned - len(values)}
    return found


def unbiased(n: int, wrong: int, k: int) -> float:
    """Return the chance that k of n rollouts, drawn without replacement, hold one that passed; `wrong` did not."""
    return 1.0 - math.comb(wrong, k) / math.comb(n, k)


def interval(observations: Sequence[float]) -> dict[str, Any] | None:
    """Return the 95 % t interval of the mean of independent observations; None with fewer than two.

    Of observations that are all between 0 and 1, so is their mean: the interval is cut to that.
    """
    n = len(observations)
    if n < 2:  # noqa: PLR2004  one observation says nothing about spread
        return None
    mean, error = fmean(observations), stdev(observations) / math.sqrt(n)
    half = t_quantile(n - 1) * error
    low, high = mean - half, mean + half
    if min(observations) >= 0 and max(observations) <= 1:
        low, high = max(0.0, low), min(1.0, high)
    return {"mean": mean, "low": low, "high": high, "standard_error": error, "observations": n}


def t_quantile(freedom: int) -> float:
    """Return the 0.975 quantile of Student's t, within 1e-4 (G. W. Hill 1970, Algorithm 396)."""
    p = 0.05
    if freedom == 1:
        return 1 / math.tan(p * math.pi / 2)
    if freedom == 2:  # noqa: PLR2004  this one is closed too
        return math.sqrt(2 / (p * (2 - p)) - 2)
    n = float(freedom)
    a = 1 / (n - 0.5)
    b = 48 / a**2
    c = ((20700 * a / b - 98) * a - 16) * a + 96.36
    d = ((94.5 / (b + c) - 3) / b + 1) * math.sqrt(a * math.pi / 2) * n
    x = d * p
    y = x ** (2 / n)
    if y > 0.05 + a:
        x = NormalDist().inv_cdf(p / 2)
        y = x * x
        if n < 5:  # noqa: PLR2004  as published
            c += 0.3 * (n - 4.5) * (x + 0.6)
        c += (((0.05 * d * x - 5) * x - 7) * x - 2) * x + b
        y = (((((0.4 * y + 6.3) * y + 36) * y + 94.5) / c - y - 3) / b + 1) * x
        y = math.expm1(a * y * y)
    else:
        y = ((1 / (((n + 6) / (n * y) - 0.089 * d - 0.822) * (n + 2) * 3) + 0.5 / (n + 4)) * y - 1) * (n + 1) / (
            n + 2
        ) + 1 / y
    return math.sqrt(n * y)
