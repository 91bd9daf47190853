"""Writes turns as the items of a request: neighbouring words are one message, every thought, call and result an item."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
from typing import Any

from providers.dialects.base import Unexpressible
from providers.dialects.responses.content_writing import Writing, given_content
from providers.dialects.responses.names import NAME, made_id
from providers.dialects.responses.shapes import (
    call_item,
    is_annotation,
    message_item,
    reasoning_item,
    refusal_content,
    text_content,
)
from schemas.conversation import Hosted, Part, Reasoning, Refusal, Text, ToolResult, ToolUse, Turn

Placed = tuple[str, Part]
"""A part, and its path in the conversation."""


def write_turns(turns: tuple[Turn, ...], first: int, writing: Writing) -> list[dict[str, Any]]:
    """Return the items for `turns`, the first of which is the conversation's number `first`."""
    return [item for n, turn in enumerate(turns, first) for item in _turn(turn, f"turns.{n}", writing)]


def _turn(turn: Turn, path: str, writing: Writing) -> Iterator[dict[str, Any]]:
    if turn.name is not None and turn.role != "tool":
        raise Unexpressible(f"{path}.name", "the Responses API has no names for those who speak")
    writing.drop(f"{path}.name", turn.name)
    placed = [(f"{path}.parts.{m}", part) for m, part in enumerate(turn.parts)]
    if not placed and turn.role != "tool":
        yield message_item(turn.role, [])
    for is_content, run in groupby(placed, key=lambda each: _is_content(each[1])):
        if is_content:
            yield _message(turn, list(run), path, writing)
        else:
            for at, part in run:
                yield from _item(part, turn, at, writing)


def _is_content(part: Part) -> bool:
    return not isinstance(part, Reasoning | ToolUse | ToolResult | Hosted)


def _message(turn: Turn, placed: list[Placed], path: str, writing: Writing) -> dict[str, Any]:
    if turn.role == "tool":
        raise Unexpressible(placed[0][0], "nothing but results can stand beside results")
    words = placed[0][1]
    if turn.is_plain and len(placed) == 1 and isinstance(words, Text) and not _needs_list(words, writing):
        writing.drop(f"{placed[0][0]}.citations", words.citations)
        writing.drop(f"{placed[0][0]}.cache", words.cache)
        return message_item(turn.role, words.text)
    if turn.role != "assistant":
        return message_item(turn.role, [given_content(part, at, writing) for at, part in placed])
    content = [_spoken(part, at, writing) for at, part in placed]
    if writing.is_own:
        return message_item("assistant", content)
    return message_item("assistant", content, made_id("msg", path), "completed")  # strict servers want both


def _needs_list(words: Text, writing: Writing) -> bool:
    return writing.is_own and bool(words.citations or words.cache)


def _spoken(part: Part, path: str, writing: Writing) -> dict[str, Any]:
    match part:
        case Text():
            writing.drop(f"{path}.cache", part.cache)
            foreign = [citation for citation in part.citations if not is_annotation(citation)]
            writing.drop(f"{path}.citations", tuple(foreign))
            return text_content(part)
        case Refusal():
            return refusal_content(part)
        case _:
            raise Unexpressible(path, f"the Responses API lets an assistant say no {part.type}")


def _item(part: Part, turn: Turn, path: str, writing: Writing) -> Iterator[dict[str, Any]]:
    match part:
        case Hosted():
            if part.dialect != NAME:
                raise Unexpressible(path, f"an item that only the dialect {part.dialect} knows")
            yield part.item
        case Reasoning() if turn.role == "assistant":
            yield from _thought(part, path, writing)
        case ToolUse() if turn.role == "assistant":
            writing.drop(f"{path}.cache", part.cache)
            writing.call_kinds[part.id] = part.kind
            yield call_item(part, part.item_id)
        case ToolResult() if turn.role == "tool":
            yield _output(part, path, writing)
        case _:
            raise Unexpressible(path, f"a {part.type} cannot stand in a turn of the role {turn.role}")


def _thought(part: Reasoning, path: str, writing: Writing) -> Iterator[dict[str, Any]]:
    writing.drop(f"{path}.signature", part.signature)
    writing.drop(f"{path}.redacted", part.redacted)
    if writing.is_own:
        yield reasoning_item(part, part.id)
        return
    writing.drop(f"{path}.encrypted", part.encrypted)
    if part.texts or part.summaries:
        yield reasoning_item(part.model_copy(update={"encrypted": None}), part.id or made_id("rs", path))


def _output(part: ToolResult, path: str, writing: Writing) -> dict[str, Any]:
    """Return a result's item: of the kind of its call, which not every dialect tells of results."""
    kind = part.kind if writing.is_own else writing.call_kinds.get(part.call_id, part.kind)
    writing.drop(f"{path}.is_error", part.is_error)
    writing.drop(f"{path}.cache", part.cache)
    type_ = "custom_tool_call_output" if kind == "custom" else "function_call_output"
    return {"type": type_, "call_id": part.call_id, "output": _result_content(part, path, writing)}


def _result_content(part: ToolResult, path: str, writing: Writing) -> str | list[dict[str, Any]]:
    match part.parts:
        case () if part.is_plain:
            return ""
        case (Text() as words,) if part.is_plain and not _needs_list(words, writing):
            writing.drop(f"{path}.parts.0.cache", words.cache)
            return words.text
        case parts:
            places = [(f"{path}.parts.{n}", each) for n, each in enumerate(parts)]
            return [given_content(each, at, writing, is_result=True) for at, each in places]
