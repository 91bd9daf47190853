"""What an answer cost and how likely its tokens were, there and back."""

from __future__ import annotations

from typing import Any

from providers.dialects.base import Unexpressible
from providers.dialects.chat.unknown import Unknown
from providers.dialects.counting import believed
from providers.dialects.fields import Fields, as_object
from schemas.conversation import TokenLogprob, TokenUsage


def read_usage(fields: Fields, unknown: Unknown) -> TokenUsage | None:
    """Return the tokens of a call, None if nobody can have counted so; the sum is unknown where it is none of the two numbers."""
    prompt = fields.integer("prompt_tokens") or 0
    completion = fields.integer("completion_tokens") or 0
    total = fields.integer("total_tokens")
    if total is not None and total != prompt + completion:
        unknown.keep_value(fields, "total_tokens", total)
    hits = fields.integer("prompt_cache_hit_tokens")  # DeepSeek's name
    of_prompt = fields.fields("prompt_tokens_details") or Fields({})
    of_completion = fields.fields("completion_tokens_details") or Fields({})
    cached = of_prompt.integer("cached_tokens")
    created = of_prompt.integer("cache_creation_tokens")  # litellm's name
    written = of_prompt.integer("cache_write_tokens")
    usage = TokenUsage(
        input_tokens=prompt,
        output_tokens=completion,
        cached_tokens=(hits if cached is None else cached) or 0,
        cache_written_tokens=(created if written is None else written) or 0,
        reasoning_tokens=of_completion.integer("reasoning_tokens") or 0,
    )
    for one in (of_prompt, of_completion, fields):
        unknown.keep(one)
    return believed(usage)


def write_usage(usage: TokenUsage) -> dict[str, Any]:
    """Return `usage` with its details."""
    of_prompt = {"cached_tokens": usage.cached_tokens}
    if usage.cache_written_tokens:
        of_prompt["cache_write_tokens"] = usage.cache_written_tokens
    return {
        "prompt_tokens": usage.input_tokens,
        "completion_tokens": usage.output_tokens,
        "total_tokens": usage.input_tokens + usage.output_tokens,
        "prompt_tokens_details": of_prompt,
        "completion_tokens_details": {"reasoning_tokens": usage.reasoning_tokens},
    }


def read_logprobs(choice: Fields) -> tuple[TokenLogprob, ...]:
    """Take a choice's `logprobs`, those of its words before those of a refusal; none if there are none."""
    fields = choice.fields("logprobs")
    if fields is None:
        return ()
    read: list[TokenLogprob] = []
    for name in ("content", "refusal"):
        for n, token in enumerate(fields.list(name) or ()):
            text, logprob, top = _token(token, f"{fields.at(name)}.{n}")
            likeliest = [_token(one, f"{fields.at(name)}.{n}.top_logprobs")[:2] for one in top]
            read.append(TokenLogprob(token=text, logprob=logprob, top=tuple(likeliest)))
    return tuple(read)


def _token(value: Any, path: str) -> tuple[str, Any, list[Any]]:
    """Return a token, its logarithmic probability and what else was likely; by hand, for an answer has very many."""
    fields = as_object(value, path)
    token, logprob, top = fields.get("token"), fields.get("logprob"), fields.get("top_logprobs") or []
    is_number = isinstance(logprob, int | float) and not isinstance(logprob, bool)
    if isinstance(token, str) and is_number and isinstance(top, list):
        return token, logprob, top
    raise Unexpressible(path, "want a token with its logprob")


def write_logprobs(tokens: tuple[TokenLogprob, ...], *, are_of_refusal: bool = False) -> dict[str, Any]:
    """Return `logprobs`; the bytes of a token are left open, for a token may be less than a character."""
    written = [
        {
            "token": one.token,
            "bytes": None,
            "logprob": one.logprob,
            "top_logprobs": [{"token": token, "bytes": None, "logprob": logprob} for token, logprob in one.top],
        }
        for one in tokens
    ]
    return {"content": None, "refusal": written} if are_of_refusal else {"content": written, "refusal": None}
