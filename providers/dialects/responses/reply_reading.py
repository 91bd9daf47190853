"""Reads an answer: what the model said, thought and called, how it ended, what it cost."""

from __future__ import annotations

from typing import Any, Final

from providers.dialects.call_ids import check_call_ids
from providers.dialects.fields import Fields, as_object, escaped, where
from providers.dialects.responses.echo import ECHOED
from providers.dialects.responses.items_reading import read_item
from providers.dialects.responses.names import NAME, Notes
from providers.dialects.responses.numbers import read_logprobs, read_usage
from providers.dialects.responses.outcomes import read_outcome
from schemas.conversation import Hosted, Part, Reply, TokenLogprob

SPOKEN: Final = frozenset({"message", "reasoning", "function_call", "custom_tool_call"})
"""The items that a model answers with; others, results among them, come from the provider's own tools."""

Spoken = tuple[Part, tuple[TokenLogprob, ...]]
"""A part of an answer, and the log probabilities of its words."""


def read_reply(body: dict[str, Any]) -> Reply:
    """Return what a backend answered; raises `Malformed` or, for a field of a wrong type, `Unexpressible`."""
    response, notes = Fields(body), Notes()
    spoken = [
        each
        for n, raw in enumerate(response.list("output") or ())
        for each in read_output_item(raw, where("output", n), notes)
    ]
    parts = tuple(part for part, _ in spoken)
    check_call_ids(parts)
    return Reply(
        dialect=NAME,
        id=response.needed_text("id"),
        model=response.needed_text("model"),
        parts=parts,
        stop_reason=read_outcome(response, parts),
        usage=read_usage(response.fields("usage"), notes),
        logprobs=tuple(token for _, logprobs in spoken for token in logprobs) or None,
        created=read_created(response),
        others={escaped(name): value for name, value in response.rest().items() if name not in {"object", *ECHOED}}
        | notes,
    )


def read_output_item(raw: Any, path: str, notes: Notes) -> tuple[Spoken, ...]:
    """Return the parts of an answer that one item holds: a message may hold several, or none."""
    item = as_object(raw, path)
    if Fields(item, path).text("type") not in SPOKEN:
        return ((Hosted(dialect=NAME, item=item), ()),)
    parts = read_item(item, path, notes).parts
    if item["type"] != "message" or not isinstance(item["content"], list) or len(parts) != len(item["content"]):
        return tuple((part, ()) for part in parts)
    contents = [Fields(content, f"{path}.content.{n}") for n, content in enumerate(item["content"])]
    return tuple((part, read_logprobs(content)) for part, content in zip(parts, contents, strict=True))


def read_created(response: Fields) -> int | None:
    """Take the time of an answer in whole seconds; zero stands where it is unknown."""
    return int(response.number("created_at") or 0) or None
