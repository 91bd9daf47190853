"""Offered tools and the choice among them, there and back.

A custom tool's grammar lies one level deeper here than in OpenAI Responses, whose form is the one that `Tool.format` holds.
"""

from __future__ import annotations

from typing import Any, Final, Literal

from providers.dialects.base import Unexpressible
from providers.dialects.chat.parts import Writing, put_cache, read_cache
from providers.dialects.chat.unknown import Unknown, needed_fields
from providers.dialects.fields import Fields, where
from schemas.conversation import HostedTool, Request, Tool, ToolChoice

MODES: Final[tuple[Literal["none", "auto", "required"], ...]] = ("none", "auto", "required")
KINDS: Final[tuple[Literal["function", "custom"], ...]] = ("function", "custom")
GRAMMAR: Final = "grammar"


def read_tools(fields: Fields, unknown: Unknown) -> tuple[Tool | HostedTool, ...] | None:
    """Take `tools`: None if there is no list."""
    tools = fields.list("tools")
    if tools is None:
        return None
    return tuple(_read_tool(tool, where(fields.at("tools"), n), unknown) for n, tool in enumerate(tools))


def _read_tool(value: Any, path: str, unknown: Unknown) -> Tool | HostedTool:
    fields = Fields(value, path)
    kind = fields.text("type") or "function"
    if kind not in KINDS:
        return HostedTool(dialect="chat", tool=value)
    inner = needed_fields(fields, kind)
    name, description = inner.needed_text("name"), inner.text("description")
    cache = read_cache(fields, unknown)
    if kind == "custom":
        format_ = inner.object("format")
        tool = Tool(
            name=name,
            description=description,
            kind="custom",
            format=None if format_ is None else _flat(format_),
            cache=cache,
        )
    else:
        parameters, strict = inner.object("parameters"), inner.flag("strict")
        tool = Tool(name=name, description=description, parameters=parameters, strict=strict, cache=cache)
    unknown.keep(inner)
    unknown.keep(fields)
    return tool


def _flat(format_: dict[str, Any]) -> dict[str, Any]:
    grammar = format_.get(GRAMMAR)
    is_nested = format_.keys() == {"type", GRAMMAR} and format_["type"] == GRAMMAR and isinstance(grammar, dict)
    if not is_nested or grammar is None or not grammar.keys().isdisjoint({"type", GRAMMAR}):
        return format_
    return {"type": GRAMMAR, **grammar}


def _nested(format_: dict[str, Any]) -> dict[str, Any]:
    if format_.get("type") != GRAMMAR or GRAMMAR in format_:
        return format_
    return {"type": GRAMMAR, GRAMMAR: {name: value for name, value in format_.items() if name != "type"}}


def read_choice(fields: Fields, unknown: Unknown) -> ToolChoice | None:
    """Take `tool_choice`; one that only this dialect knows (a list of allowed tools) is unknown."""
    value = fields.take("tool_choice")
    if value is None:
        return None
    if not isinstance(value, str | dict):
        raise Unexpressible(fields.at("tool_choice"), "want a string or an object")
    for mode in MODES:
        if value == mode:
            return ToolChoice(mode=mode)
    for kind in KINDS:
        if (name := _named(value, kind)) is not None:
            return ToolChoice(mode="named", name=name, kind=kind)
    unknown.keep_value(fields, "tool_choice", value)
    return None


def _named(value: str | dict[str, Any], kind: str) -> str | None:
    """Return the name of the one tool of `kind` that must be called, if a choice says that and nothing more."""
    if isinstance(value, str) or value.keys() != {"type", kind} or value["type"] != kind:
        return None
    inner = value[kind]
    name = inner.get("name") if isinstance(inner, dict) and len(inner) == 1 else None
    return name if isinstance(name, str) else None


# -- writing ------------------------------------------------------------------------------------------------------------------


def write_tools(request: Request, writing: Writing) -> dict[str, Any]:
    """Return the fields that tell of tools; without any tool the others are left out, since backends refuse them alone."""
    alone = {"tool_choice": request.tool_choice, "parallel_tool_calls": request.parallel_tool_calls}
    if not request.tools:
        for name, value in alone.items():
            writing.drop(name, value)
        if request.tools is None:
            return {}
        if not writing.is_own:  # OpenAI refuses an empty list, which offers what no list does
            writing.drop("tools", "empty")
            return {}
        return {"tools": []}
    written: dict[str, Any] = {
        "tools": [_write_tool(tool, f"tools.{n}", writing) for n, tool in enumerate(request.tools)]
    }
    if request.tool_choice is not None:
        written["tool_choice"] = _write_choice(request.tool_choice)
    if request.parallel_tool_calls is not None:
        written["parallel_tool_calls"] = request.parallel_tool_calls
    return written


def _write_tool(tool: Tool | HostedTool, path: str, writing: Writing) -> dict[str, Any]:
    if isinstance(tool, HostedTool):
        if tool.dialect == "chat" and writing.is_own:
            return tool.tool
        raise Unexpressible(path, f"a tool that only the provider of {tool.dialect!r} runs")
    if tool.namespace is not None:
        raise Unexpressible(f"{path}.namespace", f"there are no namespaces here, and {tool.name!r} is in one")
    inner = {
        "name": tool.name,
        "description": tool.description,
        "parameters": tool.parameters,
        "strict": tool.strict,
        "format": None if tool.format is None else _nested(tool.format),
    }
    written = {"type": tool.kind, tool.kind: {name: value for name, value in inner.items() if value is not None}}
    put_cache(written, tool.cache, path, writing)
    return written


def _write_choice(choice: ToolChoice) -> str | dict[str, Any]:
    if choice.mode != "named":
        return choice.mode
    if choice.name is None:
        raise Unexpressible("tool_choice", "names no tool")
    return {"type": choice.kind, choice.kind: {"name": choice.name}}
