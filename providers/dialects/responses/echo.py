"""What an answer repeats of the request that it answers, as clients' libraries require it."""

from __future__ import annotations

from typing import Any, Final

from providers.dialects.responses.content_writing import Writing
from providers.dialects.responses.names import NAME
from providers.dialects.responses.request_writing import leading_words, write_settings
from schemas.conversation import Request

ECHOED_OTHERS: Final = frozenset(
    {
        "background",
        "max_tool_calls",
        "metadata",
        "previous_response_id",
        "prompt",
        "prompt_cache_key",
        "prompt_cache_options",
        "prompt_cache_retention",
        "safety_identifier",
        "store",
        "truncation",
        "user",
    }
)
ECHOED: Final = ECHOED_OTHERS | {
    "conversation",
    "instructions",
    "max_output_tokens",
    "parallel_tool_calls",
    "reasoning",
    "temperature",
    "text",
    "tool_choice",
    "tools",
    "top_logprobs",
    "top_p",
}
"""Fields of an answer that say nothing but what was asked."""


def echo(request: Request) -> dict[str, Any]:
    """Return the fields that repeat `request`; what it left open is null, or what the API takes it for."""
    writing = Writing(is_own=request.dialect == NAME)
    settings = write_settings(request, writing)
    text = settings.get("text", {})
    others = request.others if writing.is_own else {}
    instructions = leading_words(request)
    return {
        "instructions": None if instructions is None else instructions.text,
        "max_output_tokens": request.max_output_tokens,
        "metadata": {},
        "parallel_tool_calls": True if request.parallel_tool_calls is None else request.parallel_tool_calls,
        "previous_response_id": None,
        "reasoning": {"effort": None, "summary": None} | settings.get("reasoning", {}),
        "temperature": request.temperature,
        "text": {"format": {"type": "text"}} | text,
        "tool_choice": others.get("tool_choice", settings.get("tool_choice", "auto")),
        "tools": settings.get("tools", []),
        "top_p": request.top_p,
        "truncation": "disabled",
        **({} if request.top_logprobs is None else {"top_logprobs": request.top_logprobs}),
        **{name: others[name] for name in ECHOED_OTHERS & others.keys()},
    }
