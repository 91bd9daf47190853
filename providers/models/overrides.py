"""Sampling parameters that the configuration insists on, in the words of the backend's dialect."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from schemas.config import SamplingName
from schemas.conversation import DialectName

LIMITS: Final[Mapping[DialectName, tuple[str, ...]]] = {
    "chat": ("max_tokens", "max_completion_tokens"),
    "responses": ("max_output_tokens",),
    "messages": ("max_tokens",),
}
"""What bounds an answer is called, the first if nothing else is said; only one of them may stand in a body."""


def overridden(
    body: Mapping[str, Any], overrides: Mapping[SamplingName, Any], dialect: DialectName, limit_field: str | None = None
) -> dict[str, Any]:
    """Return `body` with `overrides` in place of what it says; None takes a parameter out."""
    result = dict(body)
    for name, value in overrides.items():
        written: str = name
        if name == "max_output_tokens":
            written = limit_field or LIMITS[dialect][0]
            for other in LIMITS[dialect]:
                result.pop(other, None)
        elif name == "stop" and dialect == "messages":
            written = "stop_sequences"
        if value is None:
            result.pop(written, None)
        else:
            result[written] = _as_list(value) if name == "stop" else value
    return result


def _as_list(words: str | list[str]) -> list[str]:
    return [words] if isinstance(words, str) else list(words)
