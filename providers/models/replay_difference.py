"""Where a conversation first differs from the recorded one, in words for a person."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from providers.dialects.digests import turn_digest
from schemas.conversation import Part, Text, ToolResult, ToolUse, Turn
from schemas.values import Message

SAMPLING: Final = (
    "temperature", "top_p", "top_k", "max_output_tokens", "seed", "stop", "presence_penalty", "frequency_penalty",
)  # fmt: skip
SHOWN: Final = 80
BEFORE: Final = 20


def first_difference(recorded: Sequence[Message], now: Sequence[Message]) -> str | None:
    """Return where two conversations of a native agent first differ, None if they do not; messages are counted from 1."""
    for place in range(max(len(recorded), len(now))):
        was, is_ = recorded[place : place + 1], now[place : place + 1]
        if was != is_:
            return _sentence(place, [(m.role, _of_message(m)) for m in was], [(m.role, _of_message(m)) for m in is_])
    return None


def first_turn_difference(recorded: Sequence[Turn], now: Sequence[Turn]) -> str | None:
    """Return the same of two conversations through the gateway: what no client's habits change is compared."""
    place = shared_turns(recorded, now)
    was, is_ = recorded[place : place + 1], now[place : place + 1]
    if not was and not is_:
        return None
    return _sentence(place, [(t.role, _of_parts(t.parts)) for t in was], [(t.role, _of_parts(t.parts)) for t in is_])


def shared_turns(recorded: Sequence[Turn], now: Sequence[Turn]) -> int:
    """Return how many turns two conversations begin with in common."""
    count = 0
    for was, is_ in zip(recorded, now, strict=False):
        if turn_digest(was.role, was.parts, was.name) != turn_digest(is_.role, is_.parts, is_.name):
            break
        count += 1
    return count


def _sentence(place: int, was: Sequence[tuple[str, str]], is_: Sequence[tuple[str, str]]) -> str:
    """Say it of one message each, as (role, text), or of none."""
    roles = " / ".join(dict.fromkeys(role for role, _ in (*was, *is_)))
    old, new = (one[0][1] if one else None for one in (was, is_))
    start = _where_they_part(old or "", new or "")
    return f"message {place + 1} ({roles}): recorded {_shown(old, start)}, now {_shown(new, start)}"


def _of_message(message: Message) -> str:
    calls = [f"[{call.id} {call.name}({call.arguments})]" for call in message.tool_calls]
    answered = [f"[for {message.tool_call_id}]"] if message.tool_call_id else []
    return " ".join([*answered, *([message.content] if message.content else []), *calls])


def _of_parts(parts: Sequence[Part]) -> str:
    said: list[str] = []
    for part in parts:
        match part:
            case Text():
                said.append(part.text)
            case ToolUse():
                said.append(f"[{part.id} {part.name}({part.arguments})]")
            case ToolResult():
                said.append(f"[for {part.call_id}] {_of_parts(part.parts)}")
            case _:
                said.append(f"[{part.type}]")
    return " ".join(said)


def _where_they_part(one: str, other: str) -> int:
    """Return where to begin to show two texts, so that their first difference is in what is shown."""
    most = min(len(one), len(other))
    place = next((n for n in range(most) if one[n] != other[n]), most)
    return place - BEFORE if place > SHOWN - BEFORE else 0


def _shown(text: str | None, start: int) -> str:
    if text is None:
        return "nothing"
    piece = text[start : start + SHOWN]
    return f"{'…' if start else ''}{piece!r}{'…' if start + SHOWN < len(text) else ''}"


def parameter_difference(
    recorded: Mapping[str, Any], now: Mapping[str, Any], *, is_same_client: bool = True
) -> str | None:
    """Return the first sampling parameter that is another one now.

    One that is left out is None, and differs from one that is there; unless it may be another client, which has defaults of its own.
    """
    for name in SAMPLING:
        was, is_ = recorded.get(name), now.get(name)
        if was != is_ and (is_same_client or (was is not None and is_ is not None)):
            return f"{name}: recorded {was}, now {is_}"
    return None
