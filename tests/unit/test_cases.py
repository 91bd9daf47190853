"""What a set of results is worth, and what a row may say of its cases."""

from __future__ import annotations

import re
from typing import Any

import pytest

from adapters.benchmarks import tested_tasks
from adapters.benchmarks.cases import ALL_KEPT_MAX_BYTES, Case, worth
from schemas.cases import CaseResult

CASE = {"id": "a", "command": "sh a.sh", "output": "5"}


def row(**more: Any) -> dict[str, Any]:
    return {"artifacts": ["a.sh"], "cases": [CASE], **more}


def expected(**more: Any) -> dict[str, Any]:
    return Case.model_validate({"id": "a", "command": "c", **more}).expected()


@pytest.mark.parametrize(
    ("wanted", "output", "is_right"),
    [
        ({"output": "5"}, "5\n", True),
        ({"output": "5\n"}, "5", True),
        ({"output": "5"}, " 5", False),
        ({"output": ""}, "", True),
        ({"output_json": {"a": [1, 2.0, None]}}, '{"a": [1.0, 2, null]}\n', True),
        ({"output_json": True}, "1", False),
        ({"output_json": [1]}, "[true]", False),
        ({"output_json": None}, "null", True),
        ({"output_json": None}, "", False),
        ({"output_json": 1}, "1 2", False),
        ({"output_json": []}, "[" * 100_000, False),
    ],
)
def test_outputs_are_compared_as_text_or_as_json(wanted: dict[str, Any], output: str, is_right: bool) -> None:
    grade = worth([expected(**wanted)], [CaseResult(id="a", exit_code=0, output=output)], partial=False)
    assert grade.reward == float(is_right)


def test_a_case_without_a_result_has_failed() -> None:
    """And a result that nobody asked for is worth nothing."""
    grade = worth([expected(output="5")], [CaseResult(id="b", exit_code=0, output="5")], partial=True)
    assert (grade.reward, dict(grade.components)) == (0.0, {"a": 0.0})
    assert grade.failure_reason == "1 of 1 cases failed: a: no result"


def test_the_reason_says_what_came_out_and_not_what_was_expected() -> None:
    grade = worth([expected(output="secret")], [CaseResult(id="a", exit_code=0, output="mine")], partial=False)
    assert "mine" in (grade.failure_reason or "")
    assert "secret" not in (grade.failure_reason or "")


@pytest.mark.parametrize(
    ("bad", "said"),
    [
        ({"cases": [CASE, CASE]}, "two cases have the id 'a'"),
        ({"cases": [{"id": "a", "command": "c"}]}, "neither `output` nor `output_json`"),
        ({"cases": [{**CASE, "output_json": 5}]}, "both `output` and `output_json`"),
        ({"cases": [{**CASE, "output": "x" * 200_000}]}, "expects an output of more than"),
        ({"cases": [{**CASE, "stdn": "x"}]}, "stdn"),
        ({"cases": [{**CASE, "exit_code": 143}]}, "stands for an end by a signal"),
        ({"cases": [{**CASE, "exit_code": 256}]}, "exit_code"),
        ({"cases": [{**CASE, "exit_code": -1}]}, "exit_code"),
        ({"cases": []}, "want a `test_command`, or `cases`"),
        ({"cases": [{**CASE, "id": str(n), "output": "x" * 100_000} for n in range(11)]}, "bytes together"),
    ],
)
def test_a_row_that_says_too_little_or_too_much_is_refused(bad: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=re.escape(said)):
        tested_tasks.tested(row(**bad))


def test_what_is_expected_is_apart_from_what_is_run() -> None:
    data = tested_tasks.tested(row()).verifier_data()
    assert data["cases"] == [{"id": "a", "command": "sh a.sh", "stdin": "", "timeout_s": 10.0, "kept_bytes": 1024}]
    assert data["expected"] == [{"id": "a", "exit_code": 0, "output": "5"}]
    assert ALL_KEPT_MAX_BYTES < 8 * 1024 * 1024
