"""What programs write anew each time they run, where nothing else has changed: a question that differs in this only is the same one.

Only what is listed here is passed over, and only at the beginning or the end of what a tool returned. Dates, paths and names are not.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Final

from schemas.conversation import Part, Text, ToolResult, Turn
from schemas.harnesses import HarnessName

ANEW: Final[Mapping[HarnessName, tuple[re.Pattern[str], ...]]] = {
    "codex_agent": (re.compile(r"\AChunk ID: [0-9a-f]{1,16}\nWall time: \d+(\.\d+)? seconds\n"),),
    "gemini_cli": (re.compile(r"\nProcess Group PGID: \d+(?=\n</untrusted_context>\Z)"),),
}
"""By harness: a number that it draws for each piece of output and how long its command took; the number of a process."""


def written_anew(agent: str) -> Sequence[re.Pattern[str]]:
    """Return the patterns of the agent with this name; none for one that has none."""
    return next((patterns for name, patterns in ANEW.items() if name == agent), ())


def without(patterns: Sequence[re.Pattern[str]], turn: Turn) -> Turn:
    """Return a turn whose tool results lack what `patterns` find."""
    if turn.role != "tool" or not patterns:
        return turn
    return turn.replaced(parts=tuple(_part(patterns, part) for part in turn.parts))


def _part(patterns: Sequence[re.Pattern[str]], part: Part) -> Part:
    if not isinstance(part, ToolResult):
        return part
    texts = tuple(_text(patterns, inner) if isinstance(inner, Text) else inner for inner in part.parts)
    return part.replaced(parts=texts)


def _text(patterns: Sequence[re.Pattern[str]], part: Text) -> Text:
    text = part.text
    for pattern in patterns:
        text = pattern.sub("", text)
    return part.replaced(text=text)
