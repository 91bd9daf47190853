"""A task's environment: seeded by `collector`, its tools asked for by `model` (the gateway) or `harness`, executed by `verifier`."""

from __future__ import annotations

from typing import Any, ClassVar

from pydantic import Field

from schemas.base import Answer, Event
from schemas.environment import Environment
from schemas.values import Failure


class EnvironmentSeeded(Event):
    """An attempt begins whose task has tools; `environment` says how they are executed. Written by `collector`."""

    TYPE: ClassVar[str] = "environment_seeded.v1"

    environment: Environment


class TaskToolCallRequested(Event):
    """An agent calls a tool of its task, the `number`-th such call of its attempt; at most once, whatever happens.

    It has `timeout_s` from now on. Through the gateway: by way of `grant`, in the `launch`-th run of its program for `activation`;
    `client_id` is what the client calls the call by, None if it does not say. By our own loop: `call_id` is the model's,
    `turn` the model call that asked, `index` its place among that turn's calls.
    """

    TYPE: ClassVar[str] = "task_tool_call_requested.v1"
    TO: ClassVar[str | None] = "verifier"

    number: int
    tool: str
    arguments: dict[str, Any]
    timeout_s: float
    grant: str | None = None
    activation: int = 1
    launch: int = 1
    client_id: str | None = None
    call_id: str | None = None
    turn: int | None = None
    index: int | None = None


class TaskToolCallReplayed(Event):
    """A program that was run again made its `number`-th call again, and got its answer; nothing was executed. Written by `model`."""

    TYPE: ClassVar[str] = "task_tool_call_replayed.v1"

    number: int
    activation: int = 1
    launch: int = 1
    client_id: str | None = None


class TaskToolCallCompleted(Answer):
    """A tool of a task was executed. `text` is what the agent is told, `is_error` that the tool had to refuse.

    `record` is what the call left in the environment, which may be graded; None for nothing.
    """

    TYPE: ClassVar[str] = "task_tool_call_completed.v1"

    number: int
    tool: str
    text: str
    is_error: bool = False
    truncated: bool = False
    record: Any = None
    duration_s: float


class TaskToolCallFailed(Answer):
    """A tool of a task was not executed: nothing has happened."""

    TYPE: ClassVar[str] = "task_tool_call_failed.v1"

    number: int
    failure: Failure


class TaskToolCallLost(Answer):
    """Whether a tool of a task was executed, or what came of it, is not known: it may have been started once."""

    TYPE: ClassVar[str] = "task_tool_call_lost.v1"

    number: int
    reason: str
    duration_s: float = Field(default=0.0, ge=0)
