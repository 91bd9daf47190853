"""Why an answer ended, what it cost and how likely its tokens were, as Gemini tells it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from providers.dialects.base import Unexpressible
from schemas.conversation import StopReason, TokenLogprob, TokenUsage

WRITTEN: Final[dict[StopReason, str]] = {
    "stop": "STOP",
    "stop_sequence": "STOP",
    "tool_calls": "STOP",
    "length": "MAX_TOKENS",
    "content_filter": "SAFETY",
    "refusal": "SAFETY",
}


def write_stop(reason: StopReason) -> str:
    """Return the `finishReason`; raises `Unexpressible` for a pause."""
    if reason not in WRITTEN:
        raise Unexpressible(
            "finishReason", "an answer that waits to be continued cannot be told from one that is whole"
        )
    return WRITTEN[reason]


def write_usage(usage: TokenUsage | None) -> dict[str, Any]:
    """Return `usageMetadata` in an object of its own; thoughts are counted beside the answer there. Nothing if nothing is known."""
    if usage is None:
        return {}
    thoughts = min(usage.reasoning_tokens, usage.output_tokens)
    counts = {
        "promptTokenCount": usage.input_tokens,
        "candidatesTokenCount": usage.output_tokens - thoughts,
        "totalTokenCount": usage.input_tokens + usage.output_tokens,
    }
    if usage.cached_tokens:
        counts["cachedContentTokenCount"] = usage.cached_tokens
    if thoughts:
        counts["thoughtsTokenCount"] = thoughts
    return {"usageMetadata": counts}


def write_logprobs(logprobs: Sequence[TokenLogprob]) -> dict[str, Any]:
    """Return `logprobsResult` in an object of its own, nothing if there are none."""
    if not logprobs:
        return {}
    chosen = [{"token": one.token, "logProbability": one.logprob} for one in logprobs]
    top = [{"candidates": [{"token": t, "logProbability": p} for t, p in one.top]} for one in logprobs]
    return {"logprobsResult": {"chosenCandidates": chosen, "topCandidates": top}}
