"""Calls in dialects that have objects for arguments: what an empty text means, and what becomes of a call that was cut off."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from providers.dialects.json_text import is_object, object_of
from schemas.conversation import Part, StopReason, ToolUse

CUT_OFF: Final[frozenset[StopReason]] = frozenset({"length", "content_filter", "refusal"})
"""Where a call whose arguments are no object was not finished."""


def given_to(call: ToolUse, path: str) -> dict[str, Any]:
    """Return the object that a call's arguments are, empty for no text; raises `Unexpressible` for what is none."""
    return object_of(call.arguments, path) if call.arguments.strip() else {}


def without_cut_call(parts: Sequence[Part], reason: StopReason) -> list[tuple[int, Part]]:
    """Return an answer's parts with their places, without calls that were not finished where it was cut off.

    Of the last one an empty text may be all that came.
    """
    placed = list(enumerate(parts))
    if reason not in CUT_OFF:
        return placed
    last = len(placed) - 1
    return [(n, part) for n, part in placed if not isinstance(part, ToolUse) or _is_whole(part, is_last=n == last)]


def _is_whole(call: ToolUse, *, is_last: bool) -> bool:
    """Tell whether a call of an answer that was cut off may be told."""
    is_other = call.kind == "custom" or call.namespace is not None  # refused where it is written
    return is_other or is_object(call.arguments) or not (is_last or call.arguments.strip())
