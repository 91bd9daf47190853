"""Which old images, thoughts and tool results a prompt no longer shows.

A conversation of our loops is text: images are those written into it as data URLs, thoughts those between `<think>` and `</think>`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from actors.harness.context_view import ContextView
from schemas.events.context import EditedMessage
from schemas.loops import HistoryPolicy
from schemas.values import Message

_IMAGE: Final = re.compile(r"data:image/[A-Za-z0-9.+-]{1,40};base64,[A-Za-z0-9+/=_-]+")
_THOUGHT: Final = re.compile(r"(?:<think>|\A).*?</think>\s*", re.DOTALL)
_THOUGHT_END: Final = "</think>"


@dataclass(frozen=True, slots=True)
class Omissions:
    """Messages to be shown changed, and how many of each kind are shown no longer because of it."""

    edited: tuple[EditedMessage, ...] = ()
    images: int = 0
    reasoning_blocks: int = 0
    tool_results: int = 0


def omissions(messages: Sequence[Message], view: ContextView, given: int, policy: HistoryPolicy) -> Omissions:
    """Return what `policy` leaves out beyond what `view` does. What follows the last answer is as yet untold: it stays as it is."""
    first = max(view.start, given)
    shown = {n: view.edited.get(n, m.content or "") for n, m in enumerate(messages) if n >= first}
    last = max((n for n in shown if messages[n].role == "assistant"), default=-1)
    content, counts = dict(shown), {"images": 0, "reasoning_blocks": 0, "tool_results": 0}

    def leave_out(places: Sequence[int], keep: int, kind: str, change: Callable[[str], tuple[str, int]]) -> None:
        for place in places[: max(0, len(places) - keep)]:
            changed, count = change(content[place])
            if place < last and count and (changed or messages[place].tool_calls):
                content[place] = changed
                counts[kind] += count

    if policy.tool_results:
        results = [n for n in shown if messages[n].role == "tool"]
        marker = policy.tool_results.omission_marker
        leave_out(
            results,
            policy.tool_results.keep_last_results,
            "tool_results",
            lambda text: (marker, int(len(text) > len(marker))),
        )
    if policy.reasoning:
        answers = [n for n in shown if messages[n].role == "assistant" and _THOUGHT_END in shown[n]]
        leave_out(answers, policy.reasoning.keep_last_blocks, "reasoning_blocks", _without_thoughts)
    if policy.images:
        image_marker = policy.images.omission_marker
        groups = [n for n in shown if _IMAGE.search(shown[n])]
        leave_out(
            groups,
            policy.images.keep_last_groups,
            "images",
            lambda text: _IMAGE.subn(lambda _: image_marker, text),
        )
    edited = tuple(EditedMessage(place=n, content=text) for n, text in content.items() if text != shown[n])
    return Omissions(edited, **counts)


def _without_thoughts(text: str) -> tuple[str, int]:
    """Return a text without its thoughts, and how many there were, in linear time: none begins behind the last end of one."""
    told, end, rest = text.rpartition(_THOUGHT_END)
    kept, count = _THOUGHT.subn("", told + end)
    return (kept + rest.lstrip(), count) if end else (text, 0)
