"""All of a request but its messages, read: tools and their choice, how much to think, what the answer must look like."""

from __future__ import annotations

from typing import Any, Final, cast, get_args

from providers.dialects.base import Unexpressible
from providers.dialects.fields import Fields
from providers.dialects.messages.blocks_in import read_cache
from providers.dialects.messages.unknown import Found
from providers.dialects.refusing import refusing
from schemas.conversation import Effort, HostedTool, OutputFormat, Thinking, Tool, ToolChoice

EFFORTS: Final = frozenset(get_args(Effort)) - {"none", "minimal"}  # these two are OpenAI's
CHOICES: Final[dict[str, ToolChoice]] = {
    "auto": ToolChoice(mode="auto"),
    "any": ToolChoice(mode="required"),
    "none": ToolChoice(mode="none"),
}


def read_tools(body: Fields, found: Found) -> tuple[Tool | HostedTool, ...] | None:
    """Take `tools`; None if there is no list."""
    listed = body.list("tools")
    if listed is None:
        return None
    return tuple(_tool(value, f"tools.{n}", found.inside(f"tools.{n}")) for n, value in enumerate(listed))


def _tool(value: Any, path: str, found: Found) -> Tool | HostedTool:
    fields = Fields(value, path)
    if fields.take("type") not in (None, "custom"):  # a tuple, since it may be anything, a list too
        return HostedTool(dialect="messages", tool=value)
    with refusing(path):
        tool = Tool(
            name=fields.needed_text("name"),
            description=fields.text("description"),
            parameters=fields.object("input_schema"),
            strict=fields.flag("strict"),
            cache=read_cache(fields, found),
        )
    found.keep_rest(fields)
    return tool


def read_tool_choice(body: Fields, found: Found) -> tuple[ToolChoice | None, bool | None]:
    """Take `tool_choice`; return it, and whether calls may be parallel."""
    fields = body.fields("tool_choice")
    if fields is None:
        return None, None
    kind = fields.needed_text("type")
    if kind == "tool":
        choice = ToolChoice(mode="named", name=fields.needed_text("name"))
    elif kind in CHOICES:
        choice = CHOICES[kind]
    else:
        raise Unexpressible(fields.at("type"), f"{kind!r} is no choice here")
    alone = fields.flag("disable_parallel_tool_use")
    found.inside("tool_choice").keep_rest(fields)
    return choice, None if alone is None else not alone


def read_thinking_and_output(body: Fields, found: Found) -> tuple[Thinking | None, OutputFormat | None]:
    """Take `thinking`, `output_config`, and `output_format` as it was called before."""
    config = body.fields("output_config")
    said = _thinking(body, found)
    if config and config.has("effort"):
        effort = config.text("effort")
        if effort in EFFORTS:
            said["effort"] = effort
        else:
            found.inside("output_config").keep("effort", effort)
    output = _output(body, config, found)
    if config:
        found.inside("output_config").keep_rest(config)
    return (Thinking(**said) if said else None), output


def _thinking(body: Fields, found: Found) -> dict[str, Any]:
    """Return what `thinking` says, by the names of `Thinking`; as it stands it is unknown if it says anything else."""
    given = body.object("thinking")
    if given is None:
        return {}
    fields = Fields(given, "thinking")
    said: dict[str, Any] = {}
    kind = fields.needed_text("type")
    if kind == "enabled" and fields.has("budget_tokens"):
        said = {"budget_tokens": fields.integer("budget_tokens"), "summary": fields.text("display")}
    elif kind == "adaptive":
        said = {"is_adaptive": True, "summary": fields.text("display")}
    elif kind == "disabled":
        said = {"is_off": True}
    else:
        found.keep("thinking", given)
        return {}
    found.inside("thinking").keep_rest(fields)
    return said


def _output(body: Fields, config: Fields | None, found: Found) -> OutputFormat | None:
    formats = [owner.fields(name) for owner, name in ((config, "format"), (body, "output_format")) if owner]
    given = [fields for fields in formats if fields]
    if len(given) > 1:
        raise Unexpressible("output_format", "stands beside output_config.format")
    if not given:
        return None
    fields = given[0]
    kind = fields.needed_text("type")
    if kind != "json_schema":
        raise Unexpressible(fields.at("type"), f"{kind!r} is no format here")
    schema = fields.object("schema")
    if schema is None:
        raise Unexpressible(fields.at("schema"), "is missing")
    found.inside("output_config.format").keep_rest(fields)
    return OutputFormat(mode="json_schema", schema_=schema)


def read_stop(body: Fields) -> tuple[str, ...] | None:
    """Take `stop_sequences`."""
    listed = body.list("stop_sequences")
    if listed is None:
        return None
    for n, text in enumerate(listed):
        if not isinstance(text, str):
            raise Unexpressible(f"stop_sequences.{n}", "want a string")
    return tuple(cast("list[str]", listed))
