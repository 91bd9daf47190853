"""A request read, for an answer or for a count of its tokens."""

from __future__ import annotations

from typing import Any

from providers.dialects.fields import Fields
from providers.dialects.messages.options_in import (
    read_stop,
    read_thinking_and_output,
    read_tool_choice,
    read_tools,
)
from providers.dialects.messages.turns_in import read_turns
from providers.dialects.messages.unknown import Found
from providers.dialects.refusing import refusing
from schemas.conversation import Request


def read_request(body: dict[str, Any]) -> Request:
    """Return what a client asks; raises `Unexpressible` for what is no request of this dialect.

    Fields that are unknown go to `others`: those of the body by name, those further inside by their path in the conversation
    (`providers.dialects.messages.unknown`). Who streams in this dialect is always told the tokens, so `wants_usage` is true then.
    """
    fields, found = Fields(body), Found()
    with refusing():
        turns = read_turns(fields, found)
        tools = read_tools(fields, found)
        choice, is_parallel = read_tool_choice(fields, found)
        thinking, output = read_thinking_and_output(fields, found)
        is_streamed = fields.flag("stream") or False
        return Request(
            dialect="messages",
            model=fields.needed_text("model"),
            turns=turns,
            tools=tools,
            tool_choice=choice,
            parallel_tool_calls=is_parallel,
            max_output_tokens=fields.integer("max_tokens"),
            temperature=fields.number("temperature"),
            top_p=fields.number("top_p"),
            top_k=fields.integer("top_k"),
            stop=read_stop(fields),
            output=output,
            thinking=thinking,
            is_streamed=is_streamed,
            wants_usage=is_streamed,
            others=found.with_rest(fields),
        )
