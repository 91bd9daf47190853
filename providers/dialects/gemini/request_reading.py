"""A client's request, read."""

from __future__ import annotations

from typing import Any

from providers.dialects.base import Unexpressible
from providers.dialects.gemini.names import inner, keep, object_at
from providers.dialects.gemini.settings_reading import read_settings
from providers.dialects.gemini.tools_reading import read_choice, read_tools
from providers.dialects.gemini.turns_reading import read_turns
from providers.dialects.refusing import refusing
from schemas.conversation import Request


def read_request(body: dict[str, Any]) -> Request:
    """Return what a client asks; what nobody here knows is in `others`, by its path in the body.

    `model` and `stream` are what the request's address says. Who streams is always told the tokens.
    """
    fields, others = object_at(body, ""), dict[str, Any]()
    with refusing():
        model, is_streamed = fields.needed_text("model"), fields.flag("stream") or False
        turns = read_turns(fields, others)
        if not turns:
            raise Unexpressible("contents", "is missing")
        tools = read_tools(fields, others)
        settings = read_settings(inner(fields, "generationConfig"), others)
        choice = read_choice(fields, tools, others)
        keep(fields, others)
        return Request(
            dialect="gemini",
            model=model.removeprefix("models/"),
            turns=turns,
            tools=tools,
            tool_choice=choice,
            is_streamed=is_streamed,
            wants_usage=is_streamed,
            others=others,
            **settings,
        )
