"""Why rollouts of a run that is over have no reward, or ended before their agent did, as the projection tells it."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from gym_bus.cli import questions, remarks
from gym_bus.cli.remarks import Remarks
from gym_bus.client import ProjectorSilent, QueryFailed, query

if TYPE_CHECKING:
    from gym_bus.cli.course import Course
    from gym_bus.client import Answer
    from gym_bus.nats_bus import NatsBus

FAILURES_SHOWN: Final = 3
LINE_MAX: Final = 300


@dataclass(frozen=True, slots=True)
class Reasons:
    """What rollouts have no reward for, most frequent first; how many a budget of their own ended; whether calls have token ids.

    Of those that are missing and failed of nothing, some were never begun, and some were under way when the run ended.
    """

    failures: list[dict[str, Any]] = field(default_factory=list)
    by_budget: dict[str, int] = field(default_factory=dict)
    has_token_ids: bool = False
    never_begun: int = 0
    cut_short: int = 0
    remarks: Remarks = field(default_factory=Remarks)

    def facts(self) -> dict[str, Any]:
        """Return them for a program."""
        return {"failures": self.failures, "ended_by_budget": self.by_budget, **self.remarks.facts()}

    def lines(self) -> list[str]:
        """Return them for a person, one line each."""
        told = [_line(failure) for failure in self.failures]
        told += [f"{self.never_begun:,} missing: never begun"] if self.never_begun else []
        told += [f"{self.cut_short:,} missing: under way when the run ended"] if self.cut_short else []
        told += [f"{count:,} ended by their budget ({name})" for name, count in self.by_budget.items()]
        return told + self.remarks.lines()


def _line(failure: dict[str, Any]) -> str:
    text = f"{failure['rollouts']:,} {failure['counted_as']}: {failure['failure_kind']}: {failure['message'] or 'no message'}"
    text = "".join(c if c.isprintable() else " " for c in text)
    return text if len(text) <= LINE_MAX else f"{text[: LINE_MAX - 1]}…"


async def fetch_reasons(bus: NatsBus, course: Course) -> Reasons:
    """Ask a projector that has read the run's end; nothing is told if it does not answer."""
    ends = {str(course.shard): course.finished_sequence}
    with suppress(ProjectorSilent, QueryFailed):
        return reasons_of([await query(bus, sql, values, after_seq=ends) for sql, values in wanted(course.run_id)])
    return Reasons()


def wanted(run_id: str) -> tuple[tuple[str, list[Any]], ...]:
    """Return the questions, with their values, whose answers `reasons_of` reads."""
    return (
        (questions.FAILURES, [run_id, FAILURES_SHOWN]),
        (questions.ENDED_BY_BUDGET, [run_id]),
        (questions.CALLS_WITH_IDS, [run_id]),
        (questions.MISSING, [run_id]),
        *((sql, [run_id, remarks.SHOWN]) for sql in remarks.WANTED),
    )


def reasons_of(answers: Sequence[Answer]) -> Reasons:
    """Return what the answers to `wanted` say."""
    failures, budgets, ids, missing, *remarked = answers
    by_budget = {str(name): int(count) for name, count in budgets.rows}
    never_begun, cut_short = map(int, missing.rows[0])
    told = Remarks(*(answer.dicts() for answer in remarked))
    return Reasons(failures.dicts(), by_budget, bool(ids.rows[0][0]), never_begun, cut_short, told)
