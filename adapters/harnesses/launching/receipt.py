"""How a launch ended, in the words of its supervisor. It lies in the machine, where an agent could write one: it is no proof."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from schemas.base import Frozen


class Stream(Frozen):
    """One output: how many bytes there were, and how many of them are kept."""

    bytes: int = Field(ge=0, le=2**53)
    kept: int = Field(ge=0, le=2**53)
    truncated: bool


class Receipt(Frozen):
    """`ended_by` is what came first: the command's own end, its deadline, or a wish to stop. Times in seconds, `*_at` since 1970.

    `unready` if nothing was run, because what the order wants to be there could not be made: `error` names it. One of `exit_code` and
    `signal` is there if `was_started`; a command that cannot be run has 127 or 126 and an `error`.
    `descendants_killed` counts what outlived the command or had to be ended with it; `is_clean` if nothing of it is left.
    """

    launch_id: str
    ended_by: Literal["exit", "timeout", "stopped", "unready"]
    exit_code: int | None = Field(ge=-(2**31), lt=2**31)
    signal: int | None = Field(ge=0, lt=2**31)
    was_started: bool
    started_at: float
    ended_at: float
    duration_s: float = Field(ge=0, le=2**31)
    descendants_killed: int = Field(ge=0, lt=2**31)
    is_clean: bool
    error: str | None = Field(max_length=65_536)
    stdout: Stream
    stderr: Stream
