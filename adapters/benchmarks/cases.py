"""Test cases of a row: what is run, what has to come out, and what a set of results is worth.

The program that is graded never sees what is expected: each case is a process of its own, and its output is compared by the verifier.
So nothing that it does to itself (its exit, its `__eq__`, its clocks, its test framework) makes a wrong output a right one; and a case
without a result is one that failed.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal

from pydantic import Field, field_validator, model_validator

from adapters.benchmarks.base import Grade
from providers.sandboxes.processes import FIRST_SIGNAL_CODE, LAST_SIGNAL_CODE
from schemas.base import Frozen
from schemas.cases import CASE_MAX_S, CASES_MAX, KEPT_LEAST_BYTES, KEPT_MAX_BYTES, CaseResult, CaseRun

SPACIOUS: Final = 2
"""How much more of an output is kept than is expected: JSON may be written in more ways than one."""
ALL_KEPT_MAX_BYTES: Final = 2 * 1024 * 1024
SHOWN: Final = 200
FAILED_SHOWN: Final = 5


class Case(Frozen):
    """A case as a row says it: `output` is compared as text without the white space at its end, `output_json` as JSON."""

    id: str = Field(min_length=1, max_length=200)
    command: str = Field(min_length=1)
    stdin: str = ""
    timeout_s: float = Field(default=10.0, gt=0, le=CASE_MAX_S)
    output: str | None = None
    output_json: Any = None
    exit_code: int = Field(default=0, ge=0, le=255)

    @model_validator(mode="after")
    def _expects_something(self) -> Case:
        if self.output is not None and "output_json" in self.model_fields_set:
            msg = f"case {self.id!r} has both `output` and `output_json`"
            raise ValueError(msg)
        if self.output is None and "output_json" not in self.model_fields_set:
            msg = f"case {self.id!r} says neither `output` nor `output_json`: whatever came out would do"
            raise ValueError(msg)
        if SPACIOUS * len(self._written().encode()) > KEPT_MAX_BYTES:
            msg = f"case {self.id!r} expects an output of more than {KEPT_MAX_BYTES // SPACIOUS:,} bytes"
            raise ValueError(msg)
        if FIRST_SIGNAL_CODE <= self.exit_code <= LAST_SIGNAL_CODE:
            msg = f"case {self.id!r} expects the exit code {self.exit_code}, which stands for an end by a signal, and is never right"
            raise ValueError(msg)
        return self

    def run(self) -> CaseRun:
        """Return what may be told to the machine."""
        kept = max(KEPT_LEAST_BYTES, SPACIOUS * len(self._written().encode()))
        return CaseRun(id=self.id, command=self.command, stdin=self.stdin, timeout_s=self.timeout_s, kept_bytes=kept)

    def _written(self) -> str:
        return self.output if self.output is not None else json.dumps(self.output_json)

    def expected(self) -> dict[str, Any]:
        """Return what only the verifier may see."""
        wanted = {"output": self.output} if self.output is not None else {"output_json": self.output_json}
        return {"id": self.id, "exit_code": self.exit_code, **wanted}


class Cases(Frozen):
    """The cases of a row, each with an id of its own. A part of them is worth a part of the reward only if `partial`."""

    cases: tuple[Case, ...] = Field(default=(), max_length=CASES_MAX)
    partial: bool = False

    @field_validator("cases")
    @classmethod
    def _are_told_apart(cls, cases: tuple[Case, ...]) -> tuple[Case, ...]:
        if sum(case.run().kept_bytes for case in cases) > ALL_KEPT_MAX_BYTES:
            msg = f"the cases expect outputs of more than {ALL_KEPT_MAX_BYTES // SPACIOUS:,} bytes together"
            raise ValueError(msg)
        ids = [case.id for case in cases]
        if twice := next((each for each in ids if ids.count(each) > 1), None):
            msg = f"two cases have the id {twice!r}"
            raise ValueError(msg)
        return cases


def worth(expected: Sequence[Mapping[str, Any]], results: Sequence[CaseResult], *, partial: bool) -> Grade:
    """Return what the results are worth: 1 if each expected case has one that is right, else 0, or the part that is right."""
    found = {result.id: result for result in results}
    problems = {str(each["id"]): _problem(each, found.get(each["id"])) for each in expected}
    wrong = [f"{name}: {problem}" for name, problem in problems.items() if problem]
    components = {name: float(problem is None) for name, problem in problems.items()}
    if not wrong:
        return Grade(1.0, components)
    reward = sum(components.values()) / len(components) if partial else 0.0
    more = f"; and {len(wrong) - FAILED_SHOWN} more" if len(wrong) > FAILED_SHOWN else ""
    reason = f"{len(wrong)} of {len(problems)} cases failed: {'; '.join(wrong[:FAILED_SHOWN])}{more}"
    return Grade(reward, components, reason)


def _problem(expected: Mapping[str, Any], result: CaseResult | None) -> str | None:
    """Return why a case failed, without what was expected of it; None if it did not."""
    if result is None:
        return "no result"
    if result.ended_by != "exit":
        return _HOW[result.ended_by]
    if result.exit_code != expected["exit_code"]:
        return f"ended with {result.exit_code}"
    if result.truncated:
        return "wrote more than is kept"
    if not _is_equal(expected, result.output):
        return f"wrote {result.output[:SHOWN]!r}"
    return None


_HOW: Final[dict[Literal["signal", "timeout", "out_of_memory"], str]] = {
    "signal": "ended by a signal",
    "timeout": "out of time",
    "out_of_memory": "out of memory",
}


def _is_equal(expected: Mapping[str, Any], output: str) -> bool:
    if "output" in expected:
        return bool(output.rstrip() == str(expected["output"]).rstrip())
    try:
        return _same(expected["output_json"], json.loads(output))
    except (ValueError, RecursionError):
        return False


def _same(one: Any, other: Any) -> bool:
    """Compare JSON: 1 equals 1.0, but true is no number."""
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(_same(one[key], other[key]) for key in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(_same, one, other))
    return bool(one == other)
