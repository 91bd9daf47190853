"""Content parts there and back: words, pictures, sounds, films and documents, as they stand in a message's list.

A part of a type that is not known here is `Hosted`: it is written again as it is, and goes into no other dialect.
"""

from __future__ import annotations

import re
from typing import Any, Final, Literal

from providers.dialects.base import Unexpressible
from providers.dialects.chat.unknown import Unknown, needed_fields, one_of
from providers.dialects.fields import Fields
from schemas.conversation import (
    Audio,
    CacheHint,
    Data,
    File,
    FileId,
    Hosted,
    Image,
    Part,
    Refusal,
    Source,
    Text,
    Url,
    Video,
)

DETAILS: Final[tuple[Literal["low", "high", "auto", "original"], ...]] = ("low", "high", "auto", "original")
DATA_URL: Final = re.compile(r"data:([^;,]*);base64,(.*)", re.DOTALL)
CACHE_FIELDS: Final = frozenset({"type", "ttl"})


class Writing:
    """What holds while one body is written: whether it `is_own`, and what was left out of it because it changes no answer."""

    def __init__(self, *, is_own: bool) -> None:
        """Begin with nothing left out; `is_own` says that the client spoke Chat Completions, too."""
        self.is_own = is_own
        self.dropped: list[str] = []

    def drop(self, path: str, value: object) -> None:
        """List `path` as left out if there was a value."""
        if value is not None and value != ():
            self.dropped.append(path)


# -- reading ------------------------------------------------------------------------------------------------------------------


def read_part(value: Any, path: str, unknown: Unknown) -> Part:
    """Return one content part."""
    fields = Fields(value, path)
    part = _read_known(fields, fields.needed_text("type"), unknown)
    if part is None:
        return Hosted(dialect="chat", item=value)
    unknown.keep(fields)
    return part


def _read_known(fields: Fields, type_: str, unknown: Unknown) -> Part | None:
    match type_:
        case "text":
            return Text(text=fields.needed_text("text"), cache=read_cache(fields, unknown))
        case "refusal":
            return Refusal(text=fields.needed_text("refusal"))
        case "image_url" | "video_url" | "input_audio" | "file":
            inner = needed_fields(fields, type_)
            part = _read_medium(inner, type_, read_cache(fields, unknown))
            unknown.keep(inner)
            return part
        case _:
            return None


def _read_medium(inner: Fields, type_: str, cache: CacheHint | None) -> Part:
    match type_:
        case "image_url":
            source = read_url(inner.needed_text("url"))
            return Image(source=source, detail=one_of(inner, "detail", DETAILS), cache=cache)
        case "video_url":
            return Video(source=read_url(inner.needed_text("url")))
        case "input_audio":
            return Audio(base64=inner.needed_text("data"), format=inner.needed_text("format"))
        case _:
            return File(source=_read_file_source(inner), filename=inner.text("filename"), cache=cache)


def read_url(url: str) -> Source:
    """Return what a URL leads to: the data itself if it holds them in base64."""
    found = DATA_URL.fullmatch(url)
    return Data(media_type=found[1] or None, base64=found[2]) if found else Url(url=url)


def _read_file_source(inner: Fields) -> Source:
    """Return a file's content; base64 without a data URL is taken as it is, for no colon is in it."""
    data = inner.text("file_data")
    if data is None:
        return FileId(dialect="chat", id=inner.needed_text("file_id"))
    return read_url(data) if ":" in data else Data(media_type=None, base64=data)


def read_cache(fields: Fields, unknown: Unknown) -> CacheHint | None:
    """Take `cache_control`, by which litellm and OpenRouter say where a prompt may be cached up to."""
    value = fields.take("cache_control")
    if value is None:
        return None
    is_hint = isinstance(value, dict) and value.get("type") == "ephemeral" and value.keys() <= CACHE_FIELDS
    if not is_hint or not isinstance(value.get("ttl"), str | None):
        unknown.keep_value(fields, "cache_control", value)
        return None
    return CacheHint(ttl=value.get("ttl"))


# -- writing ------------------------------------------------------------------------------------------------------------------


def write_part(part: Part, path: str, writing: Writing) -> dict[str, Any]:
    """Return one content part; raises `Unexpressible` for what no content part can hold."""
    match part:
        case Text():
            written: dict[str, Any] = {"type": "text", "text": part.text}
            put_cache(written, part.cache, path, writing)
        case Refusal():
            written = {"type": "refusal", "refusal": part.text}
        case Image():
            inner = {"url": _write_url(part.source, f"{path}.image_url")}
            written = {"type": "image_url", "image_url": inner | ({"detail": part.detail} if part.detail else {})}
            put_cache(written, part.cache, path, writing)
        case Video():
            written = {"type": "video_url", "video_url": {"url": _write_url(part.source, f"{path}.video_url")}}
        case Audio():
            written = {"type": "input_audio", "input_audio": {"data": part.base64, "format": part.format}}
        case File():
            written = {"type": "file", "file": _write_file(part, f"{path}.file", writing)}
            put_cache(written, part.cache, path, writing)
        case Hosted(dialect="chat") if writing.is_own:
            written = part.item
        case Hosted():
            raise Unexpressible(path, f"an item that only the dialect {part.dialect!r} knows")
        case _:
            raise Unexpressible(path, f"a part of type {part.type!r} cannot stand here")
    return written


def put_cache(written: dict[str, Any], cache: CacheHint | None, path: str, writing: Writing) -> None:
    """Add a cache hint in its own dialect; list it as left out where it comes from another."""
    if cache is None:
        return
    if writing.is_own:
        written["cache_control"] = {"type": "ephemeral"} | ({} if cache.ttl is None else {"ttl": cache.ttl})
    else:
        writing.drop(f"{path}.cache_control", cache)


def _write_url(source: Source, path: str) -> str:
    match source:
        case Url():
            return source.url
        case Data():
            return f"data:{source.media_type or ''};base64,{source.base64}"
        case FileId():
            raise Unexpressible(path, f"a file that the provider of {source.dialect!r} keeps; send a URL or the data")


def _write_file(part: File, path: str, writing: Writing) -> dict[str, Any]:
    if part.text is not None:
        raise Unexpressible(path, "a document of plain text: send it as words")
    if part.context is not None or part.has_citations:
        raise Unexpressible(path, "a document with a context or citations")
    writing.drop(f"{path}.citations", part.has_citations)
    named = {} if part.filename is None else {"filename": part.filename}
    match part.source:
        case None:
            raise Unexpressible(path, "a document without content")
        case FileId(dialect="chat"):
            return {"file_id": part.source.id, **named}
        case Data(media_type=None):
            return {"file_data": part.source.base64, **named}
        case _:
            return {"file_data": _write_url(part.source, path), **named}


def is_annotation(citation: dict[str, Any]) -> bool:
    """Return whether a citation is one of Chat Completions, which lies under the name of its own type."""
    type_ = citation.get("type")
    return isinstance(type_, str) and isinstance(citation.get(type_), dict)
