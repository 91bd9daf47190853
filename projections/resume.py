"""Where a run stands: what is done, what is open, and at which stage.

Held in tests against the actors' own folded state.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Literal

from gym_bus.errors import Permanent
from projections import queries
from projections.store import Connection
from schemas.base import Frozen

RunStanding = Literal["open", "paused", "cancelled", "finished"]
Stage = Literal["session", "verdict", "retry"]


class Ended(Frozen):
    """How a rollout ended."""

    state: str
    reward: float | None = None


class Open(Frozen):
    """A rollout that has begun and is not over.

    `attempt` is the one going on, or at stage `retry` the one that is due at `retry_at`; `failures` counts the
    earlier attempts that used up one of the allowed ones. `open_requests` are the types of its unanswered requests,
    `holders` the workers that have them.
    """

    attempt: int
    stage: Stage
    failures: int = 0
    retry_at: datetime | None = None
    open_requests: tuple[str, ...] = ()
    holders: tuple[str, ...] = ()


class RunResume(Frozen):
    """A run's standing. What is in neither mapping has not begun.

    `cancelled`: it is being cancelled and not over yet. In a run that is finished nothing is open.
    """

    run_id: str
    state: RunStanding
    planned: int
    finished: Mapping[str, Ended]
    open: Mapping[str, Open]


def resume_state_of(connection: Connection, run_id: str) -> RunResume:
    """Return where `run_id` stands; raises `Permanent` for a run that the projection does not know."""
    run = connection.execute(queries.text("resume_run"), [run_id]).fetchone()
    if run is None:
        msg = f"run {run_id} is not known to the projection"
        raise Permanent(msg)
    finished: dict[str, Ended] = {}
    begun: dict[str, Open] = {}
    for row in connection.execute(queries.text("resume_rollouts"), [run_id]).fetchall():
        rollout_id, is_done, state, reward, attempt, stage, failures, retry_at, requests, holders = row
        if is_done:
            finished[rollout_id] = Ended(state=state, reward=reward)
        elif stage is not None:
            begun[rollout_id] = Open(
                attempt=attempt,
                stage=stage,
                failures=failures,
                retry_at=retry_at.replace(tzinfo=UTC) if retry_at else None,
                open_requests=tuple(requests),
                holders=tuple(holders),
            )
    return RunResume(run_id=run_id, state=run[0], planned=run[1], finished=finished, open=begun)
