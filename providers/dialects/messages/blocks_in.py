"""Content blocks read: each becomes one part. A block of a type that is not known here is a `Hosted` part, as it stands."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from providers.dialects.base import Unexpressible
from providers.dialects.fields import Fields, as_object
from providers.dialects.json_text import object_text
from providers.dialects.messages.unknown import Found
from providers.dialects.refusing import refusing
from schemas.conversation import (
    CacheHint,
    Data,
    File,
    FileId,
    Hosted,
    Image,
    Part,
    Reasoning,
    Source,
    Text,
    ToolResult,
    ToolUse,
    Url,
)

PLAIN_TEXT: Final = "text/plain"
Reader = Callable[[Fields, Found], Part | None]


def read_block(value: Any, path: str, found: Found) -> Part:
    """Return the part that a content block is; what is unknown in it goes to `found`."""
    return _read(value, path, found, READERS)


def read_cache(fields: Fields, found: Found) -> CacheHint | None:
    """Return how far a prompt may be cached, None if nothing is said."""
    inner = fields.fields("cache_control")
    if inner is None:
        return None
    inside = found.inside("cache_control")
    if (kind := inner.take("type")) != "ephemeral":
        inside.keep("type", kind)
    hint = CacheHint(ttl=inner.text("ttl"))
    inside.keep_rest(inner)
    return hint


def _read(value: Any, path: str, found: Found, readers: Mapping[str, Reader]) -> Part:
    fields = Fields(value, path)
    reader = readers.get(fields.needed_text("type"))
    with refusing(path):
        part = reader(fields, found) if reader else None
        if part is None:
            return Hosted(dialect="messages", item=as_object(value, path))
    found.keep_rest(fields)
    return part


def _text(fields: Fields, found: Found) -> Text:
    cited = fields.list("citations") or ()
    citations = tuple(as_object(item, f"{fields.at('citations')}.{n}") for n, item in enumerate(cited))
    return Text(text=fields.needed_text("text"), citations=citations, cache=read_cache(fields, found))


def _source(inner: Fields, found: Found) -> Source | None:
    """Return where content is, None if that is said in a way not known here."""
    source: Source
    match inner.needed_text("type"):
        case "base64":
            source = Data(media_type=inner.text("media_type"), base64=inner.needed_text("data"))
        case "url":
            source = Url(url=inner.needed_text("url"))
        case "file":
            source = FileId(dialect="messages", id=inner.needed_text("file_id"))
        case _:
            return None
    found.inside("source").keep_rest(inner)
    return source


def _image(fields: Fields, found: Found) -> Image | None:
    source = _source(_needed(fields, "source"), found)
    return Image(source=source, cache=read_cache(fields, found)) if source else None


def _document(fields: Fields, found: Found) -> File | None:
    inner = _needed(fields, "source")
    source, text = _source(inner, found), None
    if source is None:
        text = _plain_text(inner, found)
        if text is None:
            return None
    citing = fields.fields("citations")
    has_citations = citing.flag("enabled") if citing else None
    if citing:
        found.inside("citations").keep_rest(citing)
    return File(
        source=source,
        text=text,
        filename=fields.text("title"),
        context=fields.text("context"),
        has_citations=has_citations,
        cache=read_cache(fields, found),
    )


def _plain_text(inner: Fields, found: Found) -> str | None:
    """Return the words of a plain-text source, whose type has been taken; None if it is made of blocks or unknown."""
    text = inner.take("data")
    if not isinstance(text, str):
        return None
    inside = found.inside("source")
    if (media_type := inner.take("media_type")) != PLAIN_TEXT:
        inside.keep("media_type", media_type)
    inside.keep_rest(inner)
    return text


def _thinking(fields: Fields, _found: Found) -> Reasoning:
    thought = fields.needed_text("thinking")
    return Reasoning(texts=(thought,) if thought else (), signature=fields.text("signature") or None)


def _redacted(fields: Fields, _found: Found) -> Reasoning:
    return Reasoning(redacted=fields.needed_text("data"))


def _tool_use(fields: Fields, found: Found) -> ToolUse:
    given = fields.object("input")
    if given is None:
        raise Unexpressible(fields.at("input"), "is missing")
    return ToolUse(
        id=fields.needed_text("id"),
        name=fields.needed_text("name"),
        arguments=object_text(given, fields.at("input")),
        cache=read_cache(fields, found),
    )


def _tool_result(fields: Fields, found: Found) -> ToolResult:
    content = fields.take("content")
    parts: list[Text | Image | File] = []
    match content:
        case None:
            pass
        case str():
            parts.append(Text(text=content))
        case list():
            parts.extend(_result_parts(content, fields.at("content"), found))
        case _:
            raise Unexpressible(fields.at("content"), "want a string or a list of blocks")
    return ToolResult(
        call_id=fields.needed_text("tool_use_id"),
        parts=tuple(parts),
        is_plain=not isinstance(content, list),
        is_error=fields.flag("is_error"),
        cache=read_cache(fields, found),
    )


def _result_parts(content: list[Any], path: str, found: Found) -> list[Text | Image | File]:
    """Return what a result holds. If some of it is of a type not known here, all of it is kept as an unknown `content` too."""
    parts: list[Text | Image | File] = []
    inner = Found()
    for n, value in enumerate(content):
        part = _read(value, f"{path}.{n}", inner.inside(f"parts.{n}"), RESULT_READERS)
        if isinstance(part, Text | Image | File):
            parts.append(part)
    if len(parts) < len(content):
        found.keep("content", content)
    else:
        found.merge(inner, "")
    return parts


def _needed(fields: Fields, name: str) -> Fields:
    inner = fields.fields(name)
    if inner is None:
        raise Unexpressible(fields.at(name), "is missing")
    return inner


RESULT_READERS: Final[Mapping[str, Reader]] = {"text": _text, "image": _image, "document": _document}
READERS: Final[Mapping[str, Reader]] = {
    **RESULT_READERS,
    "thinking": _thinking,
    "redacted_thinking": _redacted,
    "tool_use": _tool_use,
    "tool_result": _tool_result,
}
