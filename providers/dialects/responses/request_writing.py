"""Writes a request: instructions and items, tools, how the answer is to be."""

from __future__ import annotations

from typing import Any, Final

from providers.dialects.base import Unexpressible, Written
from providers.dialects.fields import unescaped
from providers.dialects.neutral import changes_no_answer
from providers.dialects.pairs import check_pairs
from providers.dialects.responses.content_writing import Writing
from providers.dialects.responses.items_writing import write_turns
from providers.dialects.responses.names import NAME, NAMESPACES
from providers.dialects.responses.settings import LOGPROBS, write_reasoning, write_text
from providers.dialects.responses.tools_writing import write_tool_choice, write_tools
from schemas.conversation import Hosted, Request, Text, Turn

# Fields by which a conversation goes on from what the provider keeps: calls and results may lie there.
KEPT_ELSEWHERE: Final = frozenset({"conversation", "previous_response_id", "prompt"})


def write_request(request: Request) -> Written:
    """Return the body to send; raises `Unexpressible` for what the Responses API cannot say."""
    if not _goes_on(request):
        check_pairs(request)
    _refuse_unknown_settings(request)
    writing = Writing(is_own=request.dialect == NAME)
    writing.drop("presence_penalty", request.presence_penalty)
    writing.drop("frequency_penalty", request.frequency_penalty)
    body = {"model": request.model, **write_conversation(request, writing), **write_settings(request, writing)}
    if request.is_streamed:
        body["stream"] = True
    _add_others(body, request, writing)
    return Written(body, tuple(writing.dropped))


def write_conversation(request: Request, writing: Writing) -> dict[str, Any]:
    """Return `instructions` if a plain system turn leads, and `input`."""
    words = leading_words(request)
    if words is None:
        return {"input": write_turns(request.turns, 0, writing)}
    writing.drop("turns.0.parts.0.cache", words.cache)
    return {"instructions": words.text, "input": write_turns(request.turns[1:], 1, writing)}


def leading_words(request: Request) -> Text | None:
    """Return what a plain system turn says at the beginning, which is this dialect's `instructions`."""
    match request.turns:
        case (Turn(role="system", is_plain=True, name=None, parts=(Text(citations=()) as words,)), *_):
            return words
        case _:
            return None


def write_settings(request: Request, writing: Writing) -> dict[str, Any]:
    """Return the fields about tools and about how the answer is to be, those that were asked for."""
    described = request.others.get(NAMESPACES, {}) if writing.is_own else {}
    text = write_text(request.output, request.verbosity)
    reasoning = None if request.thinking is None else write_reasoning(request.thinking, writing.dropped)
    choice = None if request.tool_choice is None else write_tool_choice(request.tool_choice)
    if choice is not None and not _offers_tools(request):
        writing.drop("tool_choice", choice)
        choice = None
    said = {
        "tools": None if request.tools is None else write_tools(request.tools, described, writing),
        "tool_choice": choice,
        "parallel_tool_calls": request.parallel_tool_calls,
        "max_output_tokens": request.max_output_tokens,
        "temperature": request.temperature,
        "top_p": request.top_p,
        "top_logprobs": request.top_logprobs,
        "text": text or None,
        "reasoning": reasoning if reasoning or writing.is_own else None,
        "include": [LOGPROBS] if request.logprobs else None,
    }
    return {name: value for name, value in said.items() if value is not None}


def _goes_on(request: Request) -> bool:
    is_kept_whole = any(isinstance(part, Hosted) for turn in request.turns for part in turn.parts)
    return request.dialect == NAME and (is_kept_whole or not KEPT_ELSEWHERE.isdisjoint(request.others))


def _offers_tools(request: Request) -> bool:
    """Return whether there are tools, in their list or in an item that adds some."""
    hosted = [part for turn in request.turns for part in turn.parts if isinstance(part, Hosted)]
    return bool(request.tools) or any(part.item.get("type") == "additional_tools" for part in hosted)


def _refuse_unknown_settings(request: Request) -> None:
    """Refuse settings that the Responses API has not; a penalty of nothing is what it does anyway."""
    settings = {
        "stop_sequences" if request.dialect == "messages" else "stop": request.stop,
        "top_k": request.top_k,
        "presence_penalty": request.presence_penalty,
        "frequency_penalty": request.frequency_penalty,
        "seed": request.seed,
    }
    for name, value in settings.items():
        if value not in {None, ()} and (value != 0 or not name.endswith("_penalty")):
            raise Unexpressible(name, "the Responses API has no such field")


def _add_others(body: dict[str, Any], request: Request, writing: Writing) -> None:
    for name, value in request.others.items():
        if writing.is_own:
            _add_own(body, name, value)
        elif changes_no_answer(name, value):
            writing.drop(name, value)
        else:
            raise Unexpressible(name, f"a field of the dialect {request.dialect} that the Responses API has not")


def _add_own(body: dict[str, Any], name: str, value: Any) -> None:
    """Add a field that nobody here knows in its place: of the request itself, or of its `text` or `reasoning`."""
    owner, *steps = name.split(".")
    if name == NAMESPACES:
        return
    if not steps:
        body[unescaped(name)] = [*value, *body.get("include", [])] if name == "include" else value
    elif owner in {"text", "reasoning"}:
        holder = body
        for step in (owner, *steps[:-1]):
            holder = holder.setdefault(step, {})
        holder[unescaped(steps[-1])] = value
    else:
        raise Unexpressible(name, "is not known here")
