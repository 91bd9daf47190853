"""Rows whose tasks offer tools: what a row says of them, and the grade by what their calls left in the environment."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from pydantic import Field, ValidationError, model_validator

from adapters.benchmarks.answers import shown
from adapters.benchmarks.base import Grade
from gym_bus.plain_words import plainly
from schemas.addresses import has_name
from schemas.base import Frozen
from schemas.environment import BuiltIn, Environment, RemoteTool, TaskTool, ToolGrant, ToolName
from schemas.tasks import Evidence
from tools.shell import SHELL
from tools.task_tools import offered

VERIFIER: Final = "tool_state"
KEYS: Final = frozenset({"tools", "tool_data", "grants", "expected_records"})
GRANTED: Final = (ToolGrant(name="task_tools"),)
"""The grant of a row that names none."""


class ToolRow(Frozen):
    """One tool of a row: of ours by `use` (its own name if it says nothing), or of an MCP server at `url` that calls it `use`."""

    name: ToolName
    use: str | None = None
    description: str | None = None
    parameters: dict[str, Any] | None = None
    url: str | None = None
    headers: dict[str, str] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _is_described(self) -> ToolRow:
        if self.url is not None and (self.description is None or self.parameters is None):
            msg = "a tool of an MCP server wants `description` and `parameters` as well"
            raise ValueError(msg)
        if self.url is not None and has_name(self.url):
            msg = "the `url` of a server stands in the log: it may hold no name and no password"
            raise ValueError(msg)
        if self.name == SHELL.name:
            msg = f"{SHELL.name!r} is what agents run commands with: choose another name"
            raise ValueError(msg)
        if self.url is None and self.headers:
            msg = "`headers` are for a tool with a `url`"
            raise ValueError(msg)
        return self


class Offer(Frozen):
    """What a row says of tools; `expected_records` are what calls of each tool are to leave, in order."""

    tools: tuple[ToolRow, ...] = Field(min_length=1, max_length=64)
    tool_data: dict[str, dict[str, Any]] = Field(default_factory=dict)
    grants: tuple[ToolGrant, ...] = Field(default=GRANTED, min_length=1, max_length=16)
    expected_records: dict[str, list[Any]] | None = None

    @model_validator(mode="after")
    def _fits_together(self) -> Offer:
        names = [tool.name for tool in self.tools]
        for what, said in (("tools", names), ("grants", [grant.name for grant in self.grants])):
            if len(set(said)) < len(said):
                msg = f"two {what} have one name"
                raise ValueError(msg)
        for key in (*self.tool_data, *(self.expected_records or {})):
            if key not in names:
                msg = f"there is data, or there are records, for {key!r}, which is no tool of the row"
                raise ValueError(msg)
        for tool in self.tools:
            self.task_tool(tool)
        return self

    def execution(self, tool: ToolRow) -> BuiltIn | RemoteTool:
        """Return how a tool is executed."""
        if tool.url is not None:
            return RemoteTool(url=tool.url, tool=tool.use or tool.name, headers=tool.headers)
        return BuiltIn(tool=tool.use or tool.name, data=self.tool_data.get(tool.name, {}))

    def task_tool(self, tool: ToolRow) -> TaskTool:
        """Return a tool as agents see it; raises `ValueError` for one that there is not."""
        execution = self.execution(tool)
        if isinstance(execution, RemoteTool):
            return TaskTool(
                name=tool.name, description=tool.description or "", parameters=tool.parameters or {"type": "object"}
            )
        found = offered(tool.name, execution)
        changes = {"description": tool.description, "parameters": tool.parameters}
        return found.replaced(**{name: value for name, value in changes.items() if value is not None})

    def environment(self) -> Environment:
        """Return how all of them are executed."""
        return Environment(tools={tool.name: self.execution(tool) for tool in self.tools})

    def task_tools(self) -> tuple[TaskTool, ...]:
        """Return all of them as agents see them."""
        return tuple(map(self.task_tool, self.tools))


def offer(row: Mapping[str, Any]) -> Offer | None:
    """Return what a row says of tools, None if it offers none; raises `ValueError` in words for whoever wrote it."""
    said = {key: value for key, value in row.items() if key in KEYS}
    if not said:
        return None
    if isinstance(tools := said.get("tools"), list):
        said["tools"] = [{"name": tool} if isinstance(tool, str) else tool for tool in tools]
    try:
        return Offer.model_validate(said)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        words = plainly(first["msg"])
        msg = f"{where}: {words}" if where else words
        raise ValueError(msg) from error


def grade(verifier_data: Mapping[str, Any], evidence: Evidence) -> Grade:
    """Return 1 if the calls of each tool left what is expected of them, in order, and nothing else; else 0 and the first difference.

    `verifier_data` holds `expected` and `recorded`, both by the tool's name.
    """
    del evidence
    expected: Mapping[str, list[Any]] = verifier_data["expected"]
    recorded: Mapping[str, list[Any]] = verifier_data["recorded"]
    for tool in sorted({*expected, *recorded}):
        wanted, left = expected.get(tool, []), recorded.get(tool, [])
        if wanted != left:
            return Grade(0.0, failure_reason=f"{tool}: expected {shown(wanted)}, was left {shown(left)}")
    return Grade(1.0)
