"""Writes a streamed answer: each piece as it comes, and at its end the whole answer, as this API tells it.

Neighbouring words are contents of one message. That an item is whole is said when it is known whether the answer was cut there,
which is with the next thing that is said.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from providers.dialects.base import Malformed
from providers.dialects.responses.echo import echo
from providers.dialects.responses.growth import bare
from providers.dialects.responses.names import made_id
from providers.dialects.responses.numbers import write_usage
from providers.dialects.responses.outcomes import Outcome, outcome
from providers.dialects.responses.reply_writing import response_object, single_item
from providers.dialects.responses.shapes import message_item
from providers.dialects.responses.stream_parts import Events, OpenPart
from schemas.conversation import (
    Delta,
    Part,
    PartBegan,
    PartEnded,
    PartGrew,
    Refusal,
    ReplyBegan,
    ReplyBroke,
    ReplyEnded,
    Request,
    Text,
)


@dataclass(slots=True)
class _Message:
    """A message that is being told; `contents` has an empty place for each of the `missing` that are not whole yet."""

    place: int
    id: str
    contents: list[dict[str, Any]] = field(default_factory=list)
    missing: int = 0
    is_sealed: bool = False
    status: str = "completed"


class ResponsesStreamWriter:
    """See the module."""

    def __init__(self, request: Request) -> None:
        """Begin the answer to `request`."""
        self._echo = echo(request)
        self._events = Events()
        self._began: ReplyBegan | None = None
        self._is_over = False
        self._open: dict[int, OpenPart] = {}
        self._messages: dict[int, _Message] = {}  # by the indexes of their parts
        self._message: _Message | None = None  # the one that further words would belong to
        self._held: PartEnded | None = None
        self._items: dict[int, dict[str, Any]] = {}
        self._whole: list[Part] = []
        self._places = 0

    def write(self, delta: Delta) -> bytes:
        """Return the events for one delta."""
        if self._is_over:
            return b""
        match delta:
            case ReplyBegan():
                said = self._begin(delta)
            case PartBegan():
                said = self._release() + self._begin_part(delta)
            case PartGrew():
                said = self._release() + self._part(delta.index).grow(delta)
            case PartEnded():
                said, self._held = self._release(), delta
            case ReplyEnded():
                said = self._end(delta)
            case ReplyBroke():
                said = self._break(delta)
        return said

    def _begin(self, delta: ReplyBegan) -> bytes:
        self._began = delta
        response = self._response(Outcome("in_progress"))
        created = self._events.say("response.created", response=response)
        return created + self._events.say("response.in_progress", response=response)

    def _begin_part(self, delta: PartBegan) -> bytes:
        if isinstance(delta.part, Text | Refusal):
            said, message = self._words_begin()
            self._messages[delta.index] = message
            place, item_id, content_index = message.place, message.id, len(message.contents)
            message.contents.append({})
            message.missing += 1
        else:
            said, place = self._seal(), self._next_place()
            item = single_item(bare(delta.part), self._id, place, "in_progress")
            said += self._events.say("response.output_item.added", output_index=place, item=item)
            item_id, content_index = str(item.get("id")), 0
        self._open[delta.index] = OpenPart(delta.part, self._events, place, item_id, content_index)
        return said + self._open[delta.index].begin()

    def _words_begin(self) -> tuple[bytes, _Message]:
        """Return the message that words belong to, and what tells of it if it is another than before."""
        if self._message is not None:
            return b"", self._message
        place = self._next_place()
        self._message = message = _Message(place, made_id("msg", self._id, place))
        item = message_item("assistant", [], message.id, "in_progress")
        return self._events.say("response.output_item.added", output_index=place, item=item), message

    def _release(self, status: str = "completed") -> bytes:
        """Return what tells the end of the part that ended last, if that was not told yet."""
        if self._held is None:
            return b""
        held, self._held = self._held, None
        return self._end_part(held.index, held.part, status)

    def _end_part(self, index: int, part: Part, status: str) -> bytes:
        open_part = self._part(index)
        said = open_part.end(part)
        del self._open[index]
        self._whole.append(part)
        message = self._messages.pop(index, None)
        if message is None:
            return said + self._item_done(open_part.place, single_item(part, self._id, open_part.place, status))
        if isinstance(part, Text | Refusal):
            message.contents[open_part.content_index] = open_part.content(part)
            message.missing -= 1
        message.status = status
        return said + self._message_done(message)

    def _seal(self) -> bytes:
        """Let no more words into the message that is open."""
        if self._message is None:
            return b""
        message, self._message = self._message, None
        message.is_sealed = True
        return self._message_done(message)

    def _message_done(self, message: _Message) -> bytes:
        if not message.is_sealed or message.missing:
            return b""
        return self._item_done(message.place, message_item("assistant", message.contents, message.id, message.status))

    def _item_done(self, place: int, item: dict[str, Any]) -> bytes:
        self._items[place] = item
        return self._events.say("response.output_item.done", output_index=place, item=item)

    def _end(self, delta: ReplyEnded) -> bytes:
        ended = outcome(delta.stop_reason, [*self._whole, *(each.part for each in self._open.values())])
        said = self._finish("incomplete" if ended.is_cut else "completed")
        response = self._response(ended)
        response["usage"] = write_usage(delta.usage)
        return said + self._events.say(f"response.{ended.status}", response=response)

    def _break(self, delta: ReplyBroke) -> bytes:
        code = delta.code or "server_error"
        if self._began is None:
            self._is_over = True
            return self._events.say("error", code=code, message=delta.message, param=None)
        said = self._finish("incomplete")
        response = self._response(Outcome("failed")) | {"error": {"code": code, "message": delta.message}}
        return said + self._events.say("response.failed", response=response)

    def _finish(self, status: str) -> bytes:
        """End all that is open; `status` is that of what was told last."""
        self._is_over = True
        if not self._open or set(self._open) == {self._held.index if self._held else None}:
            return self._release(status) + self._seal()
        said = [self._release()]
        last = max(self._open)
        for index, part in sorted(self._open.items()):
            said.append(self._end_part(index, part.whole(), status if index == last else "completed"))
        return b"".join([*said, self._seal()])

    def _response(self, ended: Outcome) -> dict[str, Any]:
        began = self._began
        if began is None:
            raise Malformed("an answer ended that never began")
        response = response_object(began.id, began.model, began.created, self._echo, ended)
        response["output"] = [item for _, item in sorted(self._items.items())]
        return response

    @property
    def _id(self) -> str:
        if self._began is None:
            raise Malformed("a part came before its answer began")
        return self._began.id

    def _part(self, index: int) -> OpenPart:
        if index not in self._open:
            raise Malformed(f"part {index} has not begun, or has ended")
        return self._open[index]

    def _next_place(self) -> int:
        self._places += 1
        return self._places - 1
