"""Writes an answer as the whole object that clients' libraries require."""

from __future__ import annotations

from itertools import groupby
from typing import Any

from providers.dialects.base import Unexpressible
from providers.dialects.fields import unescaped
from providers.dialects.responses.echo import echo
from providers.dialects.responses.names import NAME, made_id
from providers.dialects.responses.numbers import write_usage
from providers.dialects.responses.outcomes import Outcome, outcome
from providers.dialects.responses.shapes import (
    call_item,
    message_item,
    reasoning_item,
    refusal_content,
    text_content,
    written_logprobs,
)
from schemas.conversation import (
    Hosted,
    Part,
    Reasoning,
    Refusal,
    Reply,
    Request,
    Text,
    TokenLogprob,
    ToolUse,
)


def write_reply(reply: Reply, request: Request) -> dict[str, Any]:
    """Return the body to answer `request` with; raises `Unexpressible`.

    Log probabilities stand beside the first words; an answer without words has no place for them.
    """
    ended = outcome(reply.stop_reason, reply.parts)
    body = response_object(reply.id, reply.model, reply.created, echo(request), ended)
    body |= {"output": _output(reply, ended), "usage": write_usage(reply.usage)}
    if reply.dialect == NAME:
        for name, value in reply.others.items():
            _add_other(body, name, value)
    return body


def response_object(
    id_: str, model: str, created: int | None, echoed: dict[str, Any], ended: Outcome
) -> dict[str, Any]:
    """Return an answer with nothing said in it yet; a time that nobody told is 0, for the API's clients want one."""
    return {
        "id": id_,
        "object": "response",
        "created_at": created or 0,
        "status": ended.status,
        "error": None,
        "incomplete_details": ended.details,
        "model": model,
        "output": [],
        "usage": None,
        **echoed,
    }


def spoken_content(part: Text | Refusal, logprobs: tuple[TokenLogprob, ...]) -> dict[str, Any]:
    """Return the words of an answer, with the log probabilities of their tokens."""
    if isinstance(part, Refusal):
        return refusal_content(part)
    return text_content(part) | {"logprobs": written_logprobs(logprobs, has_bytes=True)}


def single_item(part: Part, reply_id: str, place: int, status: str) -> dict[str, Any]:
    """Return the item for a part that is one by itself; `place` is where it stands in the output."""
    match part:
        case Reasoning():
            return reasoning_item(part, part.id or made_id("rs", reply_id, place))
        case ToolUse():
            prefix = "ctc" if part.kind == "custom" else "fc"
            return call_item(part, part.item_id or made_id(prefix, reply_id, place), status)
        case Hosted() if part.dialect == NAME:
            return part.item
        case Hosted():
            raise Unexpressible(f"output.{place}", f"an item that only the dialect {part.dialect} knows")
        case _:
            raise Unexpressible(f"output.{place}", f"the Responses API lets an assistant say no {part.type}")


def _output(reply: Reply, ended: Outcome) -> list[dict[str, Any]]:
    runs: list[list[Part]] = []
    for is_words, run in groupby(reply.parts, key=lambda part: isinstance(part, Text | Refusal)):
        parts = list(run)
        runs += [parts] if is_words else [[part] for part in parts]
    logprobs = reply.logprobs or ()
    output: list[dict[str, Any]] = []
    for place, parts in enumerate(runs):
        status = "incomplete" if ended.is_cut and place == len(runs) - 1 else "completed"
        words = [part for part in parts if isinstance(part, Text | Refusal)]
        if not words:
            output.append(single_item(parts[0], reply.id, place, status))
            continue
        content: list[dict[str, Any]] = []
        for part in words:
            content.append(spoken_content(part, logprobs))
            logprobs = () if isinstance(part, Text) else logprobs
        output.append(message_item("assistant", content, made_id("msg", reply.id, place), status))
    return output


def _add_other(body: dict[str, Any], name: str, value: Any) -> None:
    """Add a field that nobody here knows in its place: of the answer itself, or of its `usage`."""
    owner, *steps = name.split(".")
    if not steps:
        body[unescaped(name)] = value
        return
    holder = body[owner] if owner == "usage" else None
    for step in steps[:-1]:
        holder = holder.get(step) if isinstance(holder, dict) else None
    if not isinstance(holder, dict):
        raise Unexpressible(name, "is not known here")
    holder[unescaped(steps[-1])] = value
