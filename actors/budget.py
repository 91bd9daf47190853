"""Budgets: what a rollout's attempt and a whole run have used up, counted from recorded answers, and which limit that reaches.

What is under way when a limit is reached finishes; the next call is refused. So a budget of tokens or money can be passed by what was
under way; calls are counted when they begin, so that there are never more of those, but for what other processes begin at that moment.
"""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Final

from gym_bus.clock import Clock
from gym_bus.errors import Permanent
from gym_bus.event_log import EventLog
from gym_bus.subjects import AggregateId, event_subject
from schemas.config import Budget, ModelConfig, Prices, ServedModel
from schemas.envelope import Envelope
from schemas.events import BudgetExhausted, ModelCallCompleted, RunStarted, SessionRequested
from schemas.ids import RUN_LEVEL
from schemas.values import Usage

LOOKED_AT_FOR_S: Final = 0.2
MILLION: Final = 1_000_000
RUN_PATTERN: Final = "gym.evt.{shard}.{run}.*.model.*.model_call_completed"


@dataclass(frozen=True, slots=True)
class Spent:
    """What recorded answers have cost."""

    model_calls: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cost_usd: float = 0.0

    def plus(self, done: ModelCallCompleted) -> Spent:
        """Return this and one more answer."""
        return replace(
            self,
            model_calls=self.model_calls + 1,
            input_tokens=self.input_tokens + done.usage.input_tokens,
            output_tokens=self.output_tokens + done.usage.output_tokens,
            cost_usd=self.cost_usd + (done.cost_usd or 0.0),
        )


def cost_of(model: ModelConfig, usage: Usage | None, told_usd: float | None) -> float | None:
    """Return the US dollars of one call: the backend's word, else by the configured prices, else None; `usage` None is unknown."""
    if told_usd is not None:
        return told_usd
    prices: Prices | None = model.prices if isinstance(model, ServedModel) else None
    if prices is None or usage is None:
        return None
    cached = prices.input if prices.cached_input is None else prices.cached_input
    fresh = max(0, usage.input_tokens - usage.cached_tokens)
    dollars = fresh * prices.input + usage.cached_tokens * cached + usage.output_tokens * prices.output
    return round(dollars / MILLION, 9)


def reached(budget: Budget, spent: Spent, wall_s: float, under_way: int = 0) -> tuple[str, float, float] | None:
    """Return the first limit that is used up: its name, what was allowed, what is used; calls `under_way` count as made."""
    used: dict[str, float] = {
        "model_calls": spent.model_calls + under_way,
        "input_tokens": spent.input_tokens,
        "output_tokens": spent.output_tokens,
        "total_tokens": spent.input_tokens + spent.output_tokens,
        "cost_usd": round(spent.cost_usd, 9),
        "wall_s": round(wall_s, 3),
    }
    for name, amount in used.items():
        allowed = getattr(budget, name)
        if allowed is not None and amount >= allowed:
            return name, float(allowed), float(amount)
    return None


@dataclass
class _Run:
    shard: int
    spent: Spent = Spent()
    started_at: datetime | None = None
    read_to: int = 0
    unread: dict[int, ModelCallCompleted] = field(default_factory=dict)
    under_way: int = 0
    looked_at: float | None = None
    turn_to_look: asyncio.Lock = field(default_factory=asyncio.Lock)


class RunSpending:
    """What whole runs have used up: by this process up to now, by others up to a fifth of a second ago, as the log has it."""

    def __init__(self, log: EventLog, clock: Clock) -> None:
        """Read `log`."""
        self._log = log
        self._clock = clock
        self._runs: dict[str, _Run] = {}

    async def begin(
        self, where: AggregateId, asked: SessionRequested, asked_at: datetime, spent: Spent, under_way: int = 0
    ) -> BudgetExhausted | None:
        """Count a call in, unless something keeps a session from it: its own budget, or its run's. Return what does.

        `spent` and the calls `under_way` are the session's own. The log is looked at only if the run has a budget. What is
        counted in is counted out by `end`.
        """
        budget = asked.budget
        now = self._clock.now()
        age_s = (now - asked_at).total_seconds()
        if budget.rollout != Budget() and (found := reached(budget.rollout, spent, age_s, under_way)):
            return _exhausted("rollout", found)
        if budget.run != Budget():
            run = await self._look(where)
            wall_s = (now - run.started_at).total_seconds() if run.started_at else 0.0
            so_far = run.spent
            for done in run.unread.values():
                so_far = so_far.plus(done)
            if found := reached(budget.run, so_far, wall_s, run.under_way):
                return _exhausted("run", found)
            run.under_way += 1
        return None

    def end(self, where: AggregateId, asked: SessionRequested, done: Envelope | None) -> None:
        """Count a call out that was counted in, with its recorded answer if it got one."""
        run = self._runs.get(where.run_id)
        if run is None or asked.budget.run == Budget():
            return
        run.under_way -= 1
        if done and isinstance(done.data, ModelCallCompleted) and done.sequence > run.read_to:
            run.unread[done.sequence] = done.data

    async def _look(self, where: AggregateId) -> _Run:
        run = self._runs.setdefault(where.run_id, _Run(where.shard))
        async with run.turn_to_look:
            now = self._clock.monotonic()
            if run.looked_at is not None and now - run.looked_at < LOOKED_AT_FOR_S:
                return run
            if run.started_at is None:
                level = AggregateId(where.shard, where.run_id, RUN_LEVEL, "collector", "_")
                started = await self._log.last(event_subject(level, RunStarted.subject_kind()))
                run.started_at = started.recorded_at if started else None
            pattern = RUN_PATTERN.format(shard=run.shard, run=where.run_id)
            async for stored in self._log.bus.read(pattern, after=run.read_to):
                run.read_to = stored.sequence
                run.unread.pop(stored.sequence, None)
                with contextlib.suppress(Permanent):  # what cannot be read is in quarantine, and counts for nothing
                    data = self._log.decode(stored).data
                    run.spent = run.spent.plus(data) if isinstance(data, ModelCallCompleted) else run.spent
            run.looked_at = now
        return run


def _exhausted(scope: str, found: tuple[str, float, float]) -> BudgetExhausted:
    limit, allowed, used = found
    return BudgetExhausted.model_validate({"scope": scope, "limit": limit, "allowed": allowed, "used": used})


def sentence(exhausted: BudgetExhausted) -> str:
    """Return what a client is told."""
    whose = "this rollout" if exhausted.scope == "rollout" else "the whole run"
    return (
        f"the budget of {whose} is used up: {exhausted.used:g} of {exhausted.allowed:g} {exhausted.limit}; "
        "no further model call is made"
    )
