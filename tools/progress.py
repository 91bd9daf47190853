"""The notes that a model keeps for itself through resets of its context: one text, written anew each time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from schemas.values import ToolCall, ToolSpec
from tools.shell import BadArguments, arguments_of, text_of

PROGRESS_MAX_BYTES: Final = 16 * 1024

PROGRESS: Final = ToolSpec(
    name="update_progress",
    description=(
        "Write down your progress: what you have found out, with sources, what was ruled out, and what to try next. "
        "The text takes the place of the one you wrote before. It is what is left to you when older steps are no longer shown."
    ),
    parameters={
        "type": "object",
        "properties": {"progress": {"type": "string", "description": "All of your notes."}},
        "required": ["progress"],
        "additionalProperties": False,
    },
)


@dataclass(frozen=True, slots=True)
class Note:
    """What a model wants to keep."""

    text: str


def parse_note(tool_call: ToolCall) -> Note | BadArguments:
    """Return the notes of a call of `PROGRESS`, or why they are none."""
    arguments = arguments_of(tool_call, example=': {"progress": "..."}')
    if isinstance(arguments, BadArguments):
        return arguments
    if isinstance(refused := text_of(arguments), BadArguments):
        return refused
    text = arguments.get("progress")
    if set(arguments) != {"progress"} or not isinstance(text, str):
        return BadArguments('Want exactly one argument, a text: {"progress": "..."}. Nothing was noted.')
    size = len(text.encode())
    if size > PROGRESS_MAX_BYTES:
        return BadArguments(
            f"The notes are {size} bytes long, at most {PROGRESS_MAX_BYTES} are kept. Nothing was noted."
        )
    return Note(text)
