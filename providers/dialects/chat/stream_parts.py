"""The parts of one streamed answer as they grow: at most one of thoughts, words or refusal at a time, and any number of calls.

Chunks tell calls apart by an index and may go back to an earlier one, so a call ends with the answer, or when the next one
begins and its own arguments are a whole JSON object.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final, Literal, TypeAlias

from providers.dialects.base import Malformed
from providers.dialects.chat.assistant import ARGUMENTS
from providers.dialects.fields import Fields
from schemas.conversation import Delta, PartBegan, PartEnded, PartGrew, Reasoning, Refusal, Text, TokenLogprob, ToolUse

WordsField: TypeAlias = Literal["reasoning", "text", "refusal"]
BEGINNINGS: Final[dict[WordsField, Reasoning | Text | Refusal]] = {
    "reasoning": Reasoning(),
    "text": Text(text=""),
    "refusal": Refusal(text=""),
}


@dataclass
class _Words:
    index: int
    kind: WordsField
    pieces: list[str] = field(default_factory=list)
    citations: list[dict[str, Any]] = field(default_factory=list)

    def whole(self) -> Reasoning | Text | Refusal:
        words = "".join(self.pieces)
        match self.kind:
            case "reasoning":
                return Reasoning(texts=(words,))
            case "text":
                return Text(text=words, citations=tuple(self.citations))
            case "refusal":
                return Refusal(text=words)


@dataclass
class _Call:
    """A call; its `index` among the parts is None until its id and name are both known."""

    index: int | None = None
    id: str | None = None
    name: str | None = None
    kind: Literal["function", "custom"] = "function"
    pieces: list[str] = field(default_factory=list)
    is_ended: bool = False

    @property
    def is_open(self) -> bool:
        return self.index is not None and not self.is_ended

    def whole(self) -> ToolUse:
        if not self.id or not self.name:
            raise Malformed(f"a call of {self.name!r} with the id {self.id!r}: it needs both")
        return ToolUse(id=self.id, name=self.name, arguments="".join(self.pieces), kind=self.kind)

    def has_whole_object(self) -> bool:
        """Return whether nothing sensible can follow."""
        try:
            return self.kind == "function" and isinstance(json.loads("".join(self.pieces)), dict)
        except (ValueError, RecursionError):
            return False


class StreamedParts:
    """See the module. Each method yields what is to be said, and must be run to its end."""

    def __init__(self) -> None:
        """Begin with no part."""
        self._count = 0
        self._words: _Words | None = None
        self._calls: list[_Call] = []
        self._latest: _Call | None = None
        self._call_at: dict[int, _Call] = {}
        self._call_named: dict[str, _Call] = {}  # by its id
        self._logprobs: list[TokenLogprob] = []

    def hold(self, logprobs: tuple[TokenLogprob, ...]) -> None:
        """Keep probabilities until the next part grows."""
        self._logprobs += logprobs

    def add_words(self, kind: WordsField, more: str) -> Iterator[Delta]:
        """Go on with thoughts, words or a refusal; what was open of another kind ends."""
        if self._words is None or self._words.kind != kind:
            yield from self._end_words()
            self._words = _Words(self._next_index(), kind)
            yield PartBegan(index=self._words.index, part=BEGINNINGS[kind])
        self._words.pieces.append(more)
        yield self._grew(self._words.index, kind, more)

    def cite(self, citations: list[dict[str, Any]]) -> None:
        """Add where the open text comes from; without one it is not clear what they are about."""
        if self._words is not None and self._words.kind == "text":
            self._words.citations += citations

    def add_call(self, entry: Fields) -> Iterator[Delta]:
        """Go on with the call that an entry of `tool_calls` is about, or begin one; words end, and so does a whole call."""
        call = self._call_of(entry)
        kind: Literal["function", "custom"] = "custom" if entry.has("custom") else "function"
        inner = entry.fields(kind) or Fields({})
        more = inner.text(ARGUMENTS[kind]) or ""
        if name := inner.text("name"):
            if call.name not in (None, name):
                raise Malformed(f"the call {call.id!r} of {call.name!r} became one of {name!r} in mid-stream")
            call.name, call.kind = name, kind
        if more and call.is_ended:
            raise Malformed(f"the call {call.id!r} went on after it was whole: {more[:80]!r}")
        if call.index is None:
            call.pieces.append(more)
            if call.id and call.name:
                yield from self._begin_call(call)
        elif more:
            call.pieces.append(more)
            yield self._grew(call.index, "arguments", more)

    def end(self) -> Iterator[Delta]:
        """End all that is open; raises `Malformed` for a call that never got its id and name."""
        still_open = [call.index for call in self._calls if call.is_open and call.index is not None]
        last = self._words.index if self._words else still_open[-1] if still_open else None
        if self._logprobs and last is not None:
            yield self._grew(last, self._words.kind if self._words else "arguments", "")
        yield from self._end_words()
        for call in self._calls:
            yield from self._end_call(call)

    def _begin_call(self, call: _Call) -> Iterator[Delta]:
        yield from self._end_words()
        if self._latest and self._latest.is_open and self._latest.has_whole_object():
            yield from self._end_call(self._latest)
        self._latest = call
        call.index = self._next_index()
        yield PartBegan(index=call.index, part=call.whole().model_copy(update={"arguments": ""}))
        if more := "".join(call.pieces):
            yield self._grew(call.index, "arguments", more)

    def _call_of(self, entry: Fields) -> _Call:
        """Return the call of an entry: by its index; some backends leave that out, or give all calls the same one."""
        index, id_ = entry.integer("index"), entry.text("id") or None
        if index is None:
            known = self._call_named.get(id_) if id_ else self._calls[-1] if self._calls else None
        else:
            known = self._call_at.get(index)
        if known is None or (id_ and known.id and id_ != known.id):
            known = _Call()
            self._calls.append(known)
            if index is not None:
                self._call_at[index] = known
        if id_ and self._call_named.setdefault(id_, known) is not known:
            raise Malformed(f"two calls of one answer have the id {id_!r}")
        known.id = known.id or id_
        return known

    def _grew(self, index: int, field_: WordsField | Literal["arguments"], more: str) -> PartGrew:
        logprobs, self._logprobs = tuple(self._logprobs), []
        return PartGrew.unchecked(type="part_grew", index=index, field=field_, more=more, nth=0, logprobs=logprobs)

    def _end_words(self) -> Iterator[Delta]:
        if self._words is not None:
            yield PartEnded(index=self._words.index, part=self._words.whole())
            self._words = None

    def _end_call(self, call: _Call) -> Iterator[Delta]:
        if not call.is_ended:
            whole = call.whole()
            call.is_ended = True
            yield PartEnded(index=-1 if call.index is None else call.index, part=whole)

    def _next_index(self) -> int:
        self._count += 1
        return self._count - 1
