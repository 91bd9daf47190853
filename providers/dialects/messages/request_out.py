"""A request written."""

from __future__ import annotations

from typing import Any, Final

from providers.dialects.base import Unexpressible, Written
from providers.dialects.messages.options_out import (
    refuse_sampling,
    write_output_config,
    write_thinking,
    write_tool_choice,
    write_tools,
)
from providers.dialects.messages.turns_out import write_turns
from providers.dialects.messages.unknown import Unplaced
from providers.dialects.messages.writing import Writing
from providers.dialects.neutral import changes_no_answer
from providers.dialects.pairs import check_pairs
from schemas.conversation import Request

MAX_TOKENS: Final = 32_000


def write_request(request: Request) -> Written:
    """Return the body to send; raises `Unexpressible` for what this dialect cannot say, and for calls without results.

    `max_tokens` is 32000 where the client named no bound, because the API demands one.
    """
    check_pairs(request)
    is_own = request.dialect == "messages"
    writing = Writing(is_own, Unplaced(request.others if is_own else {}))
    if not is_own:
        _leave_out(request.others, writing)
    refuse_sampling(request, writing)
    body: dict[str, Any] = {"model": request.model}
    body |= write_turns(request.turns, writing)
    optional = {
        "tools": write_tools(request, writing),
        "tool_choice": write_tool_choice(request, writing),
        "thinking": write_thinking(request.thinking, writing) if request.thinking else None,
        "output_config": write_output_config(request, writing) or None,
        "temperature": request.temperature,
        "top_p": request.top_p,
        "top_k": request.top_k,
        "stop_sequences": None if request.stop is None else list(request.stop),
        "stream": request.is_streamed or None,
    }
    body["max_tokens"] = MAX_TOKENS if request.max_output_tokens is None else request.max_output_tokens
    body |= {name: value for name, value in optional.items() if value is not None}
    if "thinking" in body:
        writing.unknown.onto(body["thinking"], "thinking")
    writing.unknown.onto(body, "")
    return Written(body | writing.unknown.rest(), tuple(writing.dropped))


def _leave_out(others: dict[str, Any], writing: Writing) -> None:
    """Note another dialect's fields as dropped; raises `Unexpressible` for one that might change the answer."""
    for name, value in others.items():
        if not changes_no_answer(name, value):
            raise Unexpressible(name, "is not known to Anthropic Messages, and might change the answer")
        writing.dropped.append(name)
