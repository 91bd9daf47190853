"""An agent's own program in a sandbox: asked for and settled by `harness`, run and followed by `sandbox`."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field

from schemas.base import Answer, Event
from schemas.harnesses import Program, ToldItem
from schemas.tasks import McpServer
from schemas.values import Failure


class LaunchRequested(Event):
    """A session wants its agent's program run in its `number`-th sandbox, for its `activation`-th input: once at most in each.

    In a sandbox that follows one that was lost it begins the activation anew, and is given the answers that are recorded for it. The
    program is given `prompt`, and `system_prompt` as the agent's configuration says, and `timeout_s` to end. `model` is what it
    calls the model. Its token for the gateway is made where it is launched, and is in no event. The tools of its task are MCP servers
    to it, by the names of `mcp_grants`; with `has_tool_command`, it is given a command that calls them. Those `required`, and the
    task's own `mcp_servers`, list their tools before it begins. It finds the skills in `skills_dir`. `resume` is the program's own
    session, of the activation before, with which it goes on.
    """

    TYPE: ClassVar[str] = "launch_requested.v1"
    TO: ClassVar[str | None] = "sandbox"

    agent: Program = Field(discriminator="type")
    activation: int
    prompt: str
    system_prompt: str | None = None
    model: str
    timeout_s: float
    number: int = 1
    right: int | None = None
    mcp_grants: tuple[str, ...] = ()
    has_tool_command: bool = False
    required: tuple[str, ...] = ()
    mcp_servers: tuple[McpServer, ...] = ()
    skills_dir: str | None = None
    resume: str | None = None


class LaunchTold(Event):
    """What a program wrote of its work since it was last told: the `part`-th piece, in order. Written while it runs.

    `launch_id` is the launch's request: this is no answer to it.
    """

    TYPE: ClassVar[str] = "launch_told.v1"

    launch_id: str
    part: int
    items: tuple[ToldItem, ...]


class LaunchEnded(Answer):
    """A program came to an end, and all that it started with it.

    `exit_code` or `signal` is its own, `ended_by` what came first: its own end, its deadline, a wish to stop. `stderr` is the end of
    what it wrote there. `unknown` counts records of its files by kinds that nobody here knows, `faults` what was not understood at all.
    """

    TYPE: ClassVar[str] = "launch_ended.v1"

    ended_by: Literal["exit", "timeout", "stopped"]
    exit_code: int | None = None
    signal: int | None = None
    duration_s: float
    descendants_killed: int = 0
    is_clean: bool = True
    stdout_bytes: int = 0
    stderr_bytes: int = 0
    stderr: str = ""
    asides: tuple[ToldItem, ...] = ()
    unknown: dict[str, int] = Field(default_factory=dict)
    faults: int = 0
    is_cut: bool = False


class LaunchFailed(Answer):
    """A program was not started: nothing of it has happened."""

    TYPE: ClassVar[str] = "launch_failed.v1"

    failure: Failure


class LaunchLost(Answer):
    """How a program ended is not known, nor whether it did: its sandbox or its supervisor is gone. Nothing of it is graded."""

    TYPE: ClassVar[str] = "launch_lost.v1"

    reason: str


class LaunchSettled(Event):
    """A program is over, and so are its calls of the model: all `calls` have an answer, `lost` of them only because nobody gave one.

    `completed` of them were answered by the model, and `recalled` more were given the answers of an earlier launch; `lost` are also
    what earlier launches left open. `failure` is what came of the last one, if that was no answer. `budget` says whose
    budget was used up, if one was, and `limit` which. `launch_id` is the launch's request.
    """

    TYPE: ClassVar[str] = "launch_settled.v1"

    launch_id: str
    calls: int
    completed: int = 0
    recalled: int = 0
    lost: int = 0
    failure: Failure | None = None
    budget: Literal["rollout", "run"] | None = None
    limit: str | None = None
