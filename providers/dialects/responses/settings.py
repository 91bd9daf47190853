"""How an answer is to be: its format and length of speech (`text`), how much is thought (`reasoning`); both ways."""

from __future__ import annotations

from typing import Any, Final, Literal, get_args

from providers.dialects.base import Unexpressible
from providers.dialects.fields import Fields
from providers.dialects.responses.names import Notes, note_rest, take_known
from schemas.conversation import Effort, OutputFormat, Thinking

Verbosity = Literal["low", "medium", "high"]

VERBOSITIES: Final[dict[str, Verbosity]] = {word: word for word in get_args(Verbosity)}
EFFORTS: Final[dict[str, Effort]] = {word: word for word in get_args(Effort)}

LOGPROBS: Final = "message.output_text.logprobs"
"""What a client includes to be told log probabilities."""


def read_text(fields: Fields | None, notes: Notes) -> tuple[OutputFormat | None, Verbosity | None]:
    """Return the format and the verbosity that a request's `text` asks for."""
    if fields is None:
        return None, None
    output, verbosity = _format(fields, notes), take_known(fields, "verbosity", VERBOSITIES, notes)
    note_rest(fields, notes)
    return output, verbosity


def _format(fields: Fields, notes: Notes) -> OutputFormat | None:
    raw = fields.object("format")
    if raw is None:
        return None
    format_ = Fields(raw, fields.at("format"))
    match format_.needed_text("type"):
        case "text":
            output = OutputFormat(mode="text")
        case "json_object":
            output = OutputFormat(mode="json_object")
        case "json_schema":
            output = _schema(format_)
        case _:
            notes[fields.at("format")] = raw
            return None
    note_rest(format_, notes)
    return output


def _schema(format_: Fields) -> OutputFormat:
    schema = format_.object("schema")
    if schema is None:
        raise Unexpressible(format_.at("schema"), "is missing")
    return OutputFormat(
        mode="json_schema",
        name=format_.needed_text("name"),
        description=format_.text("description"),
        schema_=schema,
        strict=format_.flag("strict"),
    )


def read_reasoning(fields: Fields | None, notes: Notes) -> Thinking | None:
    """Return how much a request's `reasoning` asks to think."""
    if fields is None:
        return None
    thinking = Thinking(effort=take_known(fields, "effort", EFFORTS, notes), summary=fields.text("summary"))
    note_rest(fields, notes)
    return thinking


def write_text(output: OutputFormat | None, verbosity: Verbosity | None) -> dict[str, Any]:
    """Return the `text` that asks for this format and verbosity, empty if for neither."""
    text: dict[str, Any] = {}
    if output is not None:
        text["format"] = _written_format(output)
    if verbosity is not None:
        text["verbosity"] = verbosity
    return text


def _written_format(output: OutputFormat) -> dict[str, Any]:
    if output.mode != "json_schema":
        return {"type": output.mode}
    if output.name is None or output.schema_ is None:
        raise Unexpressible("output.name" if output.name is None else "output.schema", "the Responses API wants one")
    format_ = {"type": "json_schema", "name": output.name, "schema": output.schema_}
    extra = {"description": output.description, "strict": output.strict}
    return format_ | {name: value for name, value in extra.items() if value is not None}


def write_reasoning(thinking: Thinking, dropped: list[str]) -> dict[str, Any]:
    """Return the `reasoning` that asks for this much thought; raises `Unexpressible` for a budget of tokens."""
    if thinking.budget_tokens is not None:
        raise Unexpressible("thinking.budget_tokens", "the Responses API knows efforts, no budget of tokens")
    if thinking.is_off and thinking.effort not in {None, "none"}:
        raise Unexpressible("thinking.effort", "the Responses API has no effort other than none without thinking")
    if thinking.is_adaptive:
        dropped.append("thinking.is_adaptive")
    said = {"effort": "none" if thinking.is_off else thinking.effort, "summary": thinking.summary}
    return {name: value for name, value in said.items() if value is not None}
