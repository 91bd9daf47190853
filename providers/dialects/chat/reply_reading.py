"""A backend's whole answer, read."""

from __future__ import annotations

from typing import Any

from pydantic import ValidationError

from providers.dialects.base import Malformed, Unexpressible
from providers.dialects.call_ids import check_call_ids
from providers.dialects.chat.accounting import read_logprobs, read_usage
from providers.dialects.chat.assistant import read_assistant
from providers.dialects.chat.problem import read_error
from providers.dialects.chat.stopping import read_stop
from providers.dialects.chat.unknown import Unknown, needed_fields
from providers.dialects.fields import Fields
from schemas.conversation import Reply


def read_reply(body: dict[str, Any]) -> Reply:
    """Return what a backend answered; raises `Malformed` for what is no whole answer, and for more than one."""
    try:
        return _read(Fields(body))
    except (Unexpressible, ValidationError) as error:
        raise Malformed(f"no answer of Chat Completions: {error}") from error


def _read(fields: Fields) -> Reply:
    unknown = Unknown()
    choice = _only_choice(fields)
    message = needed_fields(choice, "message")
    said = read_assistant(message, unknown)
    check_call_ids(said.calls)
    if message.text("role") not in (None, "assistant"):
        raise Unexpressible(message.at("role"), "want assistant")
    logprobs = read_logprobs(choice)
    stop = read_stop(choice, unknown)
    if stop is None:
        raise Unexpressible(choice.at("finish_reason"), "is missing")
    cost = fields.fields("usage")
    usage = None if cost is None else read_usage(cost, unknown)
    id_, model = fields.needed_text("id"), fields.needed_text("model")
    created = fields.integer("created") or None  # 0 is how a missing time is written
    fields.take("object")
    for one in (message, choice, fields):
        unknown.keep(one)
    return Reply(
        dialect="chat",
        id=id_,
        model=model,
        parts=said.parts,
        stop_reason=stop[0],
        stop_sequence=stop[1],
        usage=usage,
        logprobs=logprobs or None,
        created=created,
        others=unknown.fields,
    )


def _only_choice(fields: Fields) -> Fields:
    """Take the one answer there is; raises `Malformed` with the backend's own words if it tells of an error."""
    if fields.has("error"):
        message, code = read_error(fields.take("error"))
        raise Malformed(f"the backend answered with an error: {message} ({code or 'no code'})")
    choices = list(fields.each("choices"))
    if len(choices) != 1:
        raise Unexpressible(fields.at("choices"), f"want one answer, found {len(choices)}")
    choices[0].take("index")
    return choices[0]
