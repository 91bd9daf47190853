"""Tools that a task offers: how an agent sees them, by which way it reaches them, and how they are executed."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from schemas.base import Frozen, Tagged

ToolName = Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]{0,47}$")]
GrantName = Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]{0,31}$")]


class TaskTool(Frozen):
    """A tool as an agent sees it; `parameters` is a JSON Schema object."""

    name: ToolName
    description: str
    parameters: dict[str, Any]


class ToolGrant(Frozen):
    """A way by which an agent reaches the tools of its task: as an MCP server, or by plain HTTP.

    An agent that has no such way is refused if the grant is `required`; else it does without.
    """

    name: GrantName
    kind: Literal["mcp", "http"] = "mcp"
    required: bool = True


class BuiltIn(Tagged):
    """A tool that comes with gym-bus (`tools.task_tools`), and what it works on."""

    type: Literal["python"] = "python"
    tool: str
    data: dict[str, Any] = Field(default_factory=dict)


class RemoteTool(Tagged):
    """A tool of an MCP server over HTTP, which somebody else runs; `tool` is its name there."""

    type: Literal["mcp"] = "mcp"
    url: str
    tool: str
    headers: dict[str, str] = Field(default_factory=dict)


Execution = BuiltIn | RemoteTool


class Environment(Frozen):
    """How each tool of a task is executed, by its name. No agent sees it."""

    tools: dict[ToolName, Annotated[Execution, Field(discriminator="type")]]
