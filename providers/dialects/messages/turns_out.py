"""Turns written as messages: a leading system prompt is the field `system`, a later one a message of that role."""

from __future__ import annotations

from itertools import takewhile
from typing import Any, Final

from providers.dialects.base import Unexpressible
from providers.dialects.messages.blocks_out import as_plain, write_block
from providers.dialects.messages.writing import Writing
from schemas.conversation import Hosted, Part, Role, Text, ToolResult, Turn

ROLES: Final[dict[Role, str]] = {
    "system": "system",
    "developer": "system",
    "user": "user",
    "assistant": "assistant",
    "tool": "user",
}
PROMPTS: Final = frozenset({"system", "developer"})
Content = str | list[dict[str, Any] | None]


def write_turns(turns: tuple[Turn, ...], writing: Writing) -> dict[str, Any]:
    """Return `system`, if there is one, and `messages`.

    Of another dialect all leading prompts become `system`, one block each. Of this one it is only the first turn, since the next
    stood among the messages.
    """
    leading = len(list(takewhile(lambda turn: turn.role in PROMPTS, turns)))
    if writing.is_own:
        leading = min(leading, 1)
    written: dict[str, Any] = {}
    prompts = [content for n in range(leading) if (content := _content(turns[n], n, writing)) is not None]
    if prompts:
        written["system"] = prompts[0] if len(prompts) == 1 else [b for prompt in prompts for b in _blocks(prompt)]
    written["messages"] = _messages(turns, leading, writing)
    return written


def _messages(turns: tuple[Turn, ...], start: int, writing: Writing) -> list[dict[str, Any]]:
    messages: list[dict[str, Any]] = []
    before: Role | None = None
    for n in range(start, len(turns)):
        turn = turns[n]
        content = _content(turn, n, writing)
        if content is None:
            continue
        if turn.role == "tool" and before == "tool":
            messages[-1]["content"].extend(_blocks(content))
        else:
            messages.append({"role": ROLES[turn.role], "content": content})
        writing.unknown.onto(messages[-1], f"turns.{n}")
        before = turn.role
    return messages


def _content(turn: Turn, n: int, writing: Writing) -> Content | None:
    """Return a turn's content, None if all that was in it is left out."""
    path = f"turns.{n}"
    if turn.role == "tool":
        writing.drop(f"{path}.name", turn.name)
    else:
        writing.refuse(f"{path}.name", turn.name, "Anthropic Messages has no names for who speaks")
    blocks: list[dict[str, Any] | None] = []
    for p, part in enumerate(turn.parts):
        _check_place(turn.role, part, f"{path}.parts.{p}")
        if _is_empty_beside_others(part, turn, writing):
            writing.dropped.append(f"{path}.parts.{p}")
            continue
        block = write_block(part, f"{path}.parts.{p}", writing)
        if block is None:
            writing.dropped.append(f"{path}.parts.{p}")
        else:
            blocks.append(block)
    if turn.parts and not blocks:
        return None
    return as_plain(blocks) if turn.is_plain and turn.role != "tool" else blocks


def _is_empty_beside_others(part: Part, turn: Turn, writing: Writing) -> bool:
    """Tell whether a part is the empty text that other dialects put beside calls, and that the API refuses."""
    return not writing.is_own and isinstance(part, Text) and not part.text and len(turn.parts) > 1


def _check_place(role: Role, part: Part, path: str) -> None:
    if role in PROMPTS and not isinstance(part, Text | Hosted):
        raise Unexpressible(path, f"a system prompt holds text only, and this is of the type {part.type}")
    if (role == "tool") != isinstance(part, ToolResult):
        raise Unexpressible(path, f"a part of the type {part.type} has no place in a turn of the role {role}")


def _blocks(content: Content) -> list[dict[str, Any] | None]:
    return [{"type": "text", "text": content}] if isinstance(content, str) else content
