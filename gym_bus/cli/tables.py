"""Plain tables for people."""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from gym_bus.client import Answer

CELL_MAX: Final = 80


def cell(value: Any) -> str:
    """Return a value in one short line."""
    if value is None:
        return ""
    text = f"{value:.4g}" if isinstance(value, float) else value if isinstance(value, str) else json.dumps(value)
    text = "".join(c if c.isprintable() else " " for c in text)
    return text if len(text) <= CELL_MAX else f"{text[: CELL_MAX - 1]}…"


def as_words(count: int, noun: str) -> str:
    """Return how many of something there are: `1 rollout`, `2 rollouts`."""
    return f"{count:,} {noun}{'' if count == 1 else 'es' if noun.endswith('x') else 's'}"


def print_table(columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
    """Print rows under their columns, as wide as they are."""
    lines = [list(columns), *([cell(value) for value in row] for row in rows)]
    widths = [max(len(line[i]) for line in lines) for i in range(len(columns))]
    for line in lines:
        print("  ".join(text.ljust(width) for text, width in zip(line, widths, strict=True)).rstrip())


def print_answer(answer: Answer, *, as_json: bool, as_csv: bool) -> None:
    """Print an answer as a table, as JSON lines, or as CSV."""
    if as_json:
        for row in answer.dicts():
            print(json.dumps(row))
    elif as_csv:
        writer = csv.writer(sys.stdout, lineterminator="\n")
        writer.writerow(answer.columns)
        writer.writerows(answer.rows)
    else:
        print_table(answer.columns, answer.rows)
        print(f"({as_words(len(answer.rows), 'row')})")
    if answer.truncated:
        how = "--max-rows, or a narrower question; an answer holds 900 KB at most"
        print(f"only the first {as_words(len(answer.rows), 'row')} shown: {how}", file=sys.stderr)
