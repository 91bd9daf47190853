"""What the log holds of a program's account, as items again, to be joined to the calls that the gateway recorded."""

from __future__ import annotations

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
from schemas.harnesses import ToldItem


def heard(told: ToldItem) -> Item:  # noqa: C901, PLR0911  one return a kind
    """Return the item that was told so: the other way round of `adapters.harnesses.told.told`."""
    text, name, call_id = told.text or "", told.name or "", told.id or ""
    match told.kind:
        case "session":
            return SessionNamed(call_id)
        case "said":
            return Said(name, text)  # type: ignore[arg-type]
        case "thought":
            return Thought(text)
        case "planned":
            return Planned(text)
        case "tool_asked":
            return ToolAsked(call_id, name, text, told.is_rewritten)
        case "tool_done":
            return ToolDone(call_id, text, told.exit_code, told.is_error, told.duration_s)
        case "reply_done":
            counts = (told.input_tokens, told.output_tokens, told.cached_tokens, told.reasoning_tokens)
            return ReplyDone(told.id, *counts)
        case "compacted":
            return Compacted()
        case "complained":
            return Complained(name, text, told.is_final)  # type: ignore[arg-type]
        case "finished":
            return Finished(text)
