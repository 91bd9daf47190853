"""A streamed message read, event by event; blocks may come one after the other or interleaved.

Unknown fields are not kept: the deltas of a stream have no place for them. Unknown events and deltas are passed over.
"""

from __future__ import annotations

from typing import Any

from providers.dialects.base import Malformed, Unexpressible
from providers.dialects.call_ids import CallIds
from providers.dialects.fields import Fields
from providers.dialects.json_text import strictly
from providers.dialects.messages.ends import read_stop_reason, read_usage
from providers.dialects.messages.failures import reading_answer
from providers.dialects.messages.open_block import OpenBlock, open_block
from providers.dialects.messages.problems import read_broken
from providers.dialects.messages.unknown import Found
from schemas.conversation import Delta, ReplyBegan, ReplyEnded, StopReason, TokenUsage


class MessageStreamReader:
    """See the module; what is read after the end is passed over."""

    def __init__(self) -> None:
        """Begin with nothing."""
        self._has_begun = self._is_over = False
        self._blocks: dict[int, OpenBlock] = {}
        self._parts = 0
        self._call_ids = CallIds()
        self._usage: dict[str, Any] = {}
        self._stop_reason: StopReason | None = None
        self._stop_sequence: str | None = None

    def feed(self, event: str | None, data: str) -> list[Delta]:
        """Return what one event says; raises `Malformed`."""
        if self._is_over or not data.strip() or data.strip() == "[DONE]":
            return []
        body = _parsed(data)
        kind = body.get("type", event)
        if kind == "error" or event == "error":
            self._is_over = True
            return [read_broken(body)]
        with reading_answer():
            return self._read(kind, Fields(body))

    @property
    def is_ending(self) -> bool:
        """See `StreamReader`."""
        return self._stop_reason is not None

    def end(self) -> list[Delta]:
        """Return nothing; raises `Malformed` if the stream was cut."""
        if not self._is_over:
            msg = "the backend's stream ended before its message did"
            raise Malformed(msg)
        return []

    def _read(self, kind: object, body: Fields) -> list[Delta]:  # noqa: PLR0911 - one line for each kind of event
        match kind:
            case "message_start":
                return self._begin(body)
            case "content_block_start":
                return self._open(body)
            case "content_block_delta":
                return self._block(body).grow(_inner(body, "delta"))
            case "content_block_stop":
                return self._close(body)
            case "message_delta":
                return self._turn(body)
            case "message_stop":
                return self._end()
            case _:
                return []

    def _begin(self, body: Fields) -> list[Delta]:
        if self._has_begun:
            raise Unexpressible("message_start", "comes twice")
        message = _inner(body, "message")
        self._has_begun = True
        self._count(message)
        usage = self._total()
        return [ReplyBegan(id=message.needed_text("id"), model=message.needed_text("model"), usage=usage)]

    def _open(self, body: Fields) -> list[Delta]:
        if not self._has_begun:
            raise Unexpressible("content_block_start", "comes before message_start")
        number = _number(body)
        if number in self._blocks:
            raise Unexpressible("index", f"block {number} begins twice")
        block = open_block(number, self._parts, body.object("content_block") or {})
        self._call_ids.note(block.index, block.part)
        self._blocks[number] = block
        self._parts += 1
        return [block.beginning]

    def _close(self, body: Fields) -> list[Delta]:
        block = self._block(body)
        del self._blocks[block.number]
        return block.end()

    def _block(self, body: Fields) -> OpenBlock:
        number = _number(body)
        if number not in self._blocks:
            raise Unexpressible("index", f"block {number} is not open")
        return self._blocks[number]

    def _turn(self, body: Fields) -> list[Delta]:
        """Take in how the message ends; what is told of it may come in several events."""
        delta = _inner(body, "delta")
        if (reason := delta.text("stop_reason")) is not None:
            self._stop_reason = read_stop_reason(reason, "delta.stop_reason")
        self._stop_sequence = delta.text("stop_sequence") or self._stop_sequence
        self._count(body)
        return []

    def _end(self) -> list[Delta]:
        if self._stop_reason is None:
            raise Unexpressible("message_stop", "comes before a stop_reason")
        self._is_over = True
        deltas = [delta for block in self._blocks.values() for delta in block.end()]
        end = ReplyEnded(stop_reason=self._stop_reason, stop_sequence=self._stop_sequence, usage=self._total())
        return [*deltas, end]

    def _count(self, owner: Fields) -> None:
        """Take in counts, each of which replaces the one before."""
        if (usage := owner.fields("usage")) is not None:
            self._usage |= usage.rest()

    def _total(self) -> TokenUsage | None:
        return read_usage(Fields(self._usage, "usage"), Found()) if self._usage else None


def _parsed(data: str) -> dict[str, Any]:
    try:
        body = strictly(data)
    except (ValueError, RecursionError) as error:
        msg = f"the backend's stream holds an event that is no JSON: {error}"
        raise Malformed(msg) from error
    if not isinstance(body, dict):
        msg = "the backend's stream holds an event that is no object"
        raise Malformed(msg)
    return body


def _inner(body: Fields, name: str) -> Fields:
    inner = body.fields(name)
    if inner is None:
        raise Unexpressible(body.at(name), "is missing")
    return inner


def _number(body: Fields) -> int:
    number = body.integer("index")
    if number is None:
        raise Unexpressible(body.at("index"), "is missing")
    return number
