"""Offered tools and the choice among them, read. A tool that Google runs itself can be offered to nobody else."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from providers.dialects.base import Unexpressible
from providers.dialects.fields import Fields
from providers.dialects.gemini.json_schema import json_schema_of
from providers.dialects.gemini.names import each, inner, keep, words
from schemas.conversation import HostedTool, Tool, ToolChoice

UNSAID: Final = "MODE_UNSPECIFIED"
CHOICES: Final[dict[str, ToolChoice | None]] = {
    UNSAID: None,
    "AUTO": ToolChoice(mode="auto"),
    "NONE": ToolChoice(mode="none"),
    "ANY": ToolChoice(mode="required"),
}


def read_tools(body: Fields, others: dict[str, Any]) -> tuple[Tool | HostedTool, ...] | None:
    """Take `tools`; None if there is no list."""
    if not body.has("tools"):
        return None
    return tuple(tool for entry in each(body, "tools") for tool in _tools(entry, others))


def _tools(entry: Fields, others: dict[str, Any]) -> Iterator[Tool | HostedTool]:
    for declared in each(entry, "functionDeclarations"):
        yield _function(declared, others)
    for name, about in entry.rest().items():
        yield HostedTool(dialect="gemini", tool={"type": name, name: about})


def _function(declared: Fields, others: dict[str, Any]) -> Tool:
    tool = Tool(
        name=declared.needed_text("name"),
        description=declared.text("description"),
        parameters=take_schema(declared, "parameters", "parametersJsonSchema"),
    )
    if declared.take("behavior") not in (None, "BLOCKING", "UNSPECIFIED"):
        raise Unexpressible(declared.at("behavior"), "a function's result is waited for here")
    keep(declared, others)
    return tool


def take_schema(fields: Fields, own: str, standard: str) -> dict[str, Any] | None:
    """Take a schema in Gemini's own words or in JSON Schema's; return it in the latter."""
    given, plain = fields.object(own), fields.object(standard)
    if given is not None and plain is not None:
        raise Unexpressible(fields.at(standard), f"stands beside {own}")
    return plain if given is None else json_schema_of(given, fields.at(own))


def read_choice(body: Fields, tools: tuple[Tool | HostedTool, ...] | None, others: dict[str, Any]) -> ToolChoice | None:
    """Take `toolConfig`; several allowed functions are no choice that others know, unless they are all that are offered."""
    config = inner(body, "toolConfig")
    if config is None:
        return None
    calling = inner(config, "functionCallingConfig")
    keep(config, others)
    if calling is None:
        return None
    mode, allowed = calling.text("mode") or UNSAID, words(calling, "allowedFunctionNames") or ()
    keep(calling, others)
    if allowed and mode != "ANY":
        raise Unexpressible(calling.at("allowedFunctionNames"), "only the mode ANY can be confined to some functions")
    if mode in CHOICES and not allowed:
        return CHOICES[mode]
    if mode != "ANY":
        raise Unexpressible(calling.at("mode"), f"want AUTO, ANY or NONE, found {mode[:80]!r}")
    if len(allowed) == 1:
        return ToolChoice(mode="named", name=allowed[0])
    if {tool.name for tool in tools or () if isinstance(tool, Tool)} <= set(allowed):
        return CHOICES[mode]
    raise Unexpressible(calling.at("allowedFunctionNames"), "name one function, or all that are offered")
