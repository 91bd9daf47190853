"""Rows of a JSON-lines file whose tasks are graded by running tests, on files that are handed in or on the whole machine."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import PurePosixPath
from typing import Any, Final, Literal

from pydantic import Field, ValidationError, field_validator, model_validator

from adapters.benchmarks.cases import Cases
from gym_bus.plain_words import plainly
from providers.sandboxes.snapshots import BadPattern, Selection

VERIFIER: Final = "commands"
KEYS: Final = frozenset(
    {"test_command", "tests", "artifacts", "grade_machine", "services", "test_timeout_s", "cases", "partial"}
)


class Tested(Cases):
    """What a row says of its tests; `tests` are files by path below the directory of tests, `artifacts` patterns."""

    test_command: str | None = Field(default=None, min_length=1)
    tests: dict[str, str] = Field(default_factory=dict)
    artifacts: tuple[str, ...] = ()
    grade_machine: bool = False
    services: tuple[str, ...] = ()
    test_timeout_s: float = Field(default=60.0, gt=0, le=86_400)

    @field_validator("tests")
    @classmethod
    def _are_below(cls, tests: dict[str, str]) -> dict[str, str]:
        for path in tests:
            parts = PurePosixPath(path).parts
            if not parts or PurePosixPath(path).is_absolute() or ".." in parts:
                msg = f"the test {path!r} must have a path below the directory of tests"
                raise ValueError(msg)
        return tests

    @field_validator("artifacts")
    @classmethod
    def _are_patterns(cls, artifacts: tuple[str, ...]) -> tuple[str, ...]:
        try:
            Selection(artifacts)
        except BadPattern as error:
            raise ValueError(str(error)) from error
        return artifacts

    @model_validator(mode="after")
    def _hands_something_in(self) -> Tested:
        if self.grade_machine == bool(self.artifacts):
            msg = "want either `artifacts`, the files that are handed in, or `grade_machine`: true"
            raise ValueError(msg)
        if not self.cases and not self.test_command:
            msg = "want a `test_command`, or `cases`"
            raise ValueError(msg)
        return self

    @property
    def hands_in(self) -> Literal["files", "machine"]:
        """Return what an agent hands in."""
        return "machine" if self.grade_machine else "files"

    def verifier_data(self) -> dict[str, Any]:
        """Return what only the verifier may see."""
        return {
            "command": self.test_command,
            "tests": self.tests,
            "artifacts": list(self.artifacts),
            "is_whole": self.grade_machine,
            "services": list(self.services),
            "timeout_s": self.test_timeout_s,
            "cases": [case.run().model_dump() for case in self.cases],
            "expected": [case.expected() for case in self.cases],
            "partial": self.partial,
        }


def is_tested(row: Mapping[str, Any]) -> bool:
    """Say whether a row's task is graded by tests, or was meant to be."""
    return not KEYS.isdisjoint(row)


def tested(row: Mapping[str, Any]) -> Tested:
    """Return what a row says; raises `ValueError` in words for whoever wrote it."""
    try:
        return Tested.model_validate({key: value for key, value in row.items() if key in KEYS})
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        said = plainly(first["msg"])
        msg = f"{where}: {said}" if where else said
        raise ValueError(msg) from error
