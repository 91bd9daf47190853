"""Messages read as turns, in the canonical form of `schemas.conversation`.

A user message that holds results is a `tool` turn, and a `user` turn for what else is in it. Neighbouring messages of the assistant
are one turn, as they are to the API. Its thoughts stand before its words and these before its calls, but where blocks of hosted
tools are among them: such a turn can be said in this dialect only, and keeps its order.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from providers.dialects.base import Unexpressible
from providers.dialects.fields import Fields
from providers.dialects.messages.blocks_in import read_block
from providers.dialects.messages.unknown import Found
from schemas.conversation import File, Hosted, Image, Part, Reasoning, Role, Text, ToolResult, ToolUse, Turn

MAY_HOLD: Final[dict[str, tuple[type, ...]]] = {
    "system": (Text, Hosted),
    "user": (Text, Image, File, ToolResult, Hosted),
    "assistant": (Text, Image, File, Reasoning, ToolUse, Hosted),
}


@dataclass(slots=True)
class _Draft:
    """A turn in the making: parts with what is unknown in each, and what is unknown of the message."""

    role: Role
    parts: list[tuple[Part, Found]]
    is_plain: bool = False
    found: Found = field(default_factory=Found)


def read_turns(body: Fields, found: Found) -> tuple[Turn, ...]:
    """Take `system` and `messages`; what is unknown in them goes to `found`."""
    drafts: list[_Draft] = []
    if body.has("system"):
        parts, is_plain = _content(body, "system", "system")
        drafts.append(_Draft("system", parts, is_plain))
    if not body.has("messages"):
        raise Unexpressible(body.at("messages"), "is missing")
    for message in body.each("messages"):
        for draft in _drafts(message):
            _add(drafts, draft)
    return tuple(_turn(draft, found.inside(f"turns.{n}")) for n, draft in enumerate(drafts))


def _drafts(message: Fields) -> Iterator[_Draft]:
    """Yield the turns that one message is."""
    role = message.needed_text("role")
    if role not in MAY_HOLD:
        raise Unexpressible(message.at("role"), f"{role!r} is no role here")
    parts, is_plain = _content(message, "content", role)
    unknown = Found()
    unknown.keep_rest(message)
    if role != "user":
        yield _Draft("assistant" if role == "assistant" else "system", parts, is_plain, unknown)
        return
    count = sum(isinstance(part, ToolResult) for part, _ in parts)
    if any(not isinstance(part, ToolResult) for part, _ in parts[:count]):
        late = max(n for n, (part, _) in enumerate(parts) if isinstance(part, ToolResult))
        raise Unexpressible(f"{message.at('content')}.{late}", "a tool_result must stand before all other blocks")
    if count:
        yield _Draft("tool", parts[:count], found=unknown)
    if len(parts) > count or not count:
        yield _Draft("user", parts[count:], is_plain, Found() if count else unknown)


def _content(fields: Fields, name: str, role: str) -> tuple[list[tuple[Part, Found]], bool]:
    """Take a string or a list of blocks; return the parts and whether it was a string."""
    path = fields.at(name)
    match content := fields.take(name):
        case str():
            return [(Text(text=content), Found())], True
        case list():
            return [_held(value, f"{path}.{n}", role) for n, value in enumerate(content)], False
        case _:
            raise Unexpressible(path, "want a string or a list of blocks")


def _held(value: Any, path: str, role: str) -> tuple[Part, Found]:
    found = Found()
    part = read_block(value, path, found)
    if not isinstance(part, MAY_HOLD[role]):
        raise Unexpressible(path, f"a block of this type has no place in a {role} message")
    return part, found


def _add(drafts: list[_Draft], draft: _Draft) -> None:
    """Append a turn, or join it to the one before if the same speaker goes on."""
    last = drafts[-1] if drafts else None
    if last is None or last.role != draft.role or draft.role not in {"assistant", "tool"}:
        drafts.append(draft)
        return
    last.parts.extend(draft.parts)
    last.is_plain = False
    last.found.merge(draft.found, "")


def _turn(draft: _Draft, found: Found) -> Turn:
    if draft.role == "assistant" and not any(isinstance(part, Hosted) for part, _ in draft.parts):
        draft.parts.sort(key=_rank)
    found.merge(draft.found, "")
    for n, (_, unknown) in enumerate(draft.parts):
        found.merge(unknown, f"parts.{n}")
    return Turn(role=draft.role, parts=tuple(part for part, _ in draft.parts), is_plain=draft.is_plain)


def _rank(held: tuple[Part, Found]) -> int:
    match held[0]:
        case Reasoning():
            return 0
        case ToolUse():
            return 2
        case _:
            return 1
