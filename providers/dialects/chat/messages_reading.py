"""A request's messages read into turns: neighbouring assistant messages and neighbouring tool results become one turn."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final, Literal

from providers.dialects.base import Unexpressible
from providers.dialects.chat.assistant import Said, read_assistant, read_content
from providers.dialects.chat.parts import read_cache
from providers.dialects.chat.unknown import Unknown
from providers.dialects.fields import Fields, where
from schemas.conversation import Audio, File, Image, Part, Role, Text, ToolResult, ToolUse, Turn, Video

ROLES: Final[tuple[Role, ...]] = ("system", "developer", "user", "assistant", "tool")
OLD_RESULT: Final = "is the older way of returning a result: use the role tool"


@dataclass
class _Message:
    """One message as it will be written; `unknown` is by path inside of it."""

    role: Role
    name: str | None
    said: Said
    result: ToolResult | None = None
    unknown: dict[str, Any] = field(default_factory=dict)

    def continues(self, other: _Message) -> bool:
        """Return whether `other` came from the same assistant just before."""
        return self.role == other.role == "assistant" and self.name == other.name

    def extend(self, later: _Message, path: str) -> None:
        """Take in what the same assistant said next; `path` is where that stood."""
        moved = {"content": len(self.said.words), "tool_calls": len(self.said.calls)}
        for name, value in later.unknown.items():
            new = _moved(name, moved)
            if new in self.unknown and not _is_same(self.unknown[new], value):
                raise Unexpressible(
                    where(path, name), "two messages of one assistant in a row say different things here"
                )
            self.unknown[new] = value
        mine, theirs = self.said, later.said
        both = bool(mine.words and theirs.words)
        plain = mine.is_plain if mine.words else theirs.is_plain if theirs.words else mine.is_plain or theirs.is_plain
        mine.is_plain = plain and not both
        mine.thoughts += theirs.thoughts
        mine.words += theirs.words
        mine.calls += theirs.calls


class _CallsSeen:
    """The calls so far: what kind each is, and of which tool."""

    def __init__(self) -> None:
        self._calls: dict[str, ToolUse] = {}

    def add(self, calls: list[ToolUse]) -> None:
        self._calls.update((call.id, call) for call in calls)

    def kind(self, call_id: str) -> Literal["function", "custom"]:
        call = self._calls.get(call_id)
        return call.kind if call else "function"

    def name(self, call_id: str) -> str | None:
        call = self._calls.get(call_id)
        return call.name if call else None


def read_messages(fields: Fields, unknown: Unknown) -> tuple[Turn, ...]:
    """Take the messages of a request."""
    if not fields.has("messages"):
        raise Unexpressible(fields.at("messages"), "is missing")
    messages: list[_Message] = []
    seen = _CallsSeen()
    for one in fields.each("messages"):
        message = _read_message(one, seen)
        seen.add(message.said.calls)
        if messages and message.continues(messages[-1]):
            messages[-1].extend(message, one.path)
        else:
            messages.append(message)
    for n, message in enumerate(messages):
        unknown.fields.update({f"messages.{n}.{name}": value for name, value in message.unknown.items()})
    return tuple(_turns(messages))


def _read_message(fields: Fields, seen: _CallsSeen) -> _Message:
    unknown = Unknown()
    role = _role(fields)
    if role == "tool":
        message = _Message(role, None, Said(), _read_result(fields, seen, unknown))
    elif role == "assistant":
        message = _Message(role, fields.text("name"), read_assistant(fields, unknown))
    else:
        words, is_plain = read_content(fields, unknown, is_needed=True)
        message = _Message(role, fields.text("name"), Said(words=words, is_plain=is_plain))
    unknown.keep(fields)
    prefix = f"{fields.path}."
    message.unknown = {path.removeprefix(prefix): value for path, value in unknown.fields.items()}
    return message


def _role(fields: Fields) -> Role:
    role = fields.needed_text("role")
    for known in ROLES:
        if role == known:
            return known
    reason = OLD_RESULT if role == "function" else f"want one of {', '.join(ROLES)}, found {role[:80]!r}"
    raise Unexpressible(fields.at("role"), reason)


def _read_result(fields: Fields, seen: _CallsSeen, unknown: Unknown) -> ToolResult:
    """Return a tool's result; a `name` says nothing new if it is that of the tool that was called."""
    call_id = fields.needed_text("tool_call_id")
    name = fields.take("name")
    if name is not None and name != seen.name(call_id):
        unknown.keep_value(fields, "name", name)
    cache = read_cache(fields, unknown)
    words, is_plain = read_content(fields, unknown, is_needed=True)
    parts: list[Text | Image | Audio | Video | File] = []
    for n, part in enumerate(words):
        if not isinstance(part, Text | Image | Audio | Video | File):
            raise Unexpressible(fields.at(f"content.{n}"), f"a part of type {part.type!r} is no tool's result")
        parts.append(part)
    kind = seen.kind(call_id)
    return ToolResult(call_id=call_id, parts=tuple(parts), is_plain=is_plain, kind=kind, cache=cache)


def _is_same(one: Any, other: Any) -> bool:
    try:
        return bool(one == other)
    except RecursionError:  # what is nested as deep as that is not compared
        return False


def _moved(name: str, by: dict[str, int]) -> str:
    """Return where an unknown field lies once the lists it lies in have been put behind others."""
    first, _, rest = name.partition(".")
    place, _, last = rest.partition(".")
    return f"{first}.{int(place) + by[first]}.{last}" if rest and first in by else name


def _turns(messages: list[_Message]) -> list[Turn]:
    turns: list[Turn] = []
    results: list[Part] = []
    for message in messages:
        if message.result is not None:
            results.append(message.result)
            continue
        if results:
            turns.append(Turn(role="tool", parts=tuple(results)))
            results = []
        said = message.said
        turns.append(Turn(role=message.role, parts=said.parts, name=message.name, is_plain=said.is_plain))
    if results:
        turns.append(Turn(role="tool", parts=tuple(results)))
    return turns
