"""What a harness tells, as the log keeps it."""

from __future__ import annotations

from typing import Final

from adapters.harnesses.trajectory import (
    Compacted,
    Complained,
    Finished,
    Item,
    ReplyDone,
    Said,
    SessionNamed,
    Thought,
    ToolAsked,
    ToolDone,
)
from schemas.harnesses import ToldItem

TEXT_MAX_CHARS: Final = 262_144
"""Of a longer text the beginning is kept; what was said to the model, whole, is in the gateway's record."""


def told(item: Item) -> ToldItem:  # noqa: PLR0911  one return a kind
    """Return the log's form of an item."""
    match item:
        case SessionNamed(session_id):
            return ToldItem(kind="session", id=session_id)
        case Said(role, text):
            return _with_text(ToldItem(kind="said", name=role), text)
        case Thought(text):
            return _with_text(ToldItem(kind="thought"), text)
        case ToolAsked(call_id, name, arguments, is_rewritten):
            return _with_text(ToldItem(kind="tool_asked", id=call_id, name=name, is_rewritten=is_rewritten), arguments)
        case ToolDone(call_id, text, exit_code, is_error, duration_s):
            done = ToldItem(kind="tool_done", id=call_id, exit_code=exit_code, is_error=is_error, duration_s=duration_s)
            return _with_text(done, text)
        case ReplyDone(reply_id, input_tokens, output_tokens, cached_tokens, reasoning_tokens):
            return ToldItem(
                kind="reply_done",
                id=reply_id,
                input_tokens=input_tokens,
                output_tokens=output_tokens,
                cached_tokens=cached_tokens,
                reasoning_tokens=reasoning_tokens,
            )
        case Compacted():
            return ToldItem(kind="compacted")
        case Complained(problem, message, is_final):
            return _with_text(ToldItem(kind="complained", name=problem, is_final=is_final), message)
        case Finished(reason):
            return _with_text(ToldItem(kind="finished"), reason)


def _with_text(item: ToldItem, text: str) -> ToldItem:
    return item.replaced(text=text[:TEXT_MAX_CHARS], is_cut=len(text) > TEXT_MAX_CHARS)
