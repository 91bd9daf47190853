"""How an answer is to be made, there and back: sampling, limits, stop words, the answer's form, thinking and streaming."""

from __future__ import annotations

from typing import Any, Final, Literal, get_args

from providers.dialects.base import Unexpressible
from providers.dialects.chat.parts import Writing
from providers.dialects.chat.unknown import Unknown, finite, needed_fields, one_of
from providers.dialects.fields import Fields
from schemas.conversation import Effort, OutputFormat, Request, Thinking

EFFORTS: Final[tuple[Effort, ...]] = get_args(Effort)
FORMATS: Final[tuple[Literal["text", "json_object", "json_schema"], ...]] = ("text", "json_object", "json_schema")
VERBOSITIES: Final[tuple[Literal["low", "medium", "high"], ...]] = ("low", "medium", "high")
# Here a schema must have a name; where it comes from a dialect without any, this one changes no answer's form.
NAMELESS: Final = "output"
# Named alike in a request and in a body.
NUMBERS: Final = ("temperature", "top_p", "presence_penalty", "frequency_penalty")
WHOLE_NUMBERS: Final = ("top_k", "seed", "top_logprobs")


def read_settings(fields: Fields, unknown: Unknown) -> dict[str, Any]:
    """Take all settings; return them by their names in `Request`."""
    streamed = fields.flag("stream")
    return {
        **{name: finite(fields, name) for name in NUMBERS},
        **{name: fields.integer(name) for name in WHOLE_NUMBERS},
        "logprobs": fields.flag("logprobs"),
        "max_output_tokens": _read_limit(fields),
        "stop": _read_stop(fields),
        "verbosity": one_of(fields, "verbosity", VERBOSITIES),
        "output": _read_output(fields, unknown),
        "thinking": _read_thinking(fields, unknown),
        "is_streamed": bool(streamed),
        "wants_usage": _read_stream_options(fields, unknown),
    }


def write_settings(request: Request, writing: Writing, limit_field: str) -> dict[str, Any]:
    """Return the body's fields that hold settings."""
    written = {
        **{name: getattr(request, name) for name in (*NUMBERS, *WHOLE_NUMBERS)},
        "logprobs": request.logprobs,
        limit_field: request.max_output_tokens,
        "stop": None if request.stop is None else list(request.stop),
        "verbosity": request.verbosity,
        "response_format": None if request.output is None else _write_output(request.output, writing),
        **_write_thinking(request.thinking or Thinking(), writing),
        **_write_streaming(request, writing),
    }
    return {name: value for name, value in written.items() if value is not None}


# -- limits and stop words ----------------------------------------------------------------------------------------------------


def _read_limit(fields: Fields) -> int | None:
    old, new = fields.integer("max_tokens"), fields.integer("max_completion_tokens")
    if old is not None and new is not None and old != new:
        raise Unexpressible(fields.at("max_tokens"), f"says {old}, but max_completion_tokens says {new}")
    return old if new is None else new


def _read_stop(fields: Fields) -> tuple[str, ...] | None:
    value = fields.take("stop")
    match value:
        case None:
            return None
        case str():
            return (value,)
        case list() if all(isinstance(word, str) for word in value):
            return tuple(value)
        case _:
            raise Unexpressible(fields.at("stop"), "want a string or a list of strings")


# -- the answer's form --------------------------------------------------------------------------------------------------------


def _read_output(fields: Fields, unknown: Unknown) -> OutputFormat | None:
    """Take `response_format`; a type that only some backend knows (a grammar) is unknown."""
    value = fields.object("response_format")
    if value is None:
        return None
    inner = Fields(value, fields.at("response_format"))
    type_ = inner.needed_text("type")
    if type_ not in FORMATS:
        unknown.keep_value(fields, "response_format", value)
        return None
    read = OutputFormat(mode=type_)
    if type_ == "json_schema":
        schema = needed_fields(inner, "json_schema")
        read = OutputFormat(
            mode="json_schema",
            name=schema.text("name"),
            description=schema.text("description"),
            schema_=schema.object("schema"),
            strict=schema.flag("strict"),
        )
        unknown.keep(schema)
    unknown.keep(inner)
    return read


def _write_output(output: OutputFormat, writing: Writing) -> dict[str, Any]:
    if output.mode != "json_schema":
        return {"type": output.mode}
    schema = {
        "name": output.name if output.name is not None or writing.is_own else NAMELESS,
        "description": output.description,
        "schema": output.schema_,
        "strict": output.strict,
    }
    return {"type": output.mode, output.mode: {name: value for name, value in schema.items() if value is not None}}


# -- thinking -----------------------------------------------------------------------------------------------------------------


def _read_thinking(fields: Fields, unknown: Unknown) -> Thinking | None:
    """Take `reasoning_effort`, and `thinking` as DeepSeek and litellm have it."""
    effort = one_of(fields, "reasoning_effort", EFFORTS)
    match fields.take("thinking"):
        case None:
            return None if effort is None else Thinking(effort=effort)
        case {"type": "disabled", **others} if not others:
            return Thinking(effort=effort, is_off=True)
        case {"type": "adaptive", **others} if not others:
            return Thinking(effort=effort, is_adaptive=True)
        case {"type": "enabled", "budget_tokens": int(budget), **others} if not others and not isinstance(budget, bool):
            return Thinking(effort=effort, budget_tokens=budget)
        case other:
            unknown.keep_value(fields, "thinking", other)
            return None if effort is None else Thinking(effort=effort)


def _write_thinking(thinking: Thinking, writing: Writing) -> dict[str, Any]:
    """Return the fields about thinking; that a model thinks as it sees fit is what it does when nothing is said."""
    writing.drop("thinking.summary", thinking.summary)
    written: dict[str, Any] = {"reasoning_effort": thinking.effort}
    if thinking.is_off:
        written["thinking"] = {"type": "disabled"}
    elif thinking.budget_tokens is not None:
        written["thinking"] = {"type": "enabled", "budget_tokens": thinking.budget_tokens}
    elif thinking.is_adaptive and writing.is_own:
        written["thinking"] = {"type": "adaptive"}
    elif thinking.is_adaptive:
        writing.drop("thinking.type", "adaptive")
    return written


# -- streaming ----------------------------------------------------------------------------------------------------------------


def _read_stream_options(fields: Fields, unknown: Unknown) -> bool:
    options = fields.fields("stream_options")
    if options is None:
        return False
    wants_usage = options.flag("include_usage")
    if others := options.rest():
        unknown.keep_value(fields, "stream_options", others)
    return bool(wants_usage)


def _write_streaming(request: Request, writing: Writing) -> dict[str, Any]:
    """Return the fields about streaming; other dialects tell the usage at the end of every stream, so it is asked for."""
    options = request.others.get("stream_options") if writing.is_own else None
    wants_usage = request.wants_usage or (request.is_streamed and not writing.is_own)
    asked = {**(options or {}), **({"include_usage": True} if wants_usage else {})}
    return {"stream": request.is_streamed or None, "stream_options": asked or None}
