"""A streamed message written, delta by delta, each as soon as it comes.

Parts that grow at the same time are blocks that are open at the same time, told apart by their index. Three things wait because the
protocol makes them: citations and a thought's signature for the end of their block, and the end of a call whose arguments are no
JSON object for the end of the message. If it says that the model was cut off, the call is left cut off too, as Anthropic does;
otherwise it raises `Unexpressible`, so that nobody takes it for a call to be run. A thought of which nothing is known yet is begun
with its first word, since it may be one that only another provider can read.
"""

from __future__ import annotations

import json
from typing import Any, assert_never

from providers.dialects.base import Unexpressible
from providers.dialects.cutting import CUT_OFF
from providers.dialects.messages.block_being_written import BlockBeingWritten
from providers.dialects.messages.ends import WRITTEN, write_usage
from providers.dialects.messages.problems import broken_body
from providers.dialects.sse import event_bytes
from schemas.conversation import (
    Delta,
    PartBegan,
    PartEnded,
    PartGrew,
    Refusal,
    ReplyBegan,
    ReplyBroke,
    ReplyEnded,
)


class MessageStreamWriter:
    """See the module; after the end or an error nothing more is written."""

    def __init__(self) -> None:
        """Begin with nothing."""
        self._blocks: dict[int, BlockBeingWritten] = {}
        self._waiting: list[BlockBeingWritten] = []  # for their first word
        self._unfit: list[BlockBeingWritten] = []
        self._begun_blocks = 0
        self._is_refused = self._is_over = False

    def write(self, delta: Delta) -> bytes:
        """Return the events for one delta, perhaps none; raises `Unexpressible` for what no message can hold."""
        if self._is_over:
            return b""
        return b"".join(_event(data) for data in self._events(delta))

    def _events(self, delta: Delta) -> list[dict[str, Any]]:
        match delta:
            case ReplyBegan():
                return [_message_start(delta)]
            case PartBegan():
                return self._begin(delta)
            case PartGrew():
                block = self._blocks.get(delta.index)
                if block is None:
                    raise Unexpressible(f"parts.{delta.index}", "grows, and is not open")
                return self._opened(block) + block.grow(delta) if block.shows(delta) else []
            case PartEnded():
                return self._end_part(delta)
            case ReplyEnded():
                return self._end(delta)
            case ReplyBroke():
                self._is_over = True
                return [broken_body(delta)]
            case _:
                assert_never(delta)

    def _begin(self, delta: PartBegan) -> list[dict[str, Any]]:
        """Begin a part, and before it those that have waited for their first word: the order is the answer's."""
        waiting = [event for block in self._waiting if block.index in self._blocks for event in self._opened(block)]
        block = BlockBeingWritten(delta.index, delta.part)
        self._blocks[delta.index] = block
        self._is_refused = self._is_refused or isinstance(delta.part, Refusal)
        self._waiting = [block] if block.may_say_nothing else []
        return waiting if block.may_say_nothing else [*waiting, *self._opened(block)]

    def _opened(self, block: BlockBeingWritten) -> list[dict[str, Any]]:
        """Return a block's beginning, nothing if it has begun."""
        if block.number is not None:
            return []
        events = block.open(self._begun_blocks)
        self._begun_blocks += 1
        return events

    def _end_part(self, delta: PartEnded) -> list[dict[str, Any]]:
        events = [] if delta.index in self._blocks else self._begin(PartBegan(index=delta.index, part=delta.part))
        block = self._blocks.pop(delta.index)
        block.complete(delta.part)
        return events if block.may_say_nothing and block.is_speechless else events + self._closed(block)

    def _closed(self, block: BlockBeingWritten) -> list[dict[str, Any]]:
        """Return the rest of a block and its end, which is held back if it is no call that can be run."""
        events = self._opened(block) + block.remainder()
        if block.is_fit:
            return [*events, block.stop()]
        self._unfit.append(block)
        return events

    def _end(self, delta: ReplyEnded) -> list[dict[str, Any]]:
        events = [event for block in self._blocks.values() for event in self._closed(block)]
        if self._unfit and delta.stop_reason not in CUT_OFF:
            raise Unexpressible(f"parts.{self._unfit[0].index}.arguments", "must be a JSON object here, and are none")
        self._is_over = True
        usage = write_usage(delta.usage) if delta.usage else {"output_tokens": 0}
        reason = "refusal" if self._is_refused else WRITTEN[delta.stop_reason]
        stop = {"stop_reason": reason, "stop_sequence": delta.stop_sequence}
        return [
            *events,
            *(block.stop() for block in self._unfit),
            {"type": "message_delta", "delta": stop, "usage": usage},
            {"type": "message_stop"},
        ]


def _message_start(began: ReplyBegan) -> dict[str, Any]:
    message: dict[str, Any] = {
        "id": began.id,
        "type": "message",
        "role": "assistant",
        "model": began.model,
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
        "usage": write_usage(began.usage),
    }
    return {"type": "message_start", "message": message}


def _event(data: dict[str, Any]) -> bytes:
    return event_bytes(json.dumps(data, separators=(",", ":")), data["type"])
