"""Counts that nobody can have counted are no counts, in every dialect and whole and streamed alike."""

from __future__ import annotations

import json
from typing import Any, Final

import pytest

from providers.dialects.catalog import DIALECTS
from providers.dialects.folding import fold
from schemas.conversation import DialectName, Reply, TokenUsage

INSANE: Final = (-1, -(2**63), 2**53 + 1, 2**63)
HEAD: Final = {"id": "i", "model": "m"}


def usage(name: DialectName, read: int, said: int) -> dict[str, int]:
    if name == "chat":
        return {"prompt_tokens": read, "completion_tokens": said}
    return {"input_tokens": read, "output_tokens": said}


def whole(name: DialectName, cost: dict[str, int]) -> Reply:
    body: dict[str, Any] = {**HEAD, "usage": cost}
    match name:
        case "chat":
            body |= {"choices": [{"message": {"content": "x"}, "finish_reason": "stop"}]}
        case "messages":
            body |= {"content": [{"type": "text", "text": "x"}], "stop_reason": "end_turn"}
        case _:
            body |= {"output": [], "status": "completed"}
    return DIALECTS[name].read_reply(body)


def streamed(name: DialectName, cost: dict[str, int]) -> Reply:
    match name:
        case "chat":
            choice = {"index": 0, "delta": {"content": "x"}, "finish_reason": "stop"}
            events: list[dict[str, Any]] = [{**HEAD, "choices": [choice]}, {**HEAD, "choices": [], "usage": cost}]
        case "messages":
            message = {**HEAD, "content": [], "usage": usage(name, 1, 1)}
            end = {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": cost}
            events = [{"type": "message_start", "message": message}, end, {"type": "message_stop"}]
        case _:
            events = [{"type": "response.completed", "response": {**HEAD, "status": "completed", "usage": cost}}]
    reader = DIALECTS[name].stream_reader()
    return fold([delta for event in events for delta in reader.feed(None, json.dumps(event))] + reader.end(), name)


@pytest.mark.parametrize("name", DIALECTS)
@pytest.mark.parametrize("read", [whole, streamed])
def test_what_nobody_can_have_counted_counts_as_not_said(name: DialectName, read: Any) -> None:
    assert read(name, usage(name, 3, 4)).usage == TokenUsage(input_tokens=3, output_tokens=4)
    for count in INSANE:
        assert read(name, usage(name, count, 4)).usage is None
        assert read(name, usage(name, 3, count)).usage is None
