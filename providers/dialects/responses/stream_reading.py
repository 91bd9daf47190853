"""Reads a streamed answer, event by event.

A part begins with the event that first names it and ends with the event that holds all of it. Servers leave events out: a part
of which nothing was told before it is whole is told at once, and what only the last event holds is told then.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, Final, Literal

from providers.dialects.base import Malformed, Unexpressible
from providers.dialects.call_ids import CallIds
from providers.dialects.fields import Fields, as_object
from providers.dialects.json_text import strictly
from providers.dialects.responses.growth import bare, growth
from providers.dialects.responses.names import Notes
from providers.dialects.responses.numbers import read_logprobs, read_usage
from providers.dialects.responses.outcomes import read_outcome
from providers.dialects.responses.reply_reading import Spoken, read_created, read_output_item
from schemas.conversation import (
    Delta,
    Part,
    PartBegan,
    PartEnded,
    PartGrew,
    Reasoning,
    Refusal,
    ReplyBegan,
    ReplyBroke,
    ReplyEnded,
    Text,
)

Place = tuple[int, int | None]
"""Which item of the output, and which content of it if it is a message."""

LEFT_OUT_MAX: Final = 4096
"""How many of an answer's thoughts may be left out by the numbers of others: each is kept, and told, as an empty one."""

Handler = Callable[["ResponsesStreamReader", Fields], list[Delta]]


