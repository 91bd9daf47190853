"""A harness's account beside the gateway's: which reply is which recorded call, and where the two do not fit.

The gateway's log is what was said. What is only in the harness's files is told as a gap, never believed in its place.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from adapters.harnesses.trajectory import Item, ReplyDone, Said, Thought, ToolAsked, ToolDone
from schemas.conversation import Reasoning
from schemas.envelope import Envelope
from schemas.events import ModelCallCompleted

GapKind = Literal[
    "call_not_told",
    "reply_not_recorded",
    "text_differs",
    "calls_differ",
    "arguments_rewritten",
    "result_missing",
    "end_unknown",
    "duration_unknown",
    "thoughts_missing",
    "usage_differs",
    "matched_by_order",
    "prompt_missing",
]
"""What does not fit: a recorded call of which the harness says nothing (a side call, a repeated one), a reply that the log lacks, …"""


@dataclass(frozen=True, slots=True)
class RecordedCall:
    """A model call as the gateway recorded it: its request's id, what was answered, in the order of the log."""

    request_id: str
    reply_id: str | None
    text: str
    tool_calls: tuple[tuple[str, str, str], ...]
    input_tokens: int
    output_tokens: int
    has_thoughts: bool = False


@dataclass(frozen=True, slots=True)
class Gap:
    """One thing that does not fit, and where: a recorded call's request, a reply's place, a tool call's id."""

    kind: GapKind
    where: str


@dataclass(frozen=True, slots=True)
class ToldReply:
    """One reply of the model as the harness tells it."""

    done: ReplyDone
    texts: tuple[str, ...]
    thoughts: tuple[str, ...]
    asked: tuple[ToolAsked, ...]


@dataclass(frozen=True, slots=True)
class Joined:
    """Pairs of (recorded call's request, told reply), in order, and what does not fit."""

    pairs: tuple[tuple[str, ToldReply], ...]
    gaps: tuple[Gap, ...]

    @property
    def kinds(self) -> frozenset[GapKind]:
        """Return which kinds of gaps there are."""
        return frozenset(gap.kind for gap in self.gaps)


def recorded_calls(events: Iterable[Envelope]) -> list[RecordedCall]:
    """Return the calls that were completed, out of a conversation's events in their order."""
    return [_recorded(event.data) for event in events if isinstance(event.data, ModelCallCompleted)]


def _recorded(call: ModelCallCompleted) -> RecordedCall:
    thoughts = [part for part in call.parts or () if isinstance(part, Reasoning)]
    return RecordedCall(
        request_id=call.request_id,
        reply_id=call.reply_id,
        text=call.message.content or "",
        tool_calls=tuple((asked.id, asked.name, asked.arguments) for asked in call.message.tool_calls),
        input_tokens=call.usage.input_tokens,
        output_tokens=call.usage.output_tokens,
        has_thoughts=any(text for part in thoughts for text in (*part.texts, *part.summaries)),
    )


def replies_of(items: Iterable[Item]) -> list[ToldReply]:
    """Return the replies that are told to their end; results that come before a reply's end are not of it."""
    found: list[ToldReply] = []
    texts: list[str] = []
    thoughts: list[str] = []
    asked: list[ToolAsked] = []
    for item in items:
        match item:
            case Said(role="assistant", text=text):
                texts.append(text)
            case Thought(text=text):
                thoughts.append(text)
            case ToolAsked():
                asked.append(item)
            case ReplyDone():
                found.append(ToldReply(item, tuple(texts), tuple(thoughts), tuple(asked)))
                texts, thoughts, asked = [], [], []
            case _:
                pass
    return found


def join(items: Sequence[Item], calls: Sequence[RecordedCall]) -> Joined:
    """Return what fits what: by the backend's id of a reply, else by its tool calls' ids, else by order and words."""
    left, pairs, gaps = list(calls), [], []
    for place, reply in enumerate(replies_of(items)):
        call = _match(reply, left)
        if call is None:
            gaps.append(Gap("reply_not_recorded", str(place)))
            continue
        left.remove(call)
        pairs.append((call.request_id, reply))
        gaps += _differences(reply, call)
    gaps += [Gap("call_not_told", call.request_id) for call in left]
    gaps += _results(items)
    if not any(isinstance(item, Said) and item.role == "user" for item in items):
        gaps.append(Gap("prompt_missing", ""))
    return Joined(tuple(pairs), tuple(gaps))


def _match(reply: ToldReply, calls: Sequence[RecordedCall]) -> RecordedCall | None:
    if reply.done.reply_id is not None:
        return next((call for call in calls if call.reply_id == reply.done.reply_id), None)
    ids = {_plain(asked.call_id) for asked in reply.asked}
    if ids:
        return next((call for call in calls if ids & {_plain(id_) for id_, _, _ in call.tool_calls}), None)
    words = "".join(reply.texts)
    return next((call for call in calls if not call.tool_calls and call.text == words), None)


def _differences(reply: ToldReply, call: RecordedCall) -> Iterable[Gap]:
    if reply.done.reply_id is None:
        yield Gap("matched_by_order", call.request_id)
    if "".join(reply.texts) != call.text:
        yield Gap("text_differs", call.request_id)
    if [(_plain(a.call_id), a.name) for a in reply.asked] != [(_plain(id_), name) for id_, name, _ in call.tool_calls]:
        yield Gap("calls_differ", call.request_id)
    for asked, (_, _, arguments) in zip(reply.asked, call.tool_calls, strict=False):
        if not _same(asked.arguments, arguments):
            yield Gap("calls_differ", asked.call_id)
        elif asked.is_rewritten or asked.arguments != arguments:
            yield Gap("arguments_rewritten", asked.call_id)
    if call.has_thoughts and not any(reply.thoughts):
        yield Gap("thoughts_missing", call.request_id)
    if (reply.done.input_tokens, reply.done.output_tokens) != (call.input_tokens, call.output_tokens):
        yield Gap("usage_differs", call.request_id)


def _results(items: Sequence[Item]) -> Iterable[Gap]:
    done = {item.call_id: item for item in items if isinstance(item, ToolDone)}
    for item in items:
        if isinstance(item, ToolAsked):
            result = done.get(item.call_id)
            if result is None:
                yield Gap("result_missing", item.call_id)
                continue
            if result.exit_code is None and result.is_error is None:
                yield Gap("end_unknown", item.call_id)
            if result.duration_s is None:
                yield Gap("duration_unknown", item.call_id)


def _plain(call_id: str) -> str:
    """Return an id without punctuation, which some clients strip."""
    return "".join(letter for letter in call_id if letter.isalnum())


def _same(one: str, other: str) -> bool:
    """Say whether two texts are equal, or the same JSON."""
    if one == other:
        return True
    try:
        return bool(json.loads(one) == json.loads(other))
    except (ValueError, RecursionError):
        return False
