"""Tokens that were counted and their log probabilities; both ways where they are told in an answer."""

from __future__ import annotations

import math
from typing import Any

from providers.dialects.base import Unexpressible
from providers.dialects.counting import believed
from providers.dialects.fields import Fields
from providers.dialects.responses.names import Notes, note_rest
from schemas.conversation import TokenLogprob, TokenUsage


def read_usage(fields: Fields | None, notes: Notes) -> TokenUsage | None:
    """Return the tokens of one call, None if nobody said, or can have counted so."""
    if fields is None:
        return None
    read, written = fields.fields("input_tokens_details"), fields.fields("output_tokens_details")
    usage = TokenUsage(
        input_tokens=fields.integer("input_tokens") or 0,
        output_tokens=fields.integer("output_tokens") or 0,
        cached_tokens=_detail(read, "cached_tokens"),
        cache_written_tokens=_detail(read, "cache_write_tokens"),
        reasoning_tokens=_detail(written, "reasoning_tokens"),
    )
    fields.take("total_tokens")  # the sum of two that are known
    for each in (read, written, fields):
        if each is not None:
            note_rest(each, notes)
    return believed(usage)


def _detail(fields: Fields | None, name: str) -> int:
    return 0 if fields is None else fields.integer(name) or 0


def write_usage(usage: TokenUsage | None) -> dict[str, Any] | None:
    """Return the tokens of one call, if they are known."""
    if usage is None:
        return None
    return {
        "input_tokens": usage.input_tokens,
        "input_tokens_details": {
            "cached_tokens": usage.cached_tokens,
            "cache_write_tokens": usage.cache_written_tokens,
        },
        "output_tokens": usage.output_tokens,
        "output_tokens_details": {"reasoning_tokens": usage.reasoning_tokens},
        "total_tokens": usage.input_tokens + usage.output_tokens,
    }


def read_logprobs(fields: Fields) -> tuple[TokenLogprob, ...]:
    """Take the `logprobs` of some words; the likeliest tokens without a number say nothing."""
    return tuple(
        TokenLogprob(
            token=each.needed_text("token"),
            logprob=_logprob(each),
            top=tuple((top.needed_text("token"), _logprob(top)) for top in each.each("top_logprobs")),
        )
        for each in fields.each("logprobs")
    )


def _logprob(fields: Fields) -> float:
    value = fields.number("logprob")
    if value is None or not math.isfinite(value):
        raise Unexpressible(fields.at("logprob"), "want a finite number")
    return value