class ResponsesStreamReader:
    """See the module."""

    def __init__(self) -> None:
        """Begin before the first event."""
        self._has_begun = self._is_over = False
        self._indexes: dict[Place, int] = {}
        self._parts: dict[int, Part] = {}
        self._call_ids = CallIds()
        self._open: set[int] = set()
        self._whole_items: set[int] = set()
        self._told: dict[tuple[int, str], int] = {}  # how many summaries or texts there are of a thought
        self._left_out = 0

    def feed(self, event: str | None, data: str) -> list[Delta]:
        """Return what one event says; raises `Malformed`."""
        if self._is_over or not data.strip() or data.strip() == "[DONE]":
            return []
        try:
            body = as_object(strictly(data), "event")
            handler = self.HANDLERS.get(_type(event, body))
            return [] if handler is None else handler(self, Fields(body))
        except (Unexpressible, ValueError, OverflowError, RecursionError) as error:
            raise Malformed(f"an event that the Responses API does not send: {error}") from error

    @property
    def is_ending(self) -> bool:
        """See `StreamReader`."""
        return self._is_over

    def end(self) -> list[Delta]:
        """Return nothing; raises `Malformed` if the stream was cut."""
        if not self._is_over:
            raise Malformed("the stream ended before its answer did")
        return []

    def _created(self, fields: Fields) -> list[Delta]:
        """Say that the answer began, if that was not said yet."""
        return self._began(_needed(fields, "response"))

    def _item_added(self, fields: Fields) -> list[Delta]:
        """Begin a part that is an item; those of a message begin with its contents."""
        place, raw = (_index(fields, "output_index"), None), fields.object("item") or {}
        if raw.get("type") == "message":
            return []
        empty = {"function_call": {"arguments": ""}, "custom_tool_call": {"input": ""}}.get(str(raw.get("type")), {})
        return [self._begin(place, part) for part, _ in read_output_item(empty | raw, "item", {})]

    def _content_added(self, fields: Fields) -> list[Delta]:
        """Begin a part that is the content of a message."""
        place, content = self._content_place(fields), _needed(fields, "part")
        match content.text("type"):
            case "output_text":
                return [self._begin(place, Text(text=content.text("text") or ""))]
            case "refusal":
                return [self._begin(place, Refusal(text=content.text("refusal") or ""))]
            case _:
                return []

    def _text_grew(self, fields: Fields) -> list[Delta]:
        """Add words, with their log probabilities."""
        began, index = self._sought(self._content_place(fields), Text(text=""))
        more, logprobs = fields.needed_text("delta"), read_logprobs(fields)
        return [*began, PartGrew(index=index, field="text", more=more, logprobs=logprobs)]

    def _refusal_grew(self, fields: Fields) -> list[Delta]:
        """Add words of a refusal."""
        began, index = self._sought(self._content_place(fields), Refusal(text=""))
        return [*began, PartGrew(index=index, field="refusal", more=fields.needed_text("delta"))]

    def _summary_grew(self, fields: Fields) -> list[Delta]:
        """Add words to one of a thought's summaries."""
        began, index = self._sought(self._item_place(fields), Reasoning(id=fields.text("item_id")))
        more, nth = fields.needed_text("delta"), self._nth(index, "summary", _index(fields, "summary_index"))
        return [*began, PartGrew(index=index, field="summary", more=more, nth=nth)]

    def _thought_grew(self, fields: Fields) -> list[Delta]:
        """Add words to one of a thought's texts."""
        began, index = self._sought(self._item_place(fields), Reasoning(id=fields.text("item_id")))
        more, nth = fields.needed_text("delta"), self._nth(index, "reasoning", _index(fields, "content_index"))
        return [*began, PartGrew(index=index, field="reasoning", more=more, nth=nth)]

    def _nth(self, index: int, field: Literal["summary", "reasoning"], nth: int) -> int:
        """Return which of a thought's summaries or texts grows; raises `Unexpressible` for a number beyond all that came."""
        told = self._told.get((index, field), 0)
        self._left_out += max(0, nth - told)
        if self._left_out > LEFT_OUT_MAX:
            raise Unexpressible(f"{field}.{told}", "is left out, and so are many others")
        self._told[index, field] = max(told, nth + 1)
        return nth

    def _arguments_grew(self, fields: Fields) -> list[Delta]:
        """Add to the arguments of a call."""
        index = self._indexes.get(self._item_place(fields))
        if index is None:
            raise Malformed("arguments came of a call that never began")
        return [PartGrew(index=index, field="arguments", more=fields.needed_text("delta"))]

    def _item_done(self, fields: Fields) -> list[Delta]:
        """End the parts of an item."""
        return self._whole_item(_index(fields, "output_index"), fields.object("item") or {}, {})

    def _completed(self, fields: Fields) -> list[Delta]:
        """End the answer, after what only its last event holds."""
        response, notes = _needed(fields, "response"), Notes()
        said = self._began(response)
        for n, raw in enumerate(response.list("output") or ()):
            if n not in self._whole_items:
                said += self._whole_item(n, as_object(raw, f"response.output.{n}"), notes)
        if self._open:
            raise Malformed(f"the answer ended before its part {min(self._open)} did")
        usage = read_usage(response.fields("usage"), notes)
        said.append(ReplyEnded(stop_reason=read_outcome(response, self._parts.values()), usage=usage))
        self._is_over = True
        return said

    def _failed(self, fields: Fields) -> list[Delta]:
        """Say that the backend failed, whether an answer says so or an event of its own."""
        self._is_over = True
        body = fields.rest()
        holder = fields.fields("response") or fields
        said = holder.take("error")
        error = Fields(said) if isinstance(said, dict) else holder
        message, code = error.take("message") or said, error.take("code")
        words = "the backend failed, and did not say why" if message is None else str(message)
        return [ReplyBroke(message=words, code=None if code is None else str(code), body=body)]

    def _began(self, response: Fields) -> list[Delta]:
        if self._has_begun:
            return []
        self._has_begun = True
        id_, model = response.needed_text("id"), response.needed_text("model")
        return [ReplyBegan(id=id_, model=model, created=read_created(response))]

    def _begin(self, place: Place, part: Part) -> PartBegan:
        if not self._has_begun:
            raise Malformed("a part came before its answer began")
        if place in self._indexes:
            raise Malformed(f"two parts have the place {place}")
        index = self._indexes[place] = len(self._indexes)
        self._call_ids.note(index, part)
        self._parts[index] = part
        self._open.add(index)
        return PartBegan(index=index, part=part)

    def _sought(self, place: Place, part: Part) -> tuple[list[Delta], int]:
        """Return a part's index; begin it with `part` if nothing was told of it yet."""
        began: list[Delta] = [] if place in self._indexes else [self._begin(place, part)]
        return began, self._indexes[place]

    def _end(self, place: Place, spoken: Spoken) -> list[Delta]:
        """End a part, after all of it if nothing was told of it yet."""
        part, logprobs = spoken
        said: list[Delta] = []
        if place not in self._indexes:
            said.append(self._begin(place, bare(part)))
            said += growth(self._indexes[place], part, logprobs)
        index = self._indexes[place]
        if index not in self._open:
            return said
        self._open.discard(index)
        self._call_ids.note(index, part)
        self._parts[index] = part
        return [*said, PartEnded(index=index, part=part)]

    def _whole_item(self, place: int, raw: dict[str, Any], notes: Notes) -> list[Delta]:
        self._whole_items.add(place)
        spoken = read_output_item(raw, "item", notes)
        is_message = raw.get("type") == "message"
        return [delta for n, each in enumerate(spoken) for delta in self._end((place, n if is_message else None), each)]

    def _content_place(self, fields: Fields) -> Place:
        return _index(fields, "output_index"), _index(fields, "content_index")

    def _item_place(self, fields: Fields) -> Place:
        return _index(fields, "output_index"), None

    HANDLERS: ClassVar[dict[str, Handler]] = {
        "response.created": _created,
        "response.queued": _created,
        "response.in_progress": _created,
        "response.output_item.added": _item_added,
        "response.content_part.added": _content_added,
        "response.output_text.delta": _text_grew,
        "response.refusal.delta": _refusal_grew,
        "response.reasoning_summary_text.delta": _summary_grew,
        "response.reasoning_text.delta": _thought_grew,
        "response.function_call_arguments.delta": _arguments_grew,
        "response.custom_tool_call_input.delta": _arguments_grew,
        "response.output_item.done": _item_done,
        "response.completed": _completed,
        "response.incomplete": _completed,
        "response.failed": _failed,
        "error": _failed,
    }


def _type(event: str | None, body: dict[str, Any]) -> str:
    """Return an event's type; one that has none and holds an error is an error."""
    type_ = body.get("type") or event
    return str(type_ or ("error" if "error" in body else ""))


def _index(fields: Fields, name: str) -> int:
    value = fields.integer(name)
    if value is None or value < 0:
        raise Unexpressible(fields.at(name), "want a whole number from 0 on")
    return value


def _needed(fields: Fields, name: str) -> Fields:
    inner = fields.fields(name)
    if inner is None:
        raise Unexpressible(fields.at(name), "is missing")
    return inner
