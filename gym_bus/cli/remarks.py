"""What may be wrong with a run's tasks although their rollouts were graded: solutions that failed, and artifacts that are not there."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

from gym_bus.cli import questions
from gym_bus.cli.tables import as_words

SHOWN: Final = 3
LINE_MAX: Final = 300
WANTED: Final = (questions.FAILED_SOLUTIONS, questions.MISSING_ARTIFACTS)
"""The questions, each of a run and of how many rows."""


@dataclass(frozen=True, slots=True)
class Remarks:
    """Rows of `ended`, `last_line` and `rollouts`, and rows of `path` and `rollouts`, most frequent first."""

    solutions: list[dict[str, Any]] = field(default_factory=list)
    artifacts: list[dict[str, Any]] = field(default_factory=list)

    def facts(self) -> dict[str, Any]:
        """Return them for a program."""
        return {"failed_solutions": self.solutions, "missing_artifacts": self.artifacts}

    def lines(self) -> list[str]:
        """Return them for a person, one line each."""
        told = [_failed(row) for row in self.solutions]
        told += [f"{as_words(row['rollouts'], 'rollout')} without the artifact {row['path']}" for row in self.artifacts]
        return [_short(line) for line in told]


def _failed(row: dict[str, Any]) -> str:
    how, last_line = row["ended"].replace(":", " "), row["last_line"] or "it printed nothing"
    return f"{as_words(row['rollouts'], 'solution')} failed ({how}): {last_line}"


def _short(line: str) -> str:
    text = "".join(c if c.isprintable() else " " for c in line)
    return text if len(text) <= LINE_MAX else f"{text[: LINE_MAX - 1]}…"
