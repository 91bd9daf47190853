"""Calls and their results belong together: a conversation in which one lacks the other is refused, in every dialect alike."""

from __future__ import annotations

from typing import Final

from providers.dialects.base import Unexpressible
from schemas.conversation import Hosted, Request, ToolResult, ToolUse

ELSEWHERE: Final = frozenset({"previous_response_id", "conversation"})


def goes_on_elsewhere(request: Request) -> bool:
    """Say whether a conversation goes on from what its provider keeps, where the call may be that a result is of."""
    items = (part.item for turn in request.turns for part in turn.parts if isinstance(part, Hosted))
    return not ELSEWHERE.isdisjoint(request.others) or any(item.get("type") == "item_reference" for item in items)


def check_pairs(request: Request) -> None:
    """Raise `Unexpressible` for a call without a result in the next turn, a result without its call, and a second one."""
    open_calls: dict[str, str] = {}
    for n, turn in enumerate(request.turns):
        where = f"turn {n + 1} ({turn.role})"
        if turn.role == "tool":
            for part in turn.parts:
                if isinstance(part, ToolResult) and open_calls.pop(part.call_id, None) is None:
                    raise Unexpressible(where, f"a result of {part.call_id!r}, which no open call has")
            continue
        _refuse_open(open_calls, where)
        for part in turn.parts:
            if isinstance(part, ToolUse):
                if part.id in open_calls:
                    raise Unexpressible(where, f"two calls have the id {part.id!r}")
                open_calls[part.id] = part.name
    _refuse_open(open_calls, "the last turn")


def _refuse_open(open_calls: dict[str, str], where: str) -> None:
    for call_id, name in open_calls.items():
        raise Unexpressible(where, f"the call {call_id!r} of {name} before it has no result")
