"""Every question that the command line asks the projection, in one place, and how it is asked when nobody answers.

If the projector does not run, the DuckDB file is opened read-only and the answer says how old it is: no answer is
never shown as nothing.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from gym_bus.errors import Permanent, Retryable

if TYPE_CHECKING:
    from gym_bus.client import Answer
    from gym_bus.settings import Settings

_WAITING: Final = "(SELECT count(*) FROM waiting_sessions w WHERE w.run_id = runs.run_id) AS waiting_for_input"

RUNS: Final = f"""
SELECT run_id, state, planned, scored, failed, masked, missing, open, {_WAITING}, mean_reward, agent, model, paused_because,
    failure_kind, failure_message, requested_at, started, finished, output_dir
FROM runs ORDER BY requested_at
"""  # noqa: S608  one literal in another

RUN: Final = f"""
SELECT run_id, state, planned, scored, failed, masked, missing, open, {_WAITING}, mean_reward, agent, model, paused_because,
    failure_kind, failure_message, requested_at, started, finished, output_dir, config_digest
FROM runs WHERE run_id = ?
"""  # noqa: S608  one literal in another

PROGRESS: Final = f"SELECT scored, failed, masked, open, {_WAITING}, mean_reward FROM runs WHERE run_id = ?"  # noqa: S608  the same

PROBLEMS: Final = """
SELECT model_failures, model_retries, lost_model_calls, lost_tool_calls, lost_sandboxes, parked, takeovers,
    (SELECT count(*) FROM rollout_finished f JOIN counted_as c ON c.state = f.state
        WHERE f.run_id = run_diagnostics.run_id AND c.counted = 'failed') AS attempts_failed,
    last_failure_kind, last_failure_message, unanswered, waiting_since
FROM run_diagnostics WHERE run_id = ?
"""

STATES: Final = "SELECT state, count(*) AS rollouts FROM rollouts WHERE run_id = ? GROUP BY state ORDER BY state"

HELD: Final = """
SELECT unnest(holders) AS worker, count(*) AS rollouts FROM resume_state WHERE run_id = ? AND NOT is_done
GROUP BY worker ORDER BY worker
"""

OPEN_ROLLOUTS: Final = """
SELECT s.rollout_id, s.state, CASE WHEN w.run_id IS NULL THEN s.stage ELSE 'input' END AS stage, s.attempt, s.failures, s.retry_at,
    s.open_requests, s.holders
FROM resume_state s LEFT JOIN waiting_sessions w ON w.run_id = s.run_id AND w.rollout_id = s.rollout_id AND w.attempt = s.attempt
WHERE s.run_id = ? AND s.state = 'running' ORDER BY s.task_index, s.repeat LIMIT 20
"""

ROLLOUTS: Final = """
SELECT r.rollout_id, r.state, c.counted, r.reward, r.attempts, coalesce(r.task_index, -1) AS task_index, r.repeat
FROM rollouts r JOIN counted_as c ON c.state = r.state
WHERE r.run_id = ? AND (? IS NULL OR r.rollout_id = ?) AND (coalesce(r.task_index, -1), r.repeat, r.rollout_id) > (?, ?, ?)
ORDER BY coalesce(r.task_index, -1), r.repeat, r.rollout_id LIMIT ?
"""

SHARDS: Final = """
SELECT r.state, r.shards, q.config FROM runs r JOIN run_requested q ON q.run_id = r.run_id WHERE r.run_id = ?
"""

FAILURES: Final = """
SELECT c.counted AS counted_as, r.failure_kind, split_part(r.failure_message, chr(10), 1) AS message, count(*) AS rollouts
FROM rollouts r JOIN counted_as c ON c.state = r.state
WHERE r.run_id = ? AND c.counted NOT IN ('scored', 'masked') AND r.failure_kind IS NOT NULL
GROUP BY ALL ORDER BY rollouts DESC, counted_as, r.failure_kind, message LIMIT ?
"""

MISSING: Final = """
SELECT count(*) FILTER (attempts = 0) AS never_begun, count(*) FILTER (attempts > 0) AS cut_short FROM rollouts
WHERE run_id = ? AND state = 'missing' AND failure_kind IS NULL
"""

FAILED_SOLUTIONS: Final = """
SELECT r.stop_reason AS ended, string_split(trim(coalesce(r.answer, ''), chr(10)), chr(10))[-1] AS last_line, count(*) AS rollouts
FROM rollouts r JOIN runs u ON u.run_id = r.run_id
WHERE r.run_id = ? AND u.agent = 'oracle_agent' AND r.stop_reason IS NOT NULL AND r.stop_reason != 'exit:0'
GROUP BY ALL ORDER BY rollouts DESC, ended, last_line LIMIT ?
"""

MISSING_ARTIFACTS: Final = """
SELECT path, count(DISTINCT rollout_id) AS rollouts
FROM (
    SELECT rollout_id, unnest(from_json(data->'$.missing', '["varchar"]')) AS path FROM events
    WHERE run_id = ? AND type = 'grading_done.v1'
)
GROUP BY path ORDER BY rollouts DESC, path LIMIT ?
"""

ENDED_BY_BUDGET: Final = """
SELECT substr(stop_reason, 8) AS budget, count(*) AS rollouts FROM rollouts
WHERE run_id = ? AND starts_with(stop_reason, 'budget:') GROUP BY budget ORDER BY budget
"""

CALLS_WITH_IDS: Final = "SELECT count(*) FROM model_calls WHERE run_id = ? AND has_tokens"

PARKED: Final = """
SELECT p.run_id, p.rollout_id, p.actor, p.key, p.shard, p.seq, p.at, p.request_id, p.request_type, p.failure_message,
    (SELECT count(*) FROM events d WHERE d.actor = 'cli' AND ends_with(d.kind, '_request_redriven')
        AND d.run_id = p.run_id AND d.data->>'$.request_id' = p.request_id) AS redriven
