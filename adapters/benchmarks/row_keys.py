"""Keys of a row that are perhaps misspelt. Rows may have any keys of their own; one that nearly is one of ours is a mistake."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from typing import Any, Final

from adapters.benchmarks import tested_tasks, tool_tasks

OF_EVERY_ROW: Final = frozenset({"task_id", "id", "install", "image", "follow_ups", "awaits_input_s", "continuation"})
KNOWN: Final = OF_EVERY_ROW | tested_tasks.KEYS | tool_tasks.KEYS
COMMON_WORDS: Final = frozenset({"id", "image", "tests", "cases", "services", "artifacts", "partial"})
"""What columns of many files are nearly called (`test`, `images`): looked for only where the row is one with tests."""

NEAR: Final = 0.85


def check_keys(row: Mapping[str, Any], own: frozenset[str]) -> None:
    """Raise `ValueError` for a key that nearly is one of ours which the row lacks; `own` are those that hold question and answer."""
    looked_for = (KNOWN if tested_tasks.is_tested(row) else KNOWN - COMMON_WORDS) - row.keys() - own
    for key in row.keys() - KNOWN - own:
        if near := difflib.get_close_matches(key, looked_for, n=1, cutoff=NEAR):
            msg = f"unknown key {key!r}; did you mean {near[0]!r}?"
            raise ValueError(msg)
