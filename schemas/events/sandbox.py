"""What the sandbox actor states about machines and what was done in them. All written by `sandbox`."""

from __future__ import annotations

from typing import ClassVar, Literal

from schemas.base import Answer, Event
from schemas.values import Failure


class SandboxCreated(Answer):
    """A machine is ready at `place`; requests about it are addressed there."""

    TYPE: ClassVar[str] = "sandbox_created.v1"

    place: str
    provider: str


class SandboxFailed(Answer):
    """A machine could not be made."""

    TYPE: ClassVar[str] = "sandbox_failed.v1"

    failure: Failure


class SandboxLost(Event):
    """A machine is gone without having been destroyed by us, with everything in it."""

    TYPE: ClassVar[str] = "sandbox_lost.v1"

    reason: str


class SandboxDestroyed(Answer):
    """A machine was ended at its session's request; nothing of it is left."""

    TYPE: ClassVar[str] = "sandbox_destroyed.v1"


class ToolCallCompleted(Answer):
    """A command ran to an end.

    `exit_code` is the process's own (128 + n for signal n), None if it was ended at its deadline. `output` is standard
    output and error together, at most the sandbox's `output_bytes`; `output_bytes` is the size before truncation.
    """

    TYPE: ClassVar[str] = "tool_call_completed.v1"

    exit_code: int | None
    output: str
    output_bytes: int
    truncated: bool = False
    ended_by: Literal["exit", "signal", "timeout", "out_of_memory"] = "exit"
    duration_s: float


class ToolCallFailed(Answer):
    """A command was not started: nothing happened in the machine."""

    TYPE: ClassVar[str] = "tool_call_failed.v1"

    failure: Failure


class ToolCallLost(Answer):
    """Whether a command ran, or what came of it, is unknown: it may have been started once."""

    TYPE: ClassVar[str] = "tool_call_lost.v1"

    reason: str
