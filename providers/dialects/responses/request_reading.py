"""Reads a request: who said what, which tools there are, how the answer is to be."""

from __future__ import annotations

from typing import Any

from providers.dialects.base import Unexpressible
from providers.dialects.fields import Fields, as_object, escaped, where
from providers.dialects.responses.items_reading import Item, read_item
from providers.dialects.responses.names import NAME, Notes
from providers.dialects.responses.settings import LOGPROBS, read_reasoning, read_text
from providers.dialects.responses.tools_reading import read_tool_choice, read_tools
from providers.dialects.responses.turns import cut_turns
from schemas.conversation import Request, Text, Turn


def read_request(body: dict[str, Any]) -> Request:
    """Return what a client asks; raises `Unexpressible` for what is no request of this dialect.

    What is not known here is in `others`: fields of the request by their names, fields deeper down by their paths.
    """
    fields, notes = Fields(body), Notes()
    model, turns = fields.needed_text("model"), _turns(fields, notes)
    tools, choice = fields.list("tools"), read_tool_choice(fields.take("tool_choice"), notes)
    output, verbosity = read_text(fields.fields("text"), notes)
    is_streamed = bool(fields.flag("stream"))
    return Request(
        dialect=NAME,
        model=model,
        turns=turns,
        tools=None if tools is None else read_tools(tools, notes),
        tool_choice=choice,
        parallel_tool_calls=fields.flag("parallel_tool_calls"),
        max_output_tokens=fields.integer("max_output_tokens"),
        temperature=fields.number("temperature"),
        top_p=fields.number("top_p"),
        logprobs=_logprobs(fields, notes),
        top_logprobs=fields.integer("top_logprobs"),
        output=output,
        verbosity=verbosity,
        thinking=read_reasoning(fields.fields("reasoning"), notes),
        is_streamed=is_streamed,
        wants_usage=is_streamed,  # a streamed answer ends with its usage, whether it was asked for or not
        others=_others(fields, notes),
    )


def _turns(fields: Fields, notes: Notes) -> tuple[Turn, ...]:
    instructions, said = fields.text("instructions"), fields.take("input")
    first = () if instructions is None else (Turn(role="system", parts=(Text(text=instructions),), is_plain=True),)
    match said:
        case None:
            return first
        case str():
            return (*first, Turn(role="user", parts=(Text(text=said),), is_plain=True))
        case list():
            return (*first, *cut_turns([_item(raw, where("input", n), notes) for n, raw in enumerate(said)]))
        case _:
            raise Unexpressible("input", "want a string or a list")


def _item(raw: Any, path: str, notes: Notes) -> Item:
    return read_item(as_object(raw, path), path, notes)


def _logprobs(fields: Fields, notes: Notes) -> bool | None:
    """Return whether log probabilities are to be told; what else is to be included stays with the unknown."""
    include = fields.list("include")
    if include is None:
        return None
    rest = [each for each in include if each != LOGPROBS]
    if rest or not include:
        notes["include"] = rest
    return True if len(rest) < len(include) else None


def _others(fields: Fields, notes: Notes) -> dict[str, Any]:
    return {escaped(name): value for name, value in fields.rest().items()} | notes
