"""What runners of ours print of agents whose model answers in words: what it was told, its replies, what came of what it typed."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from adapters.harnesses.readers import LineReader, Record, as_text, number, word
from adapters.harnesses.trajectory import Finished, Item, ReplyDone, Said, Thought, ToolAsked, ToolDone, complaint

TYPES: Final = "bash_command"
"""What Harbor's own trajectories call what it types."""


def reader() -> LineReader:
    """Return a reader for what the runner prints."""
    return LineReader(_interpret)


def _interpret(record: Record) -> Iterable[Item] | None:
    match record["type"]:
        case "said":
            return [Said("user", str(record["text"]))]
        case "reply":
            return _reply(record)
        case "done":
            spent = record.get("duration_s")
            return [
                ToolDone(str(record["id"]), str(record["text"]), duration_s=None if spent is None else float(spent))
            ]
        case "finished":
            return [Finished(str(record["reason"]))]
        case "failed":
            return [complaint(str(record["message"]), is_final=True)]
        case _:
            return None


def _reply(record: Record) -> list[Item]:
    items: list[Item] = [Thought(str(record["thought"]))] if record.get("thought") else []
    items.append(Said("assistant", str(record["text"])))
    for call_id, typed in (record.get("asked") or {}).items():
        items.append(ToolAsked(str(call_id), TYPES, as_text(typed), is_rewritten=True))
    counts = (number(record.get(name)) for name in ("input_tokens", "output_tokens", "cached_tokens"))
    return [*items, ReplyDone(word(record.get("reply")), *counts)]
