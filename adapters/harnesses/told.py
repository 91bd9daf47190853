"""What a harness tells, as the log keeps it."""

from __future__ import annotations

from typing import Final

from adapters.harnesses.trajectory import (
    Compacted,
    Complained,
    Finished,
    Item,
    Planned,
    ReplyDone,
    Said,
    SessionNamed,
    Thought,
    ToolAsked,
    ToolDone,
)
from schemas.harnesses import ToldItem, ToldKind

TEXT_MAX_CHARS: Final = 65_536
"""Of a longer text the beginning is kept; what was said to the model, whole, is in the gateway's record."""
NAME_MAX_CHARS: Final = 256
MAX: Final = 2.0**53


def told(item: Item) -> ToldItem:  # noqa: C901, PLR0911  one return a kind
    """Return the log's form of an item: whatever a program wrote, it is text that can be stored, and numbers that are some."""
    match item:
        case SessionNamed(session_id):
            return _item("session", call_id=session_id)
        case Said(role, text):
            return _item("said", text, name=role)
        case Thought(text):
            return _item("thought", text)
        case Planned(text):
            return _item("planned", text)
        case ToolAsked(call_id, name, arguments, is_rewritten):
            return _item("tool_asked", arguments, call_id=call_id, name=name, is_rewritten=is_rewritten)
        case ToolDone(call_id, text, exit_code, is_error, duration_s):
            code = exit_code if _is_between(exit_code, -(2**31), 2**31 - 1) else None
            seconds = duration_s if _is_between(duration_s, 0, MAX) else None
            return _item("tool_done", text, call_id=call_id, exit_code=code, is_error=is_error, duration_s=seconds)
        case ReplyDone():
            return _item(
                "reply_done",
                call_id=item.reply_id,
                input_tokens=_count(item.input_tokens),
                output_tokens=_count(item.output_tokens),
                cached_tokens=_count(item.cached_tokens),
                reasoning_tokens=_count(item.reasoning_tokens),
            )
        case Compacted():
            return _item("compacted")
        case Complained(problem, message, is_final):
            return _item("complained", message, name=problem, is_final=is_final)
        case Finished(reason):
            return _item("finished", reason)


def size_of(item: ToldItem) -> int:
    """Return how many characters an item has, in all that it says."""
    return sum(len(part or "") for part in (item.text, item.name, item.id))


def _item(
    kind: ToldKind,
    text: str | None = None,
    *,
    name: str | None = None,
    call_id: str | None = None,
    **more: object,
) -> ToldItem:
    return ToldItem.model_validate(
        {
            "kind": kind,
            "text": _storable(text, TEXT_MAX_CHARS),
            "name": _storable(name, NAME_MAX_CHARS),
            "id": _storable(call_id, NAME_MAX_CHARS),
            "is_cut": len(text or "") > TEXT_MAX_CHARS,
            **more,
        }
    )


def _storable(text: str | None, most: int) -> str | None:
    """Return the beginning of a text, with U+FFFD for half characters, which JSON can write and no log can store."""
    if text is None:
        return None
    return text[:most].encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _count(number: int | None) -> int | None:
    return number if _is_between(number, 0, MAX) else None


def _is_between(number: float | None, least: float, most: float) -> bool:
    return number is not None and least <= number <= most  # what is no number is not
