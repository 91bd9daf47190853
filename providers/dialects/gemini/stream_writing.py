"""A streamed answer written, chunk by chunk as it comes: words and thoughts piece by piece, a call when it is whole.

A call whose arguments are no JSON object is held back until the answer's end is known: if it was cut off the call is left out,
otherwise it raises `Unexpressible`, so that nobody runs what the model did not say. One without any arguments is held back until
something follows: if the answer was cut off there, they had not come yet.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from providers.dialects.base import Problem, Unexpressible
from providers.dialects.cutting import CUT_OFF
from providers.dialects.gemini.endings import write_logprobs, write_stop, write_usage
from providers.dialects.gemini.parts_writing import BETWEEN_THOUGHTS, check_call, no_place, shows_thoughts, write_call
from providers.dialects.gemini.problems import write_problem
from providers.dialects.gemini.thoughts import write_proof
from providers.dialects.json_text import is_object
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

FAILED = 500


@dataclass
class _Part:
    """How much of a part has been written; of a thought, whether its texts or its summaries are told, and which of them."""

    written_chars: int = 0
    told: str | None = None
    nth: int = 0


class GeminiStreamWriter:
    """See the module."""

    def __init__(self, request: Request) -> None:
        """Begin before the first chunk; `request` says whether the client wants to read thoughts."""
        self._shows_thoughts = shows_thoughts(request)
        self._head: dict[str, Any] = {"modelVersion": request.model}
        self._parts: dict[int, _Part] = {}
        self._unproven: list[Reasoning] = []
        self._unfit: int | None = None
        self._held = b""

    def write(self, delta: Delta) -> bytes:
        """Return the server-sent events for one delta, perhaps none."""
        match delta:
            case ReplyBegan():
                self._head = {"modelVersion": delta.model, "responseId": delta.id}
                return b""
            case PartBegan():
                return self._release() + self._begin(delta.index, delta.part)
            case PartGrew():
                return self._release() + self._grow(delta)
            case PartEnded():
                return self._release() + self._end(delta.index, delta.part)
            case ReplyEnded():
                return self._finish(delta)
            case ReplyBroke():
                return _event(write_problem(Problem(FAILED, delta.code or "internal", delta.message)))

    def _begin(self, index: int, part: Part) -> bytes:
        state = self._parts[index] = _Part()
        match part:
            case Text() | Refusal():
                return self._say(state, part.text)
            case Reasoning():
                return self._missing_thought(state, part)
            case ToolUse():
                check_call(part, f"parts.{index}")
                return b""
            case _:
                raise no_place(part, index)

    def _grow(self, delta: PartGrew) -> bytes:
        state = self._parts.setdefault(delta.index, _Part())
        match delta.field:
            case "text" | "refusal":
                return self._say(state, delta.more, delta.logprobs)
            case "reasoning" | "summary":
                return self._think(state, delta.field, delta.nth, delta.more)
            case _:  # a call, and what proves a thought, are told when they are whole
                return b""

    def _end(self, index: int, part: Part) -> bytes:
        begun = b"" if index in self._parts else self._begin(index, part)
        state = self._parts[index]
        match part:
            case Text() | Refusal():
                return begun + self._say(state, part.text[state.written_chars :])
            case Reasoning():
                missing = self._missing_thought(state, part)
                self._unproven.append(part)
                return begun + missing
            case ToolUse() if part.arguments.strip() and not is_object(part.arguments):
                self._unfit = index if self._unfit is None else self._unfit
                return begun
            case ToolUse():
                told = self._chunk(write_call(part, f"parts.{index}"))
                if part.arguments.strip():
                    return begun + told
                self._held = told
                return begun
            case _:
                raise no_place(part, index)

    def _release(self) -> bytes:
        held, self._held = self._held, b""
        return held

    def _say(self, state: _Part, more: str, logprobs: Sequence[TokenLogprob] = ()) -> bytes:
        if not (more or logprobs):
            return b""
        state.written_chars += len(more)
        return self._chunk({"text": more}, write_logprobs(logprobs))

    def _missing_thought(self, state: _Part, part: Reasoning) -> bytes:
        is_summary = state.told == "summary" or (state.told is None and not part.texts)
        told = part.summaries if is_summary else part.texts
        written, left = b"", state.written_chars
        for nth, words in enumerate(told):
            more, left = words[left:], max(0, left - len(words))
            written += self._think(state, "summary" if is_summary else "reasoning", nth, more)
        return written

    def _think(self, state: _Part, field: str, nth: int, more: str) -> bytes:
        """Return more of a thought; of one that is told twice, in full and in summary, only what began first."""
        if state.told not in (None, field) or not more:
            return b""
        between = BETWEEN_THOUGHTS if state.nth != nth and state.told else ""
        state.told, state.nth = field, nth
        state.written_chars += len(more)
        return self._chunk({"text": between + more, "thought": True}) if self._shows_thoughts else b""

    def _finish(self, delta: ReplyEnded) -> bytes:
        if self._unfit is not None and delta.stop_reason not in CUT_OFF:
            raise Unexpressible(f"parts.{self._unfit}.arguments", "must be a JSON object here, and are none")
        held = b"" if delta.stop_reason in CUT_OFF else self._release()
        last = {"text": ""} if self._unproven else None
        return held + self._chunk(last, {"finishReason": write_stop(delta.stop_reason)}, write_usage(delta.usage))

    def _chunk(
        self, part: dict[str, Any] | None, about: dict[str, Any] | None = None, usage: dict[str, Any] | None = None
    ) -> bytes:
        """Return one chunk; the first part after thoughts carries their signature."""
        if part is not None and self._unproven and not part.get("thought"):
            part = {**part, "thoughtSignature": write_proof(self._unproven)}
            self._unproven = []
        content = {"role": "model", "parts": [] if part is None else [part]}
        candidate = {"content": content, "index": 0, **(about or {})}
        return _event({"candidates": [candidate], **(usage or {}), **self._head})


def _event(value: dict[str, Any]) -> bytes:
    return event_bytes(json.dumps(value, separators=(",", ":")))
