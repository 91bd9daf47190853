"""Counts of tokens that a backend gives: one that nobody can have counted makes all that it says of them worthless."""

from __future__ import annotations

from typing import Final

from schemas.conversation import TokenUsage

COUNT_MAX: Final = 2**53


def believed(usage: TokenUsage) -> TokenUsage | None:
    """Return what a call cost; None, as if nothing was said, where a count is negative or beyond 2^53."""
    counts = (
        usage.input_tokens,
        usage.output_tokens,
        usage.cached_tokens,
        usage.cache_written_tokens,
        usage.reasoning_tokens,
    )
    return usage if all(0 <= count <= COUNT_MAX for count in counts) else None
