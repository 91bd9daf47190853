"""Grades by what calls left in a task's environment, and the tools that leave it."""

from __future__ import annotations

from typing import Any

import pytest

from adapters.benchmarks.catalog import find_grader
from schemas.environment import BuiltIn
from schemas.tasks import Evidence
from tools.task_tools import VALUE_MAX_BYTES, offered, run_built_in

EVIDENCE = Evidence(answer=None, stop_reason="stop", turns=1)
LOOKUP = BuiltIn(tool="lookup", data={"table": {"a": "one", "b": {"c": 2}}, "shows_keys": True})


@pytest.mark.parametrize(
    ("expected", "recorded", "reward", "reason"),
    [
        ({"note": ["a", "b"]}, {"note": ["a", "b"]}, 1.0, None),
        ({"note": ["a"]}, {"note": ["a", "a"]}, 0.0, "note: expected \"['a']\", was left \"['a', 'a']\""),
        ({"note": ["a"]}, {}, 0.0, "note: expected \"['a']\", was left '[]'"),
        ({"note": ["a", "b"]}, {"note": ["b", "a"]}, 0.0, None),
        ({}, {"note": ["a"]}, 0.0, None),
        ({"note": []}, {}, 1.0, None),
    ],
)
def test_the_grade_is_full_for_exactly_what_was_expected(
    expected: dict[str, Any], recorded: dict[str, Any], reward: float, reason: str | None
) -> None:
    """A call too many is as wrong as one that is missing."""
    grade = find_grader("tool_state")({"expected": expected, "recorded": recorded}, EVIDENCE)
    assert grade.reward == reward
    if reason:
        assert grade.failure_reason == reason


def test_a_lookup_tells_an_entry_and_leaves_nothing() -> None:
    assert run_built_in(LOOKUP, {"key": "a"}).text == "one"
    assert run_built_in(LOOKUP, {"key": "b"}).text == '{"c": 2}'
    missing = run_built_in(LOOKUP, {"key": "z"})
    assert (missing.is_error, missing.record) == (True, None)
    assert missing.text == "There is no entry 'z'. There are: a, b."


@pytest.mark.parametrize(
    "arguments", [{}, {"text": 1}, {"text": "a", "more": "b"}, {"text": "x" * (VALUE_MAX_BYTES + 1)}]
)
def test_a_call_that_is_none_leaves_nothing(arguments: dict[str, Any]) -> None:
    ran = run_built_in(BuiltIn(tool="note"), arguments)
    assert (ran.is_error, ran.record) == (True, None)


def test_a_tool_that_there_is_not_is_not_offered() -> None:
    with pytest.raises(ValueError, match="there are lookup, note"):
        offered("x", BuiltIn(tool="x"))
