"""Reads the tools that are offered, and which of them must be called.

A namespace is taken apart: each of its tools carries its name. What is said about the namespace itself is kept by that name.
"""

from __future__ import annotations

from typing import Any

from providers.dialects.base import Unexpressible
from providers.dialects.fields import Fields, as_object, where
from providers.dialects.responses.names import NAME, NAMESPACES, Notes, note_rest
from schemas.conversation import HostedTool, Tool, ToolChoice


def read_tools(raw: list[Any], notes: Notes) -> tuple[Tool | HostedTool, ...]:
    """Return the tools that are offered, in their order."""
    tools: list[Tool | HostedTool] = []
    for n, value in enumerate(raw):
        path = where("tools", n)
        tool = as_object(value, path)
        match Fields(tool, path).needed_text("type"):
            case "function" | "custom":
                tools.append(_tool(tool, path, None, notes))
            case "namespace" if _is_plain_namespace(tool, path):
                tools.extend(_namespace(tool, path, notes))
            case _:
                tools.append(HostedTool(dialect=NAME, tool=tool))
    return tuple(tools)


def read_tool_choice(raw: Any, notes: Notes) -> ToolChoice | None:
    """Return whether a tool must be called; a form that only this API has is written down as it is."""
    match raw:
        case None:
            return None
        case "auto" | "none" | "required":
            return ToolChoice(mode=raw)
        case {"type": "function", "name": str() as name, **rest} if not rest:
            return ToolChoice(mode="named", name=name)
        case {"type": "custom", "name": str() as name, **rest} if not rest:
            return ToolChoice(mode="named", name=name, kind="custom")
        case _:
            notes["tool_choice"] = raw
            return None


def _is_plain_namespace(tool: dict[str, Any], path: str) -> bool:
    """Return whether a namespace holds tools that a client runs, and nothing else."""
    tools, at = tool.get("tools"), where(path, "tools")
    if not isinstance(tools, list) or not all(isinstance(each, dict) for each in tools):
        return False
    kinds = {Fields(each, where(at, n)).text("type") for n, each in enumerate(tools)}
    return bool(kinds) and kinds <= {"function", "custom"}


def _namespace(tool: dict[str, Any], path: str, notes: Notes) -> list[Tool]:
    fields = Fields(tool, path)
    fields.take("type")
    name, description, tools = fields.needed_text("name"), fields.text("description"), fields.list("tools") or []
    if description is not None and notes.setdefault(NAMESPACES, {}).setdefault(name, description) != description:
        raise Unexpressible(fields.at("description"), f"another namespace {name!r} is described in other words")
    note_rest(fields, notes)
    return [_tool(each, f"{fields.at('tools')}.{n}", name, notes) for n, each in enumerate(tools)]


def _tool(raw: dict[str, Any], path: str, namespace: str | None, notes: Notes) -> Tool:
    fields = Fields(raw, path)
    is_custom = fields.text("type") == "custom"
    tool = Tool(
        name=fields.needed_text("name"),
        description=fields.text("description"),
        kind="custom" if is_custom else "function",
        parameters=None if is_custom else fields.object("parameters"),
        format=fields.object("format") if is_custom else None,
        strict=None if is_custom else fields.flag("strict"),
        namespace=namespace,
    )
    note_rest(fields, notes)
    return tool
