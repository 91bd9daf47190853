"""Tasks: what an agent is given, and what only the verifier may see."""

from __future__ import annotations

import hashlib
import json
from typing import Annotated, Any, Final, Literal

from pydantic import AfterValidator, Field

from schemas.base import Frozen
from schemas.environment import Environment, TaskTool, ToolGrant
from schemas.harnesses import RESUMED, Continuation
from schemas.machines import Machine
from schemas.readiness import Install
from schemas.values import BlobRef, Message, Seconds

FOLLOW_UPS_MAX: Final = 100
MCP_SERVERS_MAX: Final = 16


def words_of_the_user(messages: tuple[Message, ...]) -> tuple[Message, ...]:
    """Refuse a further input that is not what a user says."""
    if not messages or any(m.role != "user" or not (m.content or "").strip() or m.tool_calls for m in messages):
        msg = "a further input must be one or more messages of the user"
        raise ValueError(msg)
    return messages


FollowUp = Annotated[tuple[Message, ...], AfterValidator(words_of_the_user)]


class McpServer(Frozen):
    """A server of tools that a task offers its agent: at `url`, or started in the machine by `command` with `args`."""

    name: str = Field(min_length=1)
    transport: Literal["stdio", "sse", "streamable-http"]
    url: str | None = None
    command: str | None = None
    args: tuple[str, ...] = ()
    headers: dict[str, str] = Field(default_factory=dict)


class TaskInput(Frozen):
    """What the agent sees. `task_id` is stable under shuffling and selection.

    `hands_in` is what is graded: the answer, files of the workspace, or the whole workspace as it was left (`machine`).
    `tools` are offered beside the agent's own, by way of `grants`. `follow_ups` are the inputs of the session's activations 2, 3, …:
    each is what is new, and is given when the one before has been dealt with; `continuation` says what it takes. With `awaits_input_s`
    more may come from outside, for so long after each answer. `mcp_servers` are the task's own, which the agent reaches or starts in
    its sandbox; `skills_dir` is a directory of that, with a directory a skill.
    """

    task_id: str
    messages: tuple[Message, ...]
    follow_ups: tuple[FollowUp, ...] = Field(default=(), max_length=FOLLOW_UPS_MAX)
    continuation: Continuation | None = None
    awaits_input_s: Seconds | None = None
    hands_in: Literal["answer", "files", "machine"] = "answer"
    tools: tuple[TaskTool, ...] = ()
    grants: tuple[ToolGrant, ...] = ()
    mcp_servers: tuple[McpServer, ...] = Field(default=(), max_length=MCP_SERVERS_MAX)
    skills_dir: str | None = Field(default=None, pattern=r"^(/[A-Za-z0-9_.-]+)+/?$")

    @property
    def continues(self) -> Continuation | None:
        """Return what is asked of a harness that is given further inputs; None if there are none."""
        return self.continuation or (RESUMED if self.follow_ups or self.awaits_input_s else None)


def fingerprint_of(messages: tuple[Message, ...]) -> str:
    """Return the SHA-256 of an input's canonical JSON, in hex."""
    plain = [message.model_dump(mode="json", exclude_defaults=True) for message in messages]
    return hashlib.sha256(json.dumps(plain, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


class Staged(Frozen):
    """Files that are put into a machine, at a directory outside of its workspace: content in base64 by path below it."""

    at: str = Field(pattern=r"^(/[A-Za-z0-9_.-]+)+$")
    files: dict[str, str]


class Solution(Frozen):
    """How a task is solved: files that only its own solution is run with, and the command."""

    staged: Staged
    command: str


class Task(Frozen):
    """One task of a taskset.

    `index` is the task's position in the unshuffled source and names its rollouts; `verifier_data` (the
    expected answer, the generator's entry) goes to the verifier only. Its `install`, if it has one, takes the place of the run's,
    and its `image` that of the run's sandbox. `machine` is what it asks of the agent's machine, `grading` of that for its tests.
    `timeout_s` is for the agent, if the run says nothing of that. Only `agents`, if there are any, may try it. It is done as
    `user`. Nobody but an `oracle_agent` is given its `solution`.
    `environment` says how its tools are executed, which is the verifier's alone too.
    """

    index: int = Field(ge=0)
    input: TaskInput
    verifier: str
    verifier_data: dict[str, Any]
    install: Install | None = None
    image: str | None = Field(default=None, min_length=1)
    machine: Machine | None = None
    grading: Machine | None = None
    timeout_s: Seconds | None = None
    agents: tuple[str, ...] = ()
    user: str | None = None
    solution: Solution | None = None
    environment: Environment | None = None

    @property
    def task_id(self) -> str:
        """Return the id of the task."""
        return self.input.task_id


class Evidence(Frozen):
    """What a verdict may look at; collected after the session is closed.

    `files` is the snapshot of the workspace where that is handed in, None if there never was a machine; `refused` says why it is not
    there although there was one: the agent left more than can be kept.
    """

    answer: str | None
    stop_reason: str
    turns: int
    files: BlobRef | None = None
    refused: str | None = None


class DoneActivation(Frozen):
    """What came of the `activation`-th input of a session, which is known by the `fingerprint` of its messages."""

    activation: int
    fingerprint: str
    stop_reason: str
    turns: int
