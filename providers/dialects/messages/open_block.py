"""A content block of a streamed message while it is read: what it began with, and what has been added."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final, Literal

from providers.dialects.fields import Fields, as_object
from providers.dialects.json_text import object_of
from providers.dialects.messages.blocks_in import read_block
from providers.dialects.messages.unknown import Found
from schemas.conversation import Delta, Hosted, Part, PartBegan, PartEnded, PartGrew, Reasoning, Text, ToolUse

# What a block may leave out when it begins, because it is added later.
BEGINNINGS: Final[dict[str, dict[str, Any]]] = {
    "text": {"text": ""},
    "thinking": {"thinking": ""},
    "tool_use": {"input": {}},
}
# Which field of a delta adds to which field of a part.
GROWTHS: Final[dict[str, tuple[str, Literal["text", "reasoning", "arguments"]]]] = {
    "text_delta": ("text", "text"),
    "thinking_delta": ("thinking", "reasoning"),
    "input_json_delta": ("partial_json", "arguments"),
}


@dataclass(slots=True)
class OpenBlock:
    """`number` is the block's index in the stream, `index` the part's; `given` are arguments that came at the beginning."""

    number: int
    index: int
    part: Part
    given: str = ""
    pieces: list[str] = field(default_factory=list)
    signature: list[str] = field(default_factory=list)
    citations: list[dict[str, Any]] = field(default_factory=list)

    @property
    def beginning(self) -> PartBegan:
        """Return what is known of the part at first."""
        return PartBegan(index=self.index, part=self.part)

    def grow(self, delta: Fields) -> list[Delta]:
        """Take in one delta; return what it adds, nothing if that is told only when the part is whole."""
        kind = delta.needed_text("type")
        if kind in GROWTHS:
            source, target = GROWTHS[kind]
            more = delta.text(source) or ""
            self.pieces.append(more)
            is_shown = bool(more) and not isinstance(self.part, Hosted)
            return [PartGrew(index=self.index, field=target, more=more)] if is_shown else []
        if kind == "signature_delta":
            more = delta.text("signature") or ""
            self.signature.append(more)
            return [PartGrew(index=self.index, field="signature", more=more)] if more else []
        if kind == "citations_delta":
            self.citations.append(as_object(delta.take("citation"), delta.at("citation")))
        elif kind == "compaction_delta" and isinstance(self.part, Hosted):
            self.part = Hosted(dialect="messages", item={**self.part.item, **delta.rest()})
        return []

    def end(self) -> list[Delta]:
        """Return the whole part, after arguments that came with the beginning only: `{}` if there were none at all."""
        grown: list[Delta] = []
        if isinstance(self.part, ToolUse) and not any(self.pieces):
            self.pieces = [self.given or "{}"]
            grown = [PartGrew(index=self.index, field="arguments", more=self.pieces[0])]
        return [*grown, PartEnded(index=self.index, part=self._whole())]

    def _whole(self) -> Part:
        added = "".join(self.pieces)
        match self.part:
            case Text(text=text, citations=citations):
                return self.part.replaced(text=text + added, citations=(*citations, *self.citations))
            case Reasoning(redacted=None, texts=texts, signature=signature):
                thought = "".join(texts) + added
                proof = (signature or "") + "".join(self.signature)
                return self.part.replaced(texts=(thought,) if thought else (), signature=proof or None)
            case ToolUse():
                return self.part.replaced(arguments=added)
            case Hosted(item=item) if added:
                return Hosted(dialect="messages", item={**item, "input": object_of(added, "input")})
            case _:
                return self.part


def open_block(number: int, index: int, block: dict[str, Any]) -> OpenBlock:
    """Return the block that begins so."""
    beginning = BEGINNINGS.get(str(block.get("type")))
    said = block if beginning is None else beginning | {k: v for k, v in block.items() if v is not None}
    part = read_block(said, "content_block", Found())
    if isinstance(part, ToolUse):
        given = "" if part.arguments == "{}" else part.arguments
        return OpenBlock(number, index, part.replaced(arguments=""), given)
    return OpenBlock(number, index, part)
