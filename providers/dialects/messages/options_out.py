"""All of a request but its turns, written; what Anthropic Messages has no word for is refused by its name."""

from __future__ import annotations

from typing import Any, Final

from providers.dialects.base import Unexpressible
from providers.dialects.messages.options_in import EFFORTS
from providers.dialects.messages.writing import Writing
from schemas.conversation import HostedTool, Request, Thinking, Tool, ToolChoice

DISPLAYS: Final = frozenset({"summarized", "omitted"})
CHOICES: Final = {"auto": "auto", "required": "any", "none": "none"}
# What says no more than what holds anyway; anything else in these fields is refused.
SAYS_NOTHING: Final[dict[str, object]] = {
    "presence_penalty": 0,
    "frequency_penalty": 0,
    "seed": None,
    "logprobs": False,
    "top_logprobs": 0,
    "verbosity": "medium",
}


def write_tools(request: Request, writing: Writing) -> list[dict[str, Any]] | None:
    """Return `tools`, None if there is no list."""
    if request.tools is None:
        return None
    return [_tool(tool, f"tools.{n}", writing) for n, tool in enumerate(request.tools)]


def _tool(tool: Tool | HostedTool, path: str, writing: Writing) -> dict[str, Any]:
    if isinstance(tool, HostedTool):
        if tool.dialect != "messages":
            raise Unexpressible(path, f"only the provider of {tool.dialect} runs {tool.tool.get('type')!r}")
        return dict(tool.tool)
    if tool.kind == "custom":
        raise Unexpressible(path, "Anthropic Messages has no custom tools, which take free text")
    writing.refuse(f"{path}.namespace", tool.namespace, "Anthropic Messages has no namespaces of tools")
    written: dict[str, Any] = {"name": tool.name}
    if tool.description is not None:
        written["description"] = tool.description
    if tool.parameters is not None:
        written["input_schema"] = tool.parameters
    elif not writing.is_own:  # elsewhere a tool without parameters takes none; here that must be said
        written["input_schema"] = {"type": "object", "properties": {}}
    if tool.strict is not None:
        written["strict"] = tool.strict
    writing.cache(written, tool.cache, path)
    writing.unknown.onto(written, path)
    return written


def write_tool_choice(request: Request, writing: Writing) -> dict[str, Any] | None:
    """Return `tool_choice`, which also says whether calls may be parallel; None without tools."""
    choice, is_parallel = request.tool_choice, request.parallel_tool_calls
    if not request.tools:
        writing.drop("tool_choice", choice)
        writing.drop("parallel_tool_calls", is_parallel)
        return None
    if choice is None and is_parallel is None:
        return None
    written = _choice(choice or ToolChoice(mode="auto"))
    if written["type"] == "none":
        writing.drop("parallel_tool_calls", is_parallel)
    elif is_parallel is not None:
        written["disable_parallel_tool_use"] = not is_parallel
    writing.unknown.onto(written, "tool_choice")
    return written


def _choice(choice: ToolChoice) -> dict[str, Any]:
    if choice.mode != "named":
        return {"type": CHOICES[choice.mode]}
    if choice.kind == "custom":
        raise Unexpressible("tool_choice", "Anthropic Messages has no custom tools, which take free text")
    return {"type": "tool", "name": choice.name}


def write_thinking(thinking: Thinking, writing: Writing) -> dict[str, Any] | None:
    """Return `thinking`; None if only an effort is asked for, which stands in `output_config`."""
    if sum((thinking.is_off, thinking.is_adaptive, thinking.budget_tokens is not None)) > 1:
        raise Unexpressible("thinking", "off, adaptive and within a budget exclude each other")
    if thinking.is_off or thinking.effort == "none":
        writing.drop("thinking.summary", thinking.summary)
        return {"type": "disabled"}
    if thinking.is_adaptive:
        written: dict[str, Any] = {"type": "adaptive"}
    elif thinking.budget_tokens is not None:
        written = {"type": "enabled", "budget_tokens": thinking.budget_tokens}
    else:
        writing.drop("thinking.summary", thinking.summary)
        return None
    if writing.is_own or thinking.summary in DISPLAYS:
        written |= {"display": thinking.summary} if thinking.summary is not None else {}
    else:
        writing.drop("thinking.summary", thinking.summary)
    return written


def write_output_config(request: Request, writing: Writing) -> dict[str, Any]:
    """Return `output_config`: the effort, and the schema that the answer must have; empty if neither is asked for."""
    config: dict[str, Any] = {}
    effort = request.thinking.effort if request.thinking else None
    if effort in EFFORTS:
        config["effort"] = effort
    elif effort not in {None, "none"}:
        raise Unexpressible("thinking.effort", f"Anthropic Messages has no effort {effort!r}; its least is 'low'")
    if schema_format := _format(request, writing):
        config["format"] = schema_format
    writing.unknown.onto(config, "output_config")
    return config


def _format(request: Request, writing: Writing) -> dict[str, Any] | None:
    output = request.output
    if output is None or output.mode == "text":
        return None
    if output.mode == "json_object" or output.schema_ is None:
        raise Unexpressible("output", "Anthropic Messages promises JSON only by a schema; give one (json_schema)")
    writing.drop("output.name", output.name)
    writing.drop("output.description", output.description)
    writing.drop("output.strict", output.strict)
    written: dict[str, Any] = {"type": "json_schema", "schema": output.schema_}
    writing.unknown.onto(written, "output_config.format")
    return written


def refuse_sampling(request: Request, writing: Writing) -> None:
    """Raise `Unexpressible` for a field that Anthropic Messages lacks, unless it says only what holds anyway."""
    for name, nothing in SAYS_NOTHING.items():
        value = getattr(request, name)
        if value is not None and value != nothing:
            raise Unexpressible(name, "Anthropic Messages has no such field")
        writing.drop(name, value)
