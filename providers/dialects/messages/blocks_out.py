"""Parts written as content blocks. A part that has nothing to say in this dialect is left out, and listed."""

from __future__ import annotations

from typing import Any, Final, assert_never

from providers.dialects.base import Unexpressible
from providers.dialects.cutting import given_to
from providers.dialects.messages.writing import Writing
from schemas.conversation import (
    Audio,
    Data,
    File,
    FileId,
    Hosted,
    Image,
    Part,
    Reasoning,
    Refusal,
    Source,
    Text,
    ToolResult,
    ToolUse,
    Url,
    Video,
)

Block = dict[str, Any]
BETWEEN_THOUGHTS: Final = "\n\n"


def write_block(part: Part, path: str, writing: Writing) -> Block | None:
    """Return the content block of a part, None if it is left out; `path` is the part's place in the conversation."""
    block = _block(part, path, writing)
    if block is not None:
        writing.unknown.onto(block, path)
    return block


def _block(part: Part, path: str, writing: Writing) -> Block | None:  # noqa: PLR0911 - one line for each type
    match part:
        case Text():
            return _text(part, path, writing)
        case Refusal():
            return {"type": "text", "text": part.text}
        case Image():
            return _image(part, path, writing)
        case File():
            return _document(part, path, writing)
        case Reasoning():
            return thinking_block(part, path, writing)
        case ToolUse():
            return _tool_use(part, path, writing)
        case ToolResult():
            return _tool_result(part, path, writing)
        case Hosted():
            return hosted_block(part, path)
        case Audio() | Video():
            raise Unexpressible(path, f"Anthropic Messages has no {part.type}")
        case _:
            assert_never(part)


def thought_of(part: Reasoning) -> str:
    """Return what was thought as the one text that a thinking block holds: the thoughts, or else their summaries."""
    return BETWEEN_THOUGHTS.join(part.texts or part.summaries)


def is_speechless(part: Reasoning) -> bool:
    """Tell whether a thought says nothing here: what there is of it, if anything, only another provider can read."""
    return not thought_of(part) and part.signature is None and part.redacted is None


def thinking_block(part: Reasoning, path: str, writing: Writing) -> Block | None:
    """Return a thinking block; its signature is empty if there is none."""
    writing.drop(f"{path}.id", part.id)
    writing.drop(f"{path}.encrypted", part.encrypted)
    is_foreign = part.encrypted is not None or part.id is not None
    if is_speechless(part) and (is_foreign or not writing.is_own):
        return None
    if part.redacted is not None:
        writing.drop(f"{path}.texts", part.texts)
        writing.drop(f"{path}.summaries", part.summaries)
        return {"type": "redacted_thinking", "data": part.redacted}
    if part.texts:
        writing.drop(f"{path}.summaries", part.summaries)
    return {"type": "thinking", "thinking": thought_of(part), "signature": part.signature or ""}


def check_call(part: ToolUse, path: str) -> None:
    """Raise `Unexpressible` for a call of a tool that Anthropic Messages has no kind of."""
    if part.kind == "custom":
        raise Unexpressible(path, "Anthropic Messages has no custom tools, which take free text")
    if part.namespace is not None:
        raise Unexpressible(f"{path}.namespace", "Anthropic Messages has no namespaces of tools")


def hosted_block(part: Hosted, path: str) -> Block:
    """Return the block as Anthropic wrote it."""
    if part.dialect != "messages":
        raise Unexpressible(
            path, f"an item of type {part.item.get('type')!r} is known to the dialect {part.dialect} only"
        )
    return dict(part.item)


def _text(part: Text, path: str, writing: Writing) -> Block:
    block: Block = {"type": "text", "text": part.text}
    if writing.is_own and part.citations:
        block["citations"] = list(part.citations)
    else:
        writing.drop(f"{path}.citations", part.citations)
    writing.cache(block, part.cache, path)
    return block


def _image(part: Image, path: str, writing: Writing) -> Block:
    writing.drop(f"{path}.detail", part.detail)
    block: Block = {"type": "image", "source": _source(part.source, path, writing)}
    writing.cache(block, part.cache, path)
    return block


def _source(source: Source, path: str, writing: Writing) -> Block:
    match source:
        case Url():
            written: Block = {"type": "url", "url": source.url}
        case Data():
            if source.media_type is None:
                raise Unexpressible(f"{path}.source.media_type", "Anthropic Messages must be told what the data is")
            written = {"type": "base64", "media_type": source.media_type, "data": source.base64}
        case FileId():
            if source.dialect != "messages":
                raise Unexpressible(f"{path}.source", f"a file that the provider of {source.dialect} keeps")
            written = {"type": "file", "file_id": source.id}
        case _:
            assert_never(source)
    writing.unknown.onto(written, f"{path}.source")
    return written


def _document(part: File, path: str, writing: Writing) -> Block:
    if part.text is not None:
        source: Block = {"type": "text", "media_type": "text/plain", "data": part.text}
        writing.unknown.onto(source, f"{path}.source")
    elif part.source is not None:
        source = _source(part.source, path, writing)
    else:
        raise Unexpressible(path, "a document without content")
    block: Block = {"type": "document", "source": source}
    if part.filename is not None:
        block["title"] = part.filename
    if part.context is not None:
        block["context"] = part.context
    if part.has_citations is not None:
        block["citations"] = {"enabled": part.has_citations}
        writing.unknown.onto(block["citations"], f"{path}.citations")
    writing.cache(block, part.cache, path)
    return block


def _tool_use(part: ToolUse, path: str, writing: Writing) -> Block:
    check_call(part, path)
    writing.drop(f"{path}.item_id", part.item_id)
    given = given_to(part, f"{path}.arguments")
    block: Block = {"type": "tool_use", "id": part.id, "name": part.name, "input": given}
    writing.cache(block, part.cache, path)
    return block


def _tool_result(part: ToolResult, path: str, writing: Writing) -> Block:
    if part.kind == "custom":
        raise Unexpressible(path, "Anthropic Messages has no custom tools, which take free text")
    block: Block = {"type": "tool_result", "tool_use_id": part.call_id}
    blocks = [write_block(inner, f"{path}.parts.{n}", writing) for n, inner in enumerate(part.parts)]
    if part.parts or not part.is_plain:
        block["content"] = as_plain(blocks) if part.is_plain else blocks
    if part.is_error is not None:
        block["is_error"] = part.is_error
    writing.cache(block, part.cache, path)
    return block


def as_plain(blocks: list[Block | None]) -> str | list[Block | None]:
    """Return a bare string if that says all that the blocks say, else the blocks."""
    if len(blocks) == 1 and blocks[0] and blocks[0].keys() == {"type", "text"}:
        return str(blocks[0]["text"])
    return blocks
