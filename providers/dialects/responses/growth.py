"""How a part grows: from what is known of it at first, by the pieces that make it whole."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from schemas.conversation import Part, PartGrew, Reasoning, Refusal, Text, TokenLogprob, ToolUse

GrowingField = Literal["text", "refusal", "arguments", "reasoning", "summary", "signature", "encrypted"]
Key = tuple[GrowingField, int]
"""What of a part grows, and which of them if there may be several."""


def bare(part: Part) -> Part:
    """Return a part as it is before any of its words have come."""
    match part:
        case Text() | Refusal():
            return part.model_copy(update={"text": ""})
        case ToolUse():
            return part.model_copy(update={"arguments": ""})
        case Reasoning():
            return Reasoning(id=part.id)
        case _:
            return part


def words(part: Part) -> dict[Key, str]:
    """Return all that can grow of a part, in the order in which it is told."""
    match part:
        case Text():
            return {("text", 0): part.text}
        case Refusal():
            return {("refusal", 0): part.text}
        case ToolUse():
            return {("arguments", 0): part.arguments}
        case Reasoning():
            texts: dict[Key, str] = {("reasoning", n): text for n, text in enumerate(part.texts)}
            return {**{("summary", n): text for n, text in enumerate(part.summaries)}, **texts}
        case _:
            return {}


def growth(index: int, part: Part, logprobs: tuple[TokenLogprob, ...]) -> Iterator[PartGrew]:
    """Yield what makes a bare part whole, each of its words in one piece."""
    for (field, nth), more in words(part).items():
        if more or logprobs:
            yield PartGrew(index=index, field=field, more=more, nth=nth, logprobs=logprobs)