FROM parked p ORDER BY p.shard, p.seq
"""


@dataclass(frozen=True, slots=True)
class Told:
    """An answer, and how fresh it is: `age_s` is None if the projector gave it, else its file's age in seconds."""

    answer: Answer
    age_s: float | None = None

    @property
    def note(self) -> str | None:
        """Return what has to be said beside the answer."""
        if self.age_s is not None:
            return f"the projector does not run; this is from its file, {self.age_s:,.0f} s old"
        if self.answer.lag:
            return f"{self.answer.lag:,} events are not in this yet"
        return None


async def ask(settings: Settings, *questions: tuple[str, Sequence[Any]], max_rows: int = 10_000) -> list[Told]:
    """Answer by the projector if a bus runs, else from its file. Raises `Retryable` if there is neither."""
    from gym_bus.client import ProjectorSilent, connect_cli, find_address, log_ends, query  # noqa: PLC0415  slow to import

    if find_address(settings) is not None:
        try:
            async with connect_cli(settings) as bus:
                ends = await log_ends(bus)  # what was in the log before the question is in the answer
                return [
                    Told(await query(bus, sql, parameters, max_rows=max_rows, after_seq=ends))
                    for sql, parameters in questions
                ]
        except ProjectorSilent as silent:
            try:
                return _from_file(settings, questions, max_rows)
            except Retryable:
                raise silent from None
    return _from_file(settings, questions, max_rows)


def _from_file(settings: Settings, questions: Sequence[tuple[str, Sequence[Any]]], max_rows: int) -> list[Told]:
    """Answer from the DuckDB file, opened read-only."""
    import duckdb  # noqa: PLC0415  slow to import

    from gym_bus.client import Answer  # noqa: PLC0415  the same

    path = settings.data_dir / "projections.duckdb"
    if not path.exists():
        msg = (
            f"there is no log to look at under {settings.data_dir}: `gym-bus eval run` makes one, "
            f"--data-dir names another"
        )
        raise Retryable(msg)
    age_s = max(0.0, time.time() - newest_change(path))
    try:
        with duckdb.connect(str(path), read_only=True, config={"enable_external_access": False}) as connection:
            told = []
            for sql, parameters in questions:
                cursor = connection.execute(sql, list(parameters))
                described = cursor.description or []
                rows = [[_plain(value) for value in row] for row in cursor.fetchmany(max_rows + 1)]
                answer = Answer(
                    [str(column[0]) for column in described],
                    [str(column[1]) for column in described],
                    rows[:max_rows],
                    truncated=len(rows) > max_rows,
                )
                told.append(Told(answer, age_s))
            return told
    except duckdb.IOException as error:
        msg = f"{path} is in use, and the projector does not answer: see `gym-bus bus status` ({error})"
        raise Retryable(msg) from error
    except duckdb.Error as error:
        raise Permanent(str(error)) from error


def newest_change(path: Path) -> float:
    """Return when the file or its write-ahead log was last written, as a POSIX time."""
    return max(p.stat().st_mtime for p in (path, path.with_name(path.name + ".wal")) if p.exists())


def _plain(value: Any) -> Any:
    """Return a value as JSON knows it."""
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    return value.isoformat() if hasattr(value, "isoformat") else str(value)
