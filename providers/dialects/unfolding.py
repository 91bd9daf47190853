"""A whole answer taken apart again, as a stream would have brought it: the inverse of `folding`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from schemas.conversation import (
    Delta,
    Part,
    PartBegan,
    PartEnded,
    PartGrew,
    Reasoning,
    Refusal,
    Reply,
    ReplyBegan,
    ReplyEnded,
    Text,
    ToolUse,
)

Growth = tuple[Literal["text", "refusal", "arguments", "reasoning", "summary", "signature"], int, str]
"""What grows, which of several it is, and by what."""


def unfold(reply: Reply) -> Iterator[Delta]:
    """Yield the deltas of an answer; folded, they are the answer again."""
    yield ReplyBegan(id=reply.id, model=reply.model, created=reply.created)
    for index, part in enumerate(reply.parts):
        began, growths = _taken_apart(part)
        yield PartBegan(index=index, part=began)
        for field, nth, more in growths:
            if more:
                yield PartGrew(index=index, field=field, nth=nth, more=more)
        yield PartEnded(index=index, part=part)
    yield ReplyEnded(stop_reason=reply.stop_reason, stop_sequence=reply.stop_sequence, usage=reply.usage)


def _taken_apart(part: Part) -> tuple[Part, list[Growth]]:
    """Return how a part begins, and what is added to it."""
    match part:
        case Text():
            return part.model_copy(update={"text": ""}), [("text", 0, part.text)]
        case Refusal():
            return part.model_copy(update={"text": ""}), [("refusal", 0, part.text)]
        case ToolUse():
            return part.model_copy(update={"arguments": ""}), [("arguments", 0, part.arguments)]
        case Reasoning():
            growths: list[Growth] = []
            for n, text in enumerate(part.texts):
                growths.append(("reasoning", n, text))
            for n, text in enumerate(part.summaries):
                growths.append(("summary", n, text))
            if part.signature:
                growths.append(("signature", 0, part.signature))
            return part.model_copy(update={"texts": (), "summaries": (), "signature": None}), growths
        case _:
            return part, []
