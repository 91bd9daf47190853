"""What is written for clients of Anthropic Messages is what Anthropic's own SDK takes, if it is installed."""

from __future__ import annotations

import json
from typing import Any

import pytest
from pydantic import TypeAdapter

from providers.dialects import Problem
from providers.dialects.messages import Messages
from providers.dialects.sse import EventSplitter
from schemas.conversation import (
    Delta,
    PartBegan,
    PartEnded,
    PartGrew,
    Reasoning,
    Reply,
    ReplyBegan,
    ReplyEnded,
    Request,
    Text,
    TokenUsage,
    Tool,
    ToolResult,
    ToolUse,
    Turn,
)

anthropic = pytest.importorskip("anthropic")

MESSAGES = Messages()
ASKED = Request(dialect="messages", model="m", turns=(Turn(role="user", parts=(Text(text="hi"),), is_plain=True),))
PARTS = (
    Reasoning(texts=("Hm.",)),
    Reasoning(redacted="ZA=="),
    Text(text="Hi ü"),
    ToolUse(id="a", name="N", arguments='{"x": {"y": [1, null]}}'),
    ToolUse(id="b", name="N", arguments="{}"),
)
USAGE = TokenUsage(input_tokens=9, cached_tokens=3, cache_written_tokens=1, output_tokens=5, reasoning_tokens=2)
REPLY = Reply(dialect="chat", id="i", model="m", parts=PARTS, stop_reason="tool_calls", usage=USAGE)


def deltas() -> list[Delta]:
    """Return a stream of the answer in which the two calls grow at the same time."""
    told: list[Delta] = [ReplyBegan(id="i", model="m")]
    for index, part in enumerate(PARTS[:3]):
        told += [PartBegan(index=index, part=part), PartEnded(index=index, part=part)]
    told += [PartBegan(index=n, part=ToolUse(id=part.id, name="N", arguments="")) for n, part in _calls()]
    told += [PartGrew(index=n, field="arguments", more=part.arguments[:1]) for n, part in _calls()]
    told += [PartGrew(index=n, field="arguments", more=part.arguments[1:]) for n, part in _calls()]
    told += [PartEnded(index=n, part=part) for n, part in _calls()]
    return [*told, ReplyEnded(stop_reason="tool_calls", usage=USAGE)]


def _calls() -> list[tuple[int, ToolUse]]:
    return [(n, part) for n, part in enumerate(PARTS) if isinstance(part, ToolUse)]


def test_an_answer_is_a_message() -> None:
    body = MESSAGES.write_reply(REPLY, ASKED)
    message = anthropic.types.Message.model_validate(body, strict=True)
    assert message.model_extra == {}
    assert [block.type for block in message.content] == [
        "thinking",
        "redacted_thinking",
        "text",
        "tool_use",
        "tool_use",
    ]
    assert message.usage.input_tokens == 5


def test_a_stream_adds_up_to_the_same_message() -> None:
    from anthropic.lib.streaming._messages import accumulate_event  # noqa: PLC0415

    adapter: TypeAdapter[Any] = TypeAdapter(anthropic.types.RawMessageStreamEvent)
    writer = MESSAGES.stream_writer(ASKED)
    events = EventSplitter().feed(b"".join(writer.write(delta) for delta in deltas()))
    snapshot, buffers = None, {}
    for event in events:
        parsed = adapter.validate_python(json.loads(event.data), strict=True)
        snapshot = accumulate_event(event=parsed, current_snapshot=snapshot, json_bufs=buffers)
    assert snapshot is not None
    body = MESSAGES.write_reply(REPLY, ASKED)
    assert snapshot.to_dict(exclude_none=True) == {name: value for name, value in body.items() if value is not None}


def test_an_error_is_one() -> None:
    body = MESSAGES.write_problem(Problem(429, "busy", "later"))
    assert anthropic.types.ErrorResponse.model_validate(body).error.type == "rate_limit_error"


def test_a_request_is_one() -> None:
    results = tuple(ToolResult(call_id=part.id, parts=(Text(text="r"),)) for _, part in _calls())
    turns = (*ASKED.turns, Turn(role="assistant", parts=PARTS), Turn(role="tool", parts=results))
    body = MESSAGES.write_request(ASKED.replaced(turns=turns, tools=(Tool(name="N"),))).body
    body["tools"][0]["input_schema"] = {"type": "object"}
    adapter: TypeAdapter[Any] = TypeAdapter(anthropic.types.message_create_params.MessageCreateParamsNonStreaming)
    read = adapter.validate_python(body)
    assert [message["role"] for message in read["messages"]] == ["user", "assistant", "user"]
    assert [tool["name"] for tool in read["tools"]] == ["N"]
