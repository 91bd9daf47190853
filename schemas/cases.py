"""Test cases: runs of a program that was handed in, whose output is compared where the program cannot reach."""

from __future__ import annotations

from typing import Final, Literal

from pydantic import Field

from schemas.base import Frozen

CASES_MAX: Final = 1000
CASE_MAX_S: Final = 3600.0
KEPT_MAX_BYTES: Final = 262_144
KEPT_LEAST_BYTES: Final = 1024


class CaseRun(Frozen):
    """One run: `command`, in the workspace, with `stdin` as its input. What is expected of it is not said here.

    Of its output so much is kept that what is expected has room in it: `kept_bytes`.
    """

    id: str = Field(min_length=1, max_length=200)
    command: str = Field(min_length=1)
    stdin: str = ""
    timeout_s: float = Field(default=10.0, gt=0, le=CASE_MAX_S)
    kept_bytes: int = Field(default=KEPT_LEAST_BYTES, ge=1, le=KEPT_MAX_BYTES)


class CaseResult(Frozen):
    """What came of a run: its standard output alone, timed outside of the machine."""

    id: str
    exit_code: int | None = None
    output: str = ""
    truncated: bool = False
    ended_by: Literal["exit", "signal", "timeout", "out_of_memory"] = "exit"
    duration_s: float = 0.0
