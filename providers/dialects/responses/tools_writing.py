"""Writes the tools that are offered, neighbours of one namespace together, and which of them must be called."""

from __future__ import annotations

from itertools import groupby
from typing import Any

from providers.dialects.base import Unexpressible
from providers.dialects.responses.content_writing import Writing
from providers.dialects.responses.names import NAME
from schemas.conversation import HostedTool, Tool, ToolChoice

Offered = Tool | HostedTool


def write_tools(tools: tuple[Offered, ...], described: dict[str, str], writing: Writing) -> list[dict[str, Any]]:
    """Return the tools; `described` holds what is said of namespaces, by their names."""
    written: list[dict[str, Any]] = []
    placed = [(f"tools.{n}", tool) for n, tool in enumerate(tools)]
    for namespace, run in groupby(placed, key=lambda each: _namespace(each[1])):
        members = [_tool(tool, path, writing) for path, tool in run]
        if namespace is None:
            written += members
            continue
        said = {"description": described[namespace]} if namespace in described else {}
        written.append({"type": "namespace", "name": namespace, **said, "tools": members})
    return written


def write_tool_choice(choice: ToolChoice) -> str | dict[str, Any]:
    """Return whether a tool must be called."""
    return {"type": choice.kind, "name": choice.name} if choice.mode == "named" else choice.mode


def _namespace(tool: Offered) -> str | None:
    return tool.namespace if isinstance(tool, Tool) else None


def _tool(tool: Offered, path: str, writing: Writing) -> dict[str, Any]:
    if isinstance(tool, HostedTool):
        if tool.dialect != NAME:
            raise Unexpressible(path, f"a tool that only the provider of {tool.dialect} runs")
        return tool.tool
    writing.drop(f"{path}.cache", tool.cache)
    said = {
        "description": tool.description,
        "format": tool.format,
        "parameters": tool.parameters,
        "strict": tool.strict,
    }
    written: dict[str, Any] = {"type": tool.kind, "name": tool.name} | {
        key: value for key, value in said.items() if value is not None
    }
    if tool.kind == "function" and not writing.is_own:
        # Where others say nothing, they mean no strictness; here it would mean strictness.
        written = {"parameters": None, "strict": False} | written
    return written
