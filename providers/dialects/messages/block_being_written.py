"""A content block of a streamed message while it is written: what has been sent of it, and what is still to be sent."""

from __future__ import annotations

from typing import Any, Literal

from providers.dialects.base import Unexpressible
from providers.dialects.json_text import is_object, object_text
from providers.dialects.messages.blocks_out import BETWEEN_THOUGHTS, check_call, hosted_block, is_speechless, thought_of
from schemas.conversation import Hosted, Part, PartGrew, Reasoning, Refusal, Text, ToolUse

Event = dict[str, Any]


class BlockBeingWritten:
    """`index` counts the answer's parts, `number` the message's blocks: None until the block has begun."""

    def __init__(self, index: int, part: Part) -> None:
        """Begin with what is known of the part; raises `Unexpressible` if no message can hold it."""
        self.index = index
        self.number: int | None = None
        self._part = part
        self._sent = 0
        self._thinks_in: Literal["reasoning", "summary"] | None = None
        self._nth = 0
        self._pieces: list[str] = []
        if isinstance(part, ToolUse):
            check_call(part, f"parts.{index}")

    @property
    def may_say_nothing(self) -> bool:
        """Tell whether the block has not begun, and is a thought of which nothing is known that can be said here."""
        part = self._part
        if self.number is not None or not isinstance(part, Reasoning):
            return False
        return not thought_of(part) and part.signature is None and part.redacted is None

    @property
    def is_speechless(self) -> bool:
        """Tell whether the part, now whole, is a thought that only another provider can read."""
        return isinstance(self._part, Reasoning) and is_speechless(self._part)

    @property
    def is_fit(self) -> bool:
        """Tell whether the block can be ended: a call's arguments must be a JSON object, or nothing at all."""
        if not isinstance(self._part, ToolUse):
            return True
        arguments = self._part.arguments or "".join(self._pieces)
        return not arguments.strip() or is_object(arguments)

    def open(self, number: int) -> list[Event]:
        """Return the block's beginning, and the words that are known already."""
        self.number = number
        part = self._part
        if isinstance(part, Reasoning) and (part.texts or part.summaries):
            self._thinks_in = "reasoning" if part.texts else "summary"
            self._nth = len(part.texts or part.summaries) - 1
        return [{"type": "content_block_start", "index": number, "content_block": self._beginning()}, *self._words()]

    def shows(self, growth: PartGrew) -> bool:
        """Tell whether a growth is sent when it comes; a thought is told in its own words or in its summary's, not in both."""
        match self._part, growth.field:
            case (Text() | Refusal(), "text" | "refusal") | (ToolUse(), "arguments"):
                return True
            case Reasoning(redacted=None), "reasoning" | "summary":
                return self._thinks_in in {None, growth.field}
            case Reasoning(), "signature":
                self._pieces.append(growth.more)
                return False
            case _:
                return False

    def grow(self, growth: PartGrew) -> list[Event]:
        """Return the delta of a growth that shows."""
        if isinstance(self._part, ToolUse):
            self._pieces.append(growth.more)
        if not isinstance(self._part, Reasoning):
            return self._more(growth.more)
        self._thinks_in = "reasoning" if growth.field == "reasoning" else "summary"
        gap = BETWEEN_THOUGHTS * max(0, growth.nth - self._nth)
        self._nth = max(growth.nth, self._nth)
        return self._more(gap + growth.more)

    def complete(self, part: Part) -> None:
        """Take in the whole part."""
        if type(part) is not type(self._part):
            raise Unexpressible(f"parts.{self.index}", f"began as {self._part.type} and ended as {part.type}")
        self._part = part

    def remainder(self) -> list[Event]:
        """Return what has not been sent of the part."""
        events = self._words()
        match self._part:
            case Text(citations=citations):
                events += [self._delta("citations_delta", "citation", citation) for citation in citations]
            case Reasoning(redacted=None) as thought:
                if signature := thought.signature or "".join(self._pieces):
                    events.append(self._delta("signature_delta", "signature", signature))
            case ToolUse() if self._sent and not (self._part.arguments or "".join(self._pieces)).strip():
                events.append(self._delta("input_json_delta", "partial_json", "{}"))  # after blanks, which are no JSON
            case Hosted(item={"type": "compaction", "content": content}):
                events.append(self._delta("compaction_delta", "content", content))
            case _:
                pass
        return events

    def stop(self) -> Event:
        """Return the block's end."""
        return {"type": "content_block_stop", "index": self.number}

    def _beginning(self) -> Event:
        match self._part:
            case Text() | Refusal():
                return {"type": "text", "text": ""}
            case Reasoning(redacted=None):
                return {"type": "thinking", "thinking": "", "signature": ""}
            case Reasoning(redacted=redacted):
                return {"type": "redacted_thinking", "data": redacted}
            case ToolUse(id=id_, name=name):
                return {"type": "tool_use", "id": id_, "name": name, "input": {}}
            case Hosted() as hosted:
                block = hosted_block(hosted, f"parts.{self.index}")
                return block | {"input": {}} if isinstance(block.get("input"), dict) else block
            case other:
                raise Unexpressible(f"parts.{self.index}", f"a message holds no {other.type}")

    def _words(self) -> list[Event]:
        """Return the delta of what is known and has not been sent."""
        match self._part:
            case Text(text=words) | Refusal(text=words) | ToolUse(arguments=words):
                pass
            case Reasoning(redacted=None) as thought:
                words = (
                    BETWEEN_THOUGHTS.join(thought.summaries) if self._thinks_in == "summary" else thought_of(thought)
                )
            case Hosted(item={"input": dict() as given}) if given and self._sent == 0:
                words = object_text(given, f"parts.{self.index}.input")
            case _:
                return []
        return self._more(words[self._sent :])

    def _more(self, words: str) -> list[Event]:
        if not words:
            return []
        self._sent += len(words)
        match self._part:
            case Text() | Refusal():
                return [self._delta("text_delta", "text", words)]
            case Reasoning():
                return [self._delta("thinking_delta", "thinking", words)]
            case _:
                return [self._delta("input_json_delta", "partial_json", words)]

    def _delta(self, kind: str, name: str, value: Any) -> Event:
        return {"type": "content_block_delta", "index": self.number, "delta": {"type": kind, name: value}}
