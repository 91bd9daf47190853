"""Two calls of one id: nobody could say which of them a result belongs to, so it is no answer, whole or streamed."""

from __future__ import annotations

import json
from typing import Any, Final

import pytest

from providers.dialects import Malformed
from providers.dialects.catalog import DIALECTS
from schemas.conversation import DialectName

CHAT_CALL: Final = {"id": "c0", "type": "function", "function": {"name": "f", "arguments": "{}"}}
BLOCK: Final = {"type": "tool_use", "id": "c0", "name": "f", "input": {}}
ITEM: Final = {"type": "function_call", "call_id": "c0", "name": "f", "arguments": "{}"}
HEAD: Final = {"id": "i", "model": "m"}


def chunk(*calls: dict[str, Any]) -> dict[str, Any]:
    return {**HEAD, "choices": [{"index": 0, "delta": {"tool_calls": list(calls)}}]}


WHOLE: Final[dict[DialectName, dict[str, Any]]] = {
    "chat": {**HEAD, "choices": [{"message": {"tool_calls": [CHAT_CALL, CHAT_CALL]}, "finish_reason": "tool_calls"}]},
    "messages": {**HEAD, "content": [BLOCK, BLOCK], "stop_reason": "tool_use"},
    "responses": {**HEAD, "output": [ITEM, ITEM], "status": "completed"},
}
BEGAN: Final = {"type": "message_start", "message": {**HEAD, "content": []}}
CREATED: Final = {"type": "response.created", "response": HEAD}
STREAMED: Final[list[tuple[DialectName, list[dict[str, Any]]]]] = [
    ("chat", [chunk({"index": 0, **CHAT_CALL}), chunk({"index": 1, **CHAT_CALL})]),
    ("chat", [chunk({"index": 0, **CHAT_CALL}), chunk({"index": 1, "function": {"name": "g"}}), chunk({"index": 1, "id": "c0"})]),
    ("messages", [BEGAN, *({"type": "content_block_start", "index": n, "content_block": BLOCK} for n in (0, 1))]),
    ("responses", [CREATED, *({"type": "response.output_item.added", "output_index": n, "item": ITEM} for n in (0, 1))]),
    ("responses", [CREATED, *({"type": "response.output_item.done", "output_index": n, "item": ITEM} for n in (0, 1))]),
    ("responses", [{"type": "response.completed", "response": WHOLE["responses"]}]),
]  # fmt: skip


@pytest.mark.parametrize("name", WHOLE)
def test_a_whole_answer_is_malformed(name: DialectName) -> None:
    with pytest.raises(Malformed, match="'c0'"):
        DIALECTS[name].read_reply(WHOLE[name])


@pytest.mark.parametrize(("name", "events"), STREAMED)
def test_a_stream_is_malformed_where_the_second_one_begins(name: DialectName, events: list[dict[str, Any]]) -> None:
    reader = DIALECTS[name].stream_reader()
    for event in events[:-1]:
        reader.feed(None, json.dumps(event))
    with pytest.raises(Malformed, match="'c0'"):
        reader.feed(None, json.dumps(events[-1]))
