"""What a client of the Gemini API understands of its answers, whole and streamed: the other half of the dialect, for tests."""

from __future__ import annotations

import json
from typing import Any, Final

from providers.dialects.base import Malformed
from providers.dialects.catalog import DIALECTS
from providers.dialects.gemini import Gemini
from providers.dialects.gemini.thoughts import read_proof
from providers.dialects.unfolding import unfold
from schemas.conversation import Delta, DialectName, Part, Reasoning, Reply, StopReason, Text, TokenUsage, ToolUse

ENDS: Final[dict[str, StopReason]] = {"STOP": "stop", "MAX_TOKENS": "length", "SAFETY": "refusal"}


class GeminiClient(Gemini):
    """See the module."""

    def read_reply(self, body: dict[str, Any]) -> Reply:
        """Return the answer that a `GenerateContentResponse` is."""
        return reply_of([body])

    def stream_reader(self) -> ChunkReader:
        """Return a reader for one stream."""
        return ChunkReader()


READERS: Final[dict[DialectName, Any]] = {**DIALECTS, "gemini": GeminiClient()}
"""By dialect, what reads the answers that its clients get."""


class ChunkReader:
    """Keeps the chunks of one stream until the one that says why it ended."""

    is_ending = False

    def __init__(self) -> None:
        """Begin with nothing."""
        self._chunks: list[dict[str, Any]] = []

    def feed(self, event: str | None, data: str) -> list[Delta]:
        """Take in a chunk; return the whole answer with the last."""
        assert event is None, "this API names no events"
        chunk = json.loads(data)
        if "error" in chunk:
            raise Malformed(chunk["error"]["message"])
        self._chunks.append(chunk)
        self.is_ending = "finishReason" in chunk["candidates"][0]
        return list(unfold(reply_of(self._chunks))) if self.is_ending else []

    def end(self) -> list[Delta]:
        """Return nothing: the answer was told with its last chunk."""
        if not self.is_ending:
            msg = "no chunk said why the answer ended"
            raise Malformed(msg)
        return []


def reply_of(chunks: list[dict[str, Any]]) -> Reply:
    """Return the answer that some chunks make; words that follow each other are one part, as clients keep them."""
    parts: list[Part] = []
    for chunk in chunks:
        [candidate] = chunk["candidates"]
        assert candidate["content"]["role"] == "model"
        for part in candidate["content"]["parts"]:
            _add(parts, part)
    last = chunks[-1]
    reason = ENDS[last["candidates"][0]["finishReason"]]
    has_calls = any(isinstance(part, ToolUse) for part in parts)
    return Reply(
        dialect="gemini",
        id=last["responseId"],
        model=last["modelVersion"],
        parts=tuple(parts),
        stop_reason="tool_calls" if has_calls and reason == "stop" else reason,
        usage=_usage(last.get("usageMetadata")),
    )


def _add(parts: list[Part], part: dict[str, Any]) -> None:
    parts += read_proof(part.get("thoughtSignature", ""))
    if part.get("thought"):
        return
    if call := part.get("functionCall"):
        parts.append(ToolUse(id=call["id"], name=call["name"], arguments=json.dumps(call["args"])))
        return
    if parts and isinstance(last := parts[-1], Text):
        parts[-1] = Text(text=last.text + part["text"])
    elif part["text"]:
        parts.append(Text(text=part["text"]))


def _usage(counts: dict[str, int] | None) -> TokenUsage | None:
    if counts is None:
        return None
    thoughts = counts.get("thoughtsTokenCount", 0)
    assert counts["totalTokenCount"] == counts["promptTokenCount"] + counts["candidatesTokenCount"] + thoughts
    return TokenUsage(
        input_tokens=counts["promptTokenCount"],
        output_tokens=counts["candidatesTokenCount"] + thoughts,
        cached_tokens=counts.get("cachedContentTokenCount", 0),
        reasoning_tokens=thoughts,
    )


def thoughts_of(reply: Reply) -> tuple[str, ...]:
    """Return what an answer's thoughts say."""
    return tuple(text for part in reply.parts if isinstance(part, Reasoning) for text in part.texts or part.summaries)
