"""Parts of a content, read one by one: what they hold is told by which of their fields is there."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from providers.dialects.base import Unexpressible
from providers.dialects.fields import Fields
from providers.dialects.gemini.names import each, inner, keep, needed
from providers.dialects.json_text import object_text
from schemas.conversation import Audio, Data, File, FileId, Hosted, Image, Source, Text, ToolResult, Url, Video

HOSTED: Final = ("executableCode", "codeExecutionResult", "toolCall", "toolResponse")
KEPT_BY_GOOGLE: Final = "https://generativelanguage.googleapis.com/"
STANDARD: Final = str.maketrans("-_", "+/")
"""Google's clients may write base64 for addresses; others do not read that."""
SOUNDS: Final = {"mpeg": "mp3", "x-wav": "wav"}
Media: TypeAlias = Image | Audio | Video | File


@dataclass(frozen=True, slots=True)
class Thought:
    """What the model thought, as a client tells it again."""

    text: str


@dataclass(frozen=True, slots=True)
class Called:
    """A call of a function; not every client keeps its id."""

    id: str | None
    name: str
    arguments: str


@dataclass(frozen=True, slots=True)
class Answered:
    """What came of a call."""

    id: str | None
    name: str
    parts: tuple[Text | Media, ...]
    is_error: bool | None

    def result_of(self, call_id: str) -> ToolResult:
        """Return it as the result of a call."""
        is_plain = len(self.parts) == 1 and isinstance(self.parts[0], Text)
        return ToolResult(call_id=call_id, parts=self.parts, is_plain=is_plain, is_error=self.is_error)


Read: TypeAlias = Thought | Called | Answered | Text | Media | Hosted


def read_part(fields: Fields, others: dict[str, Any]) -> Read:
    """Return what a part is, without its signature; what is unknown in it goes to `others`."""
    is_thought = fields.flag("thought")
    read = _read(fields, others)
    if is_thought:
        if not isinstance(read, Text):
            raise Unexpressible(fields.path, "only words are a thought")
        read = Thought(read.text)
    keep(fields, others)
    return read


def _read(fields: Fields, others: dict[str, Any]) -> Read:
    if (text := fields.text("text")) is not None:
        return Text(text=text)
    if call := inner(fields, "functionCall"):
        return _called(call, others)
    if response := inner(fields, "functionResponse"):
        return _answered(response, others)
    for name in HOSTED:
        if fields.has(name):
            return Hosted(dialect="gemini", item={"type": name, **(fields.object(name) or {})})
    return _media(fields, others)


def _called(call: Fields, others: dict[str, Any]) -> Called:
    name = call.needed_text("name")
    found = Called(call.text("id") or None, name, object_text(call.object("args") or {}, call.at("args")))
    keep(call, others)
    return found


def _answered(response: Fields, others: dict[str, Any]) -> Answered:
    """Return a result: the words under `output` or `error` if it says nothing else, or all of it as JSON."""
    name = response.needed_text("name")
    said = response.object("response") or {}
    is_error = None
    match said:
        case {"output": str(words), **more} if not more:
            pass
        case {"error": str(words), **more} if not more:
            is_error = True
        case _:
            words = object_text(said, response.at("response"))
    parts: list[Text | Media] = [Text(text=words)]
    for part in each(response, "parts"):
        parts.append(_media(part, others))
        keep(part, others)
    found = Answered(response.text("id") or None, name, tuple(parts), is_error)
    keep(response, others)
    return found


def _media(fields: Fields, others: dict[str, Any]) -> Media:
    if fields.has("inlineData"):
        blob = needed(fields, "inlineData")
        kind, content = blob.text("mimeType"), blob.needed_text("data").translate(STANDARD)
        name = blob.text("displayName")
        keep(blob, others)
        if kind and kind.startswith("audio/"):
            sound = kind.removeprefix("audio/").partition(";")[0]
            return Audio(base64=content, format=SOUNDS.get(sound, sound))
        return _shown(kind, Data(media_type=kind, base64=content), name)
    if fields.has("fileData"):
        file = needed(fields, "fileData")
        kind, uri = file.text("mimeType"), file.needed_text("fileUri")
        name = file.text("displayName")
        keep(file, others)
        if kind and kind.startswith("audio/"):
            raise Unexpressible(file.at("fileUri"), "a sound is taken as inlineData only")
        is_open = uri.startswith(("http://", "https://")) and not uri.startswith(KEPT_BY_GOOGLE)
        return _shown(kind, Url(url=uri) if is_open else FileId(dialect="gemini", id=uri), name)
    raise Unexpressible(
        fields.path, f"a part of no kind that is known here: {', '.join(fields.rest()) or 'it is empty'}"
    )


def _shown(kind: str | None, source: Source, name: str | None) -> Media:
    match (kind or "").partition("/")[0]:
        case "image":
            return Image(source=source)
        case "video":
            return Video(source=source)
        case _:
            return File(source=source, filename=name)
