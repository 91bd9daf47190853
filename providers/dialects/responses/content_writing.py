"""Writes the content of messages and of tools' outputs, as a client sends it."""

from __future__ import annotations

from base64 import b64encode
from dataclasses import dataclass, field
from typing import Any

from providers.dialects.base import Unexpressible
from providers.dialects.responses.names import NAME
from schemas.conversation import Audio, CacheHint, Data, File, FileId, Image, Part, Source, Text, Url


@dataclass(slots=True)
class Writing:
    """What is known while a request is written: whether it `is_own`, of this dialect, and what was left out so far."""

    is_own: bool
    dropped: list[str] = field(default_factory=list)
    call_kinds: dict[str, str] = field(default_factory=dict)

    def drop(self, path: str, value: object) -> None:
        """Write down that a field was left out, if it said anything."""
        if value is not None and value != ():
            self.dropped.append(path)


def given_content(part: Part, path: str, writing: Writing, *, is_result: bool = False) -> dict[str, Any]:
    """Return what somebody gives the model to read, look at or hear; raises `Unexpressible` for what cannot be given."""
    match part:
        case Text():
            writing.drop(f"{path}.citations", part.citations)
            return {"type": "input_text", "text": part.text} | _cache(part.cache, path, writing)
        case Image():
            detail = {} if part.detail is None else {"detail": part.detail}
            source = _image_source(part.source, path)
            return {"type": "input_image", **source, **detail, **_cache(part.cache, path, writing)}
        case File():
            named = {} if part.filename is None else {"filename": part.filename}
            return {"type": "input_file", **_file_source(part, path), **named, **_cache(part.cache, path, writing)}
        case Audio() if not is_result:
            return {"type": "input_audio", "input_audio": {"data": part.base64, "format": part.format}}
        case _:
            place = "a tool's output" if is_result else "a message"
            raise Unexpressible(path, f"the Responses API takes no {part.type} in {place}")


def _cache(hint: CacheHint | None, path: str, writing: Writing) -> dict[str, Any]:
    if hint is None:
        return {}
    if not writing.is_own:
        writing.drop(f"{path}.cache", hint)
        return {}
    ttl = {} if hint.ttl is None else {"ttl": hint.ttl}
    return {"prompt_cache_breakpoint": {"mode": "explicit"} | ttl}


def _image_source(source: Source, path: str) -> dict[str, Any]:
    match source:
        case Url():
            return {"image_url": source.url}
        case Data():
            return {"image_url": _data_url(source)}
        case FileId():
            return _file_id(source, path)


def _file_source(part: File, path: str) -> dict[str, Any]:
    if part.context is not None or part.has_citations:
        name = "context" if part.context is not None else "has_citations"
        raise Unexpressible(f"{path}.{name}", "the Responses API knows no such thing of a document")
    match part.source:
        case Url():
            return {"file_url": part.source.url}
        case Data():
            return {"file_data": part.source.base64 if part.source.media_type is None else _data_url(part.source)}
        case FileId():
            return _file_id(part.source, path)
        case None if part.text is not None:
            words = b64encode(part.text.encode("utf-8", "surrogatepass")).decode()
            return {"file_data": _data_url(Data(media_type="text/plain", base64=words))}
        case None:
            raise Unexpressible(path, "a document without content")


def _file_id(source: FileId, path: str) -> dict[str, Any]:
    if source.dialect != NAME:
        raise Unexpressible(f"{path}.source", f"a file that the provider of {source.dialect} keeps")
    return {"file_id": source.id}


def _data_url(data: Data) -> str:
    return f"data:{data.media_type or ''};base64,{data.base64}"
