"""What is told of a part while it grows: that a text begins, each piece of it as it comes, and all of it at its end."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Final

from providers.dialects.responses.growth import GrowingField, Key, words
from providers.dialects.responses.reply_writing import spoken_content
from providers.dialects.responses.shapes import summary_content, thought_content, written_logprobs
from providers.dialects.sse import event_bytes
from schemas.conversation import Part, PartGrew, Reasoning, Refusal, Text, TokenLogprob, ToolUse


class Events:
    """Puts events into bytes, and numbers them."""

    def __init__(self) -> None:
        """Begin with the number 0."""
        self._next = 0

    def say(self, type_: str, **fields: Any) -> bytes:
        """Return one event."""
        body = {"type": type_, "sequence_number": self._next, **fields}
        self._next += 1
        return event_bytes(json.dumps(body, separators=(",", ":")), type_)


@dataclass(frozen=True, slots=True)
class Wording:
    """What the events about one growing text are called.

    `stem` is in the names of those with a piece and with all of it, `whole` is the field that holds all, `index` the field
    that tells which text it is, `frame` is in the names of the events around it, if there are any.
    """

    stem: str
    whole: str
    index: str | None = None
    frame: str | None = None


WORDINGS: Final[dict[GrowingField, Wording]] = {
    "text": Wording("output_text", "text", "content_index", "content_part"),
    "refusal": Wording("refusal", "refusal", "content_index", "content_part"),
    "summary": Wording("reasoning_summary_text", "text", "summary_index", "reasoning_summary_part"),
    "reasoning": Wording("reasoning_text", "text", "content_index", "content_part"),
    "arguments": Wording("function_call_arguments", "arguments"),
}
CUSTOM_INPUT: Final = Wording("custom_tool_call_input", "input")


class OpenPart:
    """A part that is being told. `place` is its item's in the output, `content_index` where it stands in a message."""

    def __init__(self, part: Part, events: Events, place: int, item_id: str, content_index: int = 0) -> None:
        """Begin with what is known of `part`, which `begin` tells."""
        self.part = part
        self.place = place
        self.content_index = content_index
        self._events = events
        self._about = {"item_id": item_id, "output_index": place}
        self._pieces: dict[Key, list[str]] = {}
        self._closed: set[Key] = set()
        self._logprobs: list[TokenLogprob] = []

    def begin(self) -> bytes:
        """Return what tells that the part's texts begin, and what is known of them."""
        return b"".join(self._more(key, more) for key, more in words(self.part).items())

    def grow(self, delta: PartGrew) -> bytes:
        """Return what tells of one piece; a signature is nothing that can be told."""
        field = "text" if isinstance(self.part, Text) else "refusal" if isinstance(self.part, Refusal) else delta.field
        if field not in WORDINGS:
            return b""
        self._logprobs += delta.logprobs
        return self._more((field, delta.nth), delta.more, delta.logprobs)

    def end(self, part: Part) -> bytes:
        """Return what tells all of the part's texts, after what was not told of them yet."""
        return b"".join(self._rest(key, text, part) for key, text in words(part).items())

    def whole(self) -> Part:
        """Return the part as far as it was told."""
        told = {key: "".join(pieces) for key, pieces in self._pieces.items()}
        match self.part:
            case Text() | Refusal():
                return self.part.model_copy(update={"text": "".join(told.values())})
            case ToolUse():
                return self.part.model_copy(update={"arguments": "".join(told.values())})
            case Reasoning():
                texts = tuple(text for (field, _), text in sorted(told.items()) if field == "reasoning")
                summaries = tuple(text for (field, _), text in sorted(told.items()) if field == "summary")
                return self.part.model_copy(update={"texts": texts, "summaries": summaries})
            case _:
                return self.part

    def content(self, part: Text | Refusal) -> dict[str, Any]:
        """Return the part as it stands in its message."""
        return spoken_content(part, tuple(self._logprobs))

    def _rest(self, key: Key, text: str, part: Part) -> bytes:
        told = sum(map(len, self._pieces.get(key, ())))
        is_all_told = key in self._pieces and told >= len(text)
        said = b"" if is_all_told else self._more(key, text[told:])
        return said if key in self._closed else said + self._close(key, text, part)

    def _more(self, key: Key, more: str, logprobs: tuple[TokenLogprob, ...] = ()) -> bytes:
        said = b""
        if key not in self._pieces:
            before = next(reversed(self._pieces), None)  # only the last one can be unfinished
            if before is not None and before not in self._closed:
                said += self._close(before, "".join(self._pieces[before]), self.part)
            self._pieces[key] = []
            said += self._framed(key, "added", self._frame_content(key, "", None))
        if not more and not logprobs:
            return said
        self._pieces[key].append(more)
        told = {"logprobs": written_logprobs(logprobs, has_bytes=False)} if key[0] == "text" else {}
        return said + self._say(key, f"{self._wording(key).stem}.delta", delta=more, **told)

    def _close(self, key: Key, text: str, part: Part) -> bytes:
        self._closed.add(key)
        wording = self._wording(key)
        told = {"logprobs": written_logprobs(tuple(self._logprobs), has_bytes=False)} if key[0] == "text" else {}
        said = self._say(key, f"{wording.stem}.done", **{wording.whole: text}, **told)
        return said + self._framed(key, "done", self._frame_content(key, text, part))

    def _framed(self, key: Key, end: str, content: dict[str, Any]) -> bytes:
        frame = self._wording(key).frame
        return b"" if frame is None else self._say(key, f"{frame}.{end}", part=content)

    def _frame_content(self, key: Key, text: str, part: Part | None) -> dict[str, Any]:
        match key[0]:
            case "summary":
                return summary_content(text)
            case "reasoning":
                return thought_content(text)
            case "refusal":
                return self.content(Refusal(text=text))
            case _:
                return self.content(part if isinstance(part, Text) else Text(text=text))

    def _wording(self, key: Key) -> Wording:
        is_custom = isinstance(self.part, ToolUse) and self.part.kind == "custom"
        return CUSTOM_INPUT if is_custom else WORDINGS[key[0]]

    def _say(self, key: Key, name: str, **fields: Any) -> bytes:
        index = self._wording(key).index
        nth = {} if index is None else {index: key[1] + self.content_index}
        return self._events.say(f"response.{name}", **self._about, **nth, **fields)
