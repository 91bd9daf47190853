"""Cuts a list of items into turns: all that an assistant says up to somebody else is one, and so are results in a row."""

from __future__ import annotations

from providers.dialects.responses.items_reading import Item
from schemas.conversation import Hosted, Part, Reasoning, Refusal, Text, ToolUse, Turn


def cut_turns(items: list[Item]) -> tuple[Turn, ...]:
    """Return the turns that `items` make; what is said stays in the order of its kind."""
    turns: list[Turn] = []
    run: list[Item] = []
    for item in items:
        if run and (item.role != run[0].role or item.role not in {"assistant", "tool"}):
            turns.append(_turn(run))
            run = []
        run.append(item)
    if run:
        turns.append(_turn(run))
    return tuple(turns)


def _turn(run: list[Item]) -> Turn:
    parts = tuple(part for item in run for part in item.parts)
    if run[0].role != "assistant":
        return Turn(role=run[0].role, parts=parts, is_plain=run[0].is_plain)
    spoken = [item for item in run if any(isinstance(part, (Text, Refusal)) for part in item.parts)]
    return Turn(role="assistant", parts=_ordered(parts), is_plain=len(spoken) == 1 and spoken[0].is_plain)


def _ordered(parts: tuple[Part, ...]) -> tuple[Part, ...]:
    """Put thoughts before words before calls; an item that is kept whole stays between what came before and after it."""
    section = 0
    keys: list[tuple[int, int]] = []
    for part in parts:
        section += isinstance(part, Hosted)
        keys.append((section, _rank(part)))
    return tuple(part for _, part in sorted(zip(keys, parts, strict=True), key=lambda pair: pair[0]))


def _rank(part: Part) -> int:
    match part:
        case Hosted():
            return 0
        case Reasoning():
            return 1
        case ToolUse():
            return 3
        case _:
            return 2
