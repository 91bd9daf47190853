"""A client's request, read."""

from __future__ import annotations

from typing import Any, Final

from providers.dialects.base import Unexpressible
from providers.dialects.chat.messages_reading import read_messages
from providers.dialects.chat.settings import read_settings
from providers.dialects.chat.tools import read_choice, read_tools
from providers.dialects.chat.unknown import Unknown
from providers.dialects.fields import Fields
from schemas.conversation import Request

OLD_FIELDS: Final = {
    "functions": "is the older way of offering tools: use tools",
    "function_call": "is the older way of choosing a tool: use tool_choice",
}


def read_request(body: dict[str, Any]) -> Request:
    """Return what a client asks; fields that nobody here knows are in `others`, by their paths."""
    fields = Fields(body)
    unknown = Unknown()
    for name, reason in OLD_FIELDS.items():
        if fields.has(name):
            raise Unexpressible(name, reason)
    if fields.integer("n") not in (None, 1):
        raise Unexpressible("n", "only one answer to a request can be given: ask again for another")
    model = fields.needed_text("model")
    turns = read_messages(fields, unknown)
    tools = read_tools(fields, unknown)
    choice = read_choice(fields, unknown)
    parallel = fields.flag("parallel_tool_calls")
    settings = read_settings(fields, unknown)
    unknown.keep(fields)
    return Request(
        dialect="chat",
        model=model,
        turns=turns,
        tools=tools,
        tool_choice=choice,
        parallel_tool_calls=parallel,
        others=unknown.fields,
        **settings,
    )
