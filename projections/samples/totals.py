"""What the rows of many rollouts add up to; every number has its denominator beside it."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any, Final

from projections.samples.checking import check
from projections.samples.sample import Rebuilt

EARLIER_ATTEMPT: Final = "earlier_attempt"
COUNTED: Final = ("scored", "failed", "masked", "missing")


@dataclass
class Excluding:
    """Calls that are in no row: how many, their tokens, and of how many of them nobody knows the tokens."""

    calls: int = 0
    tokens: int = 0
    unknown: int = 0

    def add(self, calls: int, tokens: int, unknown: int) -> None:
        """Count more."""
        self.calls += calls
        self.tokens += tokens
        self.unknown += unknown


@dataclass
class Totals:
    """Sums over rollouts. rollouts = with_rows + without_rows + not_begun = scored + failed + masked + missing.

    `trained` tokens have a mask of 1, `context` tokens 0; `prompt` are those of the context that are first prompts. Every token that
    was generated in the attempts is either among `trained` or in `excluded`.
    """

    with_rows: int = 0
    without_rows: int = 0
    not_begun: int = 0
    counted: Counter[str] = field(default_factory=Counter)
    relations: Counter[str] = field(default_factory=Counter)
    gaps: Counter[str] = field(default_factory=Counter)
    trained: int = 0
    context: int = 0
    prompt: int = 0
    rejected: int = 0
    excluded: dict[str, Excluding] = field(default_factory=dict)
    violations: list[str] = field(default_factory=list)

    @property
    def rollouts(self) -> int:
        """Return how many rollouts were gone through."""
        return self.with_rows + self.without_rows + self.not_begun

    @property
    def rows(self) -> int:
        """Return how many rows there are."""
        return sum(self.relations.values())

    def rollout(self, counted_as: str, *, is_begun: bool, has_rows: bool) -> None:
        """Count a rollout."""
        self.counted[counted_as] += 1
        self.with_rows += has_rows
        self.without_rows += is_begun and not has_rows
        self.not_begun += not is_begun

    def attempt(self, rebuilt: Rebuilt, *, is_last: bool) -> None:
        """Count an attempt; of one that another followed, nothing is trained. What the checker finds is kept as violations."""
        about = rebuilt.recorded
        self.violations += [f"rollout {about.rollout_id} attempt {about.attempt}: {found}" for found in check(rebuilt)]
        if not is_last:
            calls = sum(span.is_trained for sample in rebuilt.samples for span in sample.spans)
            self._exclude(EARLIER_ATTEMPT, calls, rebuilt.trained, 0)
            for calls, tokens, unknown in rebuilt.excluded_by_reason.values():
                self._exclude(EARLIER_ATTEMPT, calls, tokens, unknown)
            return
        for sample in rebuilt.samples:
            trained = sum(sample.loss_mask)
            self.relations[sample.relation] += 1
            self.gaps.update(sample.gaps)
            self.trained += trained
            self.context += len(sample.token_ids) - trained
            self.prompt += sample.prompt_length
        self.rejected += len(rebuilt.rejected)
        for reason, (calls, tokens, unknown) in rebuilt.excluded_by_reason.items():
            self._exclude(reason, calls, tokens, unknown)

    def _exclude(self, reason: str, calls: int, tokens: int, unknown: int) -> None:
        self.excluded.setdefault(reason, Excluding()).add(calls, tokens, unknown)

    def summary(self) -> dict[str, Any]:
        """Return everything as JSON's own types."""
        reasons = sorted(self.excluded.items())
        return {
            "rollouts": {
                "planned": self.rollouts,
                "with_rows": self.with_rows,
                "without_rows": self.without_rows,
                "not_begun": self.not_begun,
                **{name: self.counted[name] for name in COUNTED},
            },
            "rows": {"all": self.rows, **dict(sorted(self.relations.items())), "rejected": self.rejected},
            "tokens": {"trained": self.trained, "context": self.context, "prompt": self.prompt},
            "excluded": {
                name: {"calls": one.calls, "tokens": one.tokens, "calls_of_unknown_length": one.unknown}
                for name, one in reasons
            },
            "gaps": dict(sorted(self.gaps.items())),
            "violations": self.violations,
        }
