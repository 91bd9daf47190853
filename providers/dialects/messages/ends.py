"""How an answer ended and what it cost, both ways.

Anthropic counts cached tokens beside `input_tokens`, a conversation within them.
"""

from __future__ import annotations

from typing import Any, Final

from providers.dialects.base import Unexpressible
from providers.dialects.counting import believed
from providers.dialects.fields import Fields
from providers.dialects.messages.unknown import Found
from schemas.conversation import StopReason, TokenUsage

READ: Final[dict[str, StopReason]] = {
    "end_turn": "stop",
    "stop_sequence": "stop_sequence",
    "tool_use": "tool_calls",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "refusal": "refusal",
    "pause_turn": "pause",
    "compaction": "pause",
}
WRITTEN: Final[dict[StopReason, str]] = {
    "stop": "end_turn",
    "stop_sequence": "stop_sequence",
    "tool_calls": "tool_use",
    "length": "max_tokens",
    "content_filter": "refusal",
    "refusal": "refusal",
    "pause": "pause_turn",
}


def read_stop_reason(value: str, path: str) -> StopReason:
    """Return why the answer ended."""
    if value not in READ:
        raise Unexpressible(path, f"{value!r} is not known here")
    return READ[value]


def read_usage(usage: Fields, found: Found) -> TokenUsage | None:
    """Return the tokens of one call, None if nobody can have counted so; `input_tokens` then counts cached ones too."""
    cached = usage.integer("cache_read_input_tokens") or 0
    cache_written = usage.integer("cache_creation_input_tokens") or 0
    own = usage.integer("input_tokens") or 0
    details = usage.fields("output_tokens_details")
    thought = (details.integer("thinking_tokens") or 0) if details else 0
    if details:
        found.inside("output_tokens_details").keep_rest(details)
    read = TokenUsage(
        input_tokens=own + cached + cache_written,
        output_tokens=usage.integer("output_tokens") or 0,
        cached_tokens=cached,
        cache_written_tokens=cache_written,
        reasoning_tokens=thought,
    )
    found.keep_rest(usage)
    return believed(read) if own >= 0 else None


def write_usage(usage: TokenUsage | None) -> dict[str, Any]:
    """Return Anthropic's counts; zeros if nothing is known, since its clients read them without asking."""
    known = usage or TokenUsage()
    written: dict[str, Any] = {
        "input_tokens": max(0, known.input_tokens - known.cached_tokens - known.cache_written_tokens),
        "cache_creation_input_tokens": known.cache_written_tokens,
        "cache_read_input_tokens": known.cached_tokens,
        "output_tokens": known.output_tokens,
    }
    if known.reasoning_tokens:
        written["output_tokens_details"] = {"thinking_tokens": known.reasoning_tokens}
    return written
