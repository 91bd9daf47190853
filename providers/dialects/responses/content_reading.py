"""Reads the content of messages and of tools' outputs: words, pictures, documents, sounds."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, Literal, TypeVar, get_args

from providers.dialects.base import Unexpressible
from providers.dialects.fields import Fields, where
from providers.dialects.responses.names import NAME, Notes, note_rest, take_known
from schemas.conversation import Audio, CacheHint, Data, File, FileId, Image, Refusal, Source, Text, Url

P = TypeVar("P")
Detail = Literal["low", "high", "auto", "original"]
DETAILS: Final[dict[str, Detail]] = {word: word for word in get_args(Detail)}
Given = Text | Image | File
Said = Given | Audio | Refusal


def read_content(
    raw: list[Any], path: str, readers: Mapping[str, Callable[[Fields, Notes], P]], notes: Notes
) -> tuple[P, ...] | None:
    """Return the parts of a list of content, None if one is of a type that is not known here."""
    found: Notes = {}
    parts: list[P] = []
    for n, value in enumerate(raw):
        fields = Fields(value, where(path, n))
        reader = readers.get(fields.needed_text("type"))
        if reader is None:
            return None
        parts.append(reader(fields, found))
        note_rest(fields, found)
    notes.update(found)
    return tuple(parts)


def read_data_url(url: str) -> Data | None:
    """Return what a base64 data URL holds, None if it is no such URL."""
    head, mark, base64 = url.partition(";base64,")
    if not mark or not head.startswith("data:") or "," in head:
        return None
    return Data(media_type=head.removeprefix("data:") or None, base64=base64)


def _cache(fields: Fields, notes: Notes) -> CacheHint | None:
    hint = fields.fields("prompt_cache_breakpoint")
    if hint is None:
        return None
    ttl, mode = hint.text("ttl"), hint.text("mode")
    if mode != "explicit":
        notes[hint.at("mode")] = mode
    note_rest(hint, notes)
    return CacheHint(ttl=ttl)


def _input_text(fields: Fields, notes: Notes) -> Text:
    return Text(text=fields.needed_text("text"), cache=_cache(fields, notes))


def _input_image(fields: Fields, notes: Notes) -> Image:
    detail = take_known(fields, "detail", DETAILS, notes)
    return Image(source=_source(fields, "image_url", "file_id"), detail=detail, cache=_cache(fields, notes))


def _input_file(fields: Fields, notes: Notes) -> File:
    source = _source(fields, "file_data", "file_url", "file_id")
    return File(source=source, filename=fields.text("filename"), cache=_cache(fields, notes))


def _source(fields: Fields, *names: str) -> Source:
    """Take the one of `names` that is there; it alone says what kind of source it is."""
    there = [name for name in names if fields.has(name)]
    if len(there) != 1:
        raise Unexpressible(fields.path, f"want one of {', '.join(names)}, found {' and '.join(there) or 'none'}")
    value = fields.needed_text(there[0])
    match there[0]:
        case "file_id":
            return FileId(dialect=NAME, id=value)
        case "file_data":
            return read_data_url(value) or Data(media_type=None, base64=value)
        case "image_url":
            return read_data_url(value) or Url(url=value)
        case _:
            return Url(url=value)


def _input_audio(fields: Fields, notes: Notes) -> Audio:
    sound = fields.fields("input_audio")
    if sound is None:
        raise Unexpressible(fields.at("input_audio"), "is missing")
    audio = Audio(base64=sound.needed_text("data"), format=sound.needed_text("format"))
    note_rest(sound, notes)
    return audio


def _output_text(fields: Fields, _notes: Notes) -> Text:
    text = fields.needed_text("text")
    return Text(text=text, citations=tuple(each.rest() for each in fields.each("annotations")))


def _refusal(fields: Fields, _notes: Notes) -> Refusal:
    return Refusal(text=fields.needed_text("refusal"))


GIVEN: Final[dict[str, Callable[[Fields, Notes], Given]]] = {
    "input_text": _input_text,
    "input_image": _input_image,
    "input_file": _input_file,
}
SAID: Final[dict[str, Callable[[Fields, Notes], Said]]] = {
    **GIVEN,
    "input_audio": _input_audio,
    "output_text": _output_text,
    "refusal": _refusal,
}
