"""A streamed answer, written chunk by chunk as it comes.

Thoughts in several pieces are set apart by a blank line, as in a whole answer. A part that a backend gives only when it is whole is
written then; of one that was written as it grew, only what is still missing.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from providers.dialects.base import Unexpressible
from providers.dialects.chat.accounting import write_logprobs, write_usage
from providers.dialects.chat.assistant import ARGUMENTS, write_call
from providers.dialects.chat.messages_writing import BETWEEN_THOUGHTS
from providers.dialects.chat.parts import is_annotation
from providers.dialects.chat.problem import error_body
from providers.dialects.chat.stopping import write_stop
from providers.dialects.chat.stream_reading import DONE
from providers.dialects.sse import event_bytes
from schemas.conversation import (
    Delta,
    Part,
    PartBegan,
    PartEnded,
    PartGrew,
    Reasoning,
    Refusal,
    ReplyBegan,
    ReplyBroke,
    ReplyEnded,
    Request,
    Text,
    TokenLogprob,
    ToolUse,
)


@dataclass
class _Part:
    """How much of a part has been written.

    Of a thought: whether its texts are `told` or its summaries, and which of them. Of a call: its place among the calls and its kind.
    """

    written_chars: int = 0
    told: str | None = None
    nth: int | None = None
    place: int = 0
    kind: str = "function"


class ChatStreamWriter:
    """See the module."""

    def __init__(self, request: Request) -> None:
        """Begin before the first chunk; `request` says whether the client wants to know the usage."""
        self._wants_usage = request.wants_usage
        self._head: dict[str, Any] = {"id": "", "object": "chat.completion.chunk", "created": 0, "model": request.model}
        self._parts: dict[int, _Part] = {}
        self._calls = 0
        self._has_thought = False

    def write(self, delta: Delta) -> bytes:
        """Return the server-sent events for one delta, perhaps none."""
        match delta:
            case ReplyBegan():
                self._head |= {"id": delta.id, "model": delta.model, "created": delta.created or 0}
                return self._chunk({"role": "assistant", "content": ""})
            case PartBegan():
                return self._begin(delta.index, delta.part)
            case PartGrew():
                return self._grow(delta)
            case PartEnded():
                return self._end(delta.index, delta.part)
            case ReplyEnded():
                return self._finish(delta)
            case ReplyBroke():
                return _event(error_body(delta.message, "server_error", delta.code))

    # -- parts ----------------------------------------------------------------------------------------------------------------

    def _begin(self, index: int, part: Part) -> bytes:
        state = self._parts[index] = _Part()
        if isinstance(part, ToolUse):
            state.place, state.kind, state.written_chars = self._calls, part.kind, len(part.arguments)
            self._calls += 1
            path = f"choices.0.delta.tool_calls.{state.place}"
            return self._chunk({"tool_calls": [{"index": state.place, **write_call(part, path)}]})
        return self._missing(state, part)

    def _grow(self, delta: PartGrew) -> bytes:
        state = self._parts.setdefault(delta.index, _Part())
        match delta.field:
            case "reasoning" | "summary":
                return self._think(state, delta.field, delta.nth, delta.more, delta.logprobs)
            case "text" | "refusal":
                return self._say(state, delta.field, delta.more, delta.logprobs)
            case "arguments":
                return self._call_on(state, delta.more, delta.logprobs)
            case _:  # what proves or hides a thought has no place here
                return b""

    def _end(self, index: int, part: Part) -> bytes:
        if index not in self._parts:
            return self._begin(index, part) + self._end(index, part)
        state = self._parts[index]
        missing = self._missing(state, part)
        if isinstance(part, Text) and (citations := [one for one in part.citations if is_annotation(one)]):
            missing += self._chunk({"annotations": citations})
        return missing

    def _missing(self, state: _Part, part: Part) -> bytes:
        """Return what has not yet been written of a part."""
        match part:
            case Text():
                return self._say(state, "text", part.text[state.written_chars :])
            case Refusal():
                return self._say(state, "refusal", part.text[state.written_chars :])
            case ToolUse():
                return self._call_on(state, part.arguments[state.written_chars :])
            case Reasoning():
                return self._missing_thought(state, part)
            case _:
                raise Unexpressible("choices.0.delta", f"a part of type {part.type!r} cannot be answered with")

    def _missing_thought(self, state: _Part, part: Reasoning) -> bytes:
        is_summary = state.told == "summary" or (state.told is None and not part.texts)
        told = part.summaries if is_summary else part.texts
        written, left = b"", state.written_chars
        for nth, words in enumerate(told):
            more, left = words[left:], max(0, left - len(words))
            written += self._think(state, "summary" if is_summary else "reasoning", nth, more)
        return written

    # -- pieces ---------------------------------------------------------------------------------------------------------------

    def _think(self, state: _Part, field: str, nth: int, more: str, logprobs: tuple[TokenLogprob, ...] = ()) -> bytes:
        """Return more of a thought; of one that is told twice, in full and in summary, only what began first."""
        if state.told not in (None, field) or not (more or logprobs):
            return b""
        is_new = state.nth != nth and bool(more)
        between = BETWEEN_THOUGHTS if is_new and self._has_thought else ""
        if more:
            state.told, state.nth, self._has_thought = field, nth, True
        state.written_chars += len(more)
        return self._chunk({"reasoning_content": between + more}, logprobs)

    def _say(self, state: _Part, field: str, more: str, logprobs: tuple[TokenLogprob, ...] = ()) -> bytes:
        if not (more or logprobs):
            return b""
        state.written_chars += len(more)
        name = "content" if field == "text" else "refusal"
        return self._chunk({name: more}, logprobs, are_of_refusal=field == "refusal")

    def _call_on(self, state: _Part, more: str, logprobs: tuple[TokenLogprob, ...] = ()) -> bytes:
        if not (more or logprobs):
            return b""
        state.written_chars += len(more)
        entry = {"index": state.place, state.kind: {ARGUMENTS[state.kind]: more}}
        return self._chunk({"tool_calls": [entry]}, logprobs)

    # -- chunks ---------------------------------------------------------------------------------------------------------------

    def _finish(self, delta: ReplyEnded) -> bytes:
        ended = self._chunk({}, stop=write_stop(delta.stop_reason, delta.stop_sequence))
        if self._wants_usage and delta.usage is not None:
            ended += _event({**self._head, "choices": [], "usage": write_usage(delta.usage)})
        return ended + event_bytes(DONE)

    def _chunk(
        self,
        delta: dict[str, Any],
        logprobs: tuple[TokenLogprob, ...] = (),
        *,
        are_of_refusal: bool = False,
        stop: dict[str, Any] | None = None,
    ) -> bytes:
        choice = {
            "index": 0,
            "delta": delta,
            "logprobs": write_logprobs(logprobs, are_of_refusal=are_of_refusal) if logprobs else None,
            **(stop or {"finish_reason": None}),
        }
        usage = {"usage": None} if self._wants_usage else {}
        return _event({**self._head, "choices": [choice], **usage})


def _event(value: dict[str, Any]) -> bytes:
    return event_bytes(json.dumps(value, separators=(",", ":")))
