"""A whole answer, written for a client.

An answer has one text and one thought here: words that came in several pieces are joined, thoughts with a blank line between them.
"""

from __future__ import annotations

from typing import Any, Final

from providers.dialects.base import Unexpressible
from providers.dialects.chat.accounting import write_logprobs, write_usage
from providers.dialects.chat.assistant import write_call
from providers.dialects.chat.messages_writing import write_thoughts
from providers.dialects.chat.parts import Writing, is_annotation, write_part
from providers.dialects.chat.stopping import write_stop
from providers.dialects.chat.unknown import put_back
from schemas.conversation import Hosted, Part, Reasoning, Refusal, Reply, Text, ToolUse

MESSAGE: Final = "choices.0.message"


def write_reply(reply: Reply) -> dict[str, Any]:
    """Return the body; raises `Unexpressible` for what no answer can say. What only a backend knows stays with its own dialect."""
    message = _write_message(reply)
    are_of_refusal = message["refusal"] is not None and not message["content"]
    choice: dict[str, Any] = {
        "index": 0,
        "message": message,
        "logprobs": None if reply.logprobs is None else write_logprobs(reply.logprobs, are_of_refusal=are_of_refusal),
        **write_stop(reply.stop_reason, reply.stop_sequence),
    }
    body: dict[str, Any] = {
        "id": reply.id,
        "object": "chat.completion",
        "created": reply.created or 0,
        "model": reply.model,
        "choices": [choice],
    }
    if reply.usage is not None:
        body["usage"] = write_usage(reply.usage)
    if reply.dialect == "chat":
        put_back(body, reply.others)
    return body


def _write_message(reply: Reply) -> dict[str, Any]:
    """Return the assistant's message; content is null where a call or a refusal stands in its place."""
    message: dict[str, Any] = {"role": "assistant"}
    words: list[Text | Hosted] = []
    refusals: list[str] = []
    thoughts: list[Reasoning] = []
    calls: list[dict[str, Any]] = []
    for n, part in enumerate(reply.parts):
        match part:
            case Reasoning():
                thoughts.append(part)
            case Text() | Hosted():
                words.append(part)
            case Refusal():
                refusals.append(part.text)
            case ToolUse():
                calls.append(write_call(part, f"{MESSAGE}.tool_calls.{len(calls)}"))
            case _:
                raise Unexpressible(f"{MESSAGE}.content.{n}", f"a part of type {part.type!r} cannot be answered with")
    message["content"] = _content(words) if words else None if calls or refusals else ""
    if thought := write_thoughts(thoughts, MESSAGE, Writing(is_own=True)):
        message["reasoning_content"] = thought
    message["refusal"] = "".join(refusals) if refusals else None
    if citations := [one for part in words if isinstance(part, Text) for one in part.citations if is_annotation(one)]:
        message["annotations"] = citations
    if calls:
        message["tool_calls"] = calls
    return message


def _content(words: list[Text | Hosted]) -> str | list[dict[str, Any]]:
    """Return words as one string, as a list only if there is something else among them."""
    texts = [part.text for part in words if isinstance(part, Text)]
    if len(texts) == len(words):
        return "".join(texts)
    parts: list[Part] = list(words)
    return [write_part(part, f"{MESSAGE}.content.{n}", Writing(is_own=True)) for n, part in enumerate(parts)]
