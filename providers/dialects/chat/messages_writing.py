"""Turns written as messages: a tool turn as one message for each result, every other turn as one.

In the client's own dialect content has the shape that the client gave it; from another, one text alone becomes a bare string, which
every backend takes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final, TypeVar

from providers.dialects.base import Unexpressible
from providers.dialects.chat.assistant import write_call
from providers.dialects.chat.parts import Writing, is_annotation, put_cache, write_part
from schemas.conversation import (
    Audio,
    File,
    Hosted,
    Image,
    Part,
    Reasoning,
    Refusal,
    Role,
    Text,
    ToolResult,
    ToolUse,
    Turn,
    Video,
)

# What OpenAI's API takes from each role; a client of this dialect is believed to know what more its backend takes.
ALLOWED: Final[dict[Role, tuple[type[Part], ...]]] = {
    "system": (Text,),
    "developer": (Text,),
    "user": (Text, Image, Audio, Video, File),
    "assistant": (Text, Refusal),
    "tool": (Text,),
}
BETWEEN_THOUGHTS: Final = "\n\n"

T = TypeVar("T", bound=Part)


def write_messages(turns: Iterable[Turn], writing: Writing) -> list[dict[str, Any]]:
    """Return the messages of a request; raises `Unexpressible` for what no message can say."""
    messages: list[dict[str, Any]] = []
    for turn in turns:
        path = f"messages.{len(messages)}"
        if turn.role == "tool":
            messages += _write_results(turn, len(messages), writing)
        elif turn.role == "assistant":
            messages.append(_write_assistant(turn, path, writing))
        else:
            message = _named(turn)
            _put_content(message, turn.parts, path, writing, is_plain=turn.is_plain)
            messages.append(message)
    return messages


def _named(turn: Turn) -> dict[str, Any]:
    return {"role": turn.role} if turn.name is None else {"role": turn.role, "name": turn.name}


def _put_content(
    message: dict[str, Any], parts: Sequence[Part], path: str, writing: Writing, *, is_plain: bool
) -> None:
    """Add `content` to a message, as a bare string where that says all; a cache hint then lies beside it."""
    for n, part in enumerate(parts):
        _check(part, message["role"], f"{path}.content.{n}", writing)
    may_be_plain = is_plain or not writing.is_own
    match parts:
        case [] if may_be_plain:
            message["content"] = ""
        case [Text() as only] if may_be_plain:
            message["content"] = only.text
            put_cache(message, only.cache, path, writing)
        case _:
            message["content"] = [write_part(part, f"{path}.content.{n}", writing) for n, part in enumerate(parts)]


def _check(part: Part, role: Role, path: str, writing: Writing) -> None:
    """Raise `Unexpressible` for a part that a message of this role cannot hold; list citations that it cannot."""
    if isinstance(part, Text) and not (writing.is_own and role == "assistant"):
        writing.drop(f"{path}.citations", part.citations)
    if not writing.is_own and not isinstance(part, (*ALLOWED[role], Hosted)):
        raise Unexpressible(path, f"a part of type {part.type!r} cannot stand in a message of the role {role!r}")


def _write_results(turn: Turn, first: int, writing: Writing) -> list[dict[str, Any]]:
    messages: list[dict[str, Any]] = []
    for n, part in enumerate(turn.parts, first):
        path = f"messages.{n}"
        if not isinstance(part, ToolResult):
            raise Unexpressible(path, f"a part of type {part.type!r} is no tool's result")
        message: dict[str, Any] = {"role": "tool", "tool_call_id": part.call_id}
        _put_content(message, part.parts, path, writing, is_plain=part.is_plain)
        put_cache(message, part.cache, path, writing)
        writing.drop(f"{path}.is_error", part.is_error)
        messages.append(message)
    return messages


def _write_assistant(turn: Turn, path: str, writing: Writing) -> dict[str, Any]:
    message = _named(turn)
    thought = write_thoughts(_those(turn.parts, Reasoning), path, writing)
    if thought:
        message["reasoning_content"] = thought
    words: list[Part] = [part for part in turn.parts if not isinstance(part, Reasoning | ToolUse)]
    _put_words(message, words, path, writing, is_plain=turn.is_plain)
    calls: list[dict[str, Any]] = []
    for n, call in enumerate(_those(turn.parts, ToolUse)):
        at = f"{path}.tool_calls.{n}"
        calls.append(write_call(call, at))
        put_cache(calls[-1], call.cache, at, writing)
        writing.drop(f"{at}.item_id", call.item_id)
    if calls:
        message["tool_calls"] = calls
    return message


def _put_words(message: dict[str, Any], words: list[Part], path: str, writing: Writing, *, is_plain: bool) -> None:
    """Add `content`, and `refusal` where the refusal stands alone or behind one bare string."""
    match words:
        case [Refusal() as refusal]:
            message |= {"content": "" if is_plain else None, "refusal": refusal.text}
        case [Text(), Refusal() as refusal] if is_plain or not writing.is_own:
            _put_content(message, words[:1], path, writing, is_plain=True)
            message["refusal"] = refusal.text
        case []:
            message["content"] = "" if is_plain else None
        case _:
            _put_content(message, words, path, writing, is_plain=is_plain)
    texts = _those(words, Text)
    citations = [citation for text in texts for citation in text.citations]
    if writing.is_own and len(texts) == 1 and citations and all(map(is_annotation, citations)):
        message["annotations"] = citations
    elif writing.is_own:
        writing.drop(f"{path}.annotations", tuple(citations))


def write_thoughts(thoughts: Iterable[Reasoning], path: str, writing: Writing) -> str:
    """Return all thoughts as one text; a summary stands for thoughts that are not told, and what nobody can read is left out."""
    spoken: list[str] = []
    for thought in thoughts:
        spoken += thought.texts or thought.summaries
        at = f"{path}.reasoning"
        writing.drop(f"{at}.summary", thought.summaries if thought.texts else None)
        for name in ("id", "signature", "encrypted", "redacted"):
            writing.drop(f"{at}.{name}", getattr(thought, name))
    return BETWEEN_THOUGHTS.join(filter(None, spoken))


def _those(parts: Iterable[Part], type_: type[T]) -> list[T]:
    return [part for part in parts if isinstance(part, type_)]
