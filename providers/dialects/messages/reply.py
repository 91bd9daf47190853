"""A whole answer, read and written."""

from __future__ import annotations

from typing import Any

from providers.dialects.base import Unexpressible
from providers.dialects.call_ids import check_call_ids
from providers.dialects.cutting import without_cut_call
from providers.dialects.fields import Fields
from providers.dialects.messages.blocks_in import read_block
from providers.dialects.messages.blocks_out import write_block
from providers.dialects.messages.ends import WRITTEN, read_stop_reason, read_usage, write_usage
from providers.dialects.messages.failures import reading_answer
from providers.dialects.messages.unknown import Found, Unplaced
from providers.dialects.messages.writing import Writing
from schemas.conversation import Part, Refusal, Reply, ToolResult


def read_reply(body: dict[str, Any]) -> Reply:
    """Return what a backend answered; unknown fields go to `others` as those of a request do. Raises `Malformed`."""
    with reading_answer():
        fields, found = Fields(body), Found()
        for name, only in (("type", "message"), ("role", "assistant")):
            if (value := fields.text(name)) not in {None, only}:
                raise Unexpressible(name, f"want {only!r}, found {value!r}")
        usage = fields.fields("usage")
        return Reply(
            dialect="messages",
            id=fields.needed_text("id"),
            model=fields.needed_text("model"),
            parts=_parts(fields, found),
            stop_reason=read_stop_reason(fields.needed_text("stop_reason"), "stop_reason"),
            stop_sequence=fields.text("stop_sequence"),
            usage=read_usage(usage, found.inside("usage")) if usage else None,
            others=found.with_rest(fields),
        )


def _parts(fields: Fields, found: Found) -> tuple[Part, ...]:
    content = fields.list("content")
    if content is None:
        raise Unexpressible("content", "is missing")
    parts = tuple(read_block(value, f"content.{n}", found.inside(f"parts.{n}")) for n, value in enumerate(content))
    for n, part in enumerate(parts):
        if isinstance(part, ToolResult):
            raise Unexpressible(f"content.{n}", "a tool_result has no place in an answer")
    check_call_ids(parts)
    return parts


def write_reply(reply: Reply) -> dict[str, Any]:
    """Return the message object; raises `Unexpressible` for what no message can hold.

    A refusal is text here, and then the stop reason says that it is one. `created` and `logprobs` have no place in a message, nor
    has a thought that only another provider can read, nor a call that was not finished where the answer was cut off.
    Usage that is unknown is written as zeros, since clients read it unasked.
    """
    is_own = reply.dialect == "messages"
    writing = Writing(is_own, Unplaced(reply.others if is_own else {}))
    parts = without_cut_call(reply.parts, reply.stop_reason)
    blocks = [write_block(part, f"parts.{n}", writing) for n, part in parts]
    is_refused = any(isinstance(part, Refusal) for part in reply.parts)
    usage = write_usage(reply.usage)
    details = usage.setdefault("output_tokens_details", {})
    writing.unknown.onto(details, "usage.output_tokens_details")
    if not details:
        del usage["output_tokens_details"]
    writing.unknown.onto(usage, "usage")
    body: dict[str, Any] = {
        "id": reply.id,
        "type": "message",
        "role": "assistant",
        "model": reply.model,
        "content": [block for block in blocks if block is not None],
        "stop_reason": "refusal" if is_refused else WRITTEN[reply.stop_reason],
        "stop_sequence": reply.stop_sequence,
        "usage": usage,
    }
    writing.unknown.onto(body, "")
    return body | writing.unknown.rest()
