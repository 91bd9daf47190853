"""What is written in Anthropic Messages is read as the same: requests, answers, and streams."""

from __future__ import annotations

import json

from hypothesis import HealthCheck, given, settings

from providers.dialects.folding import fold
from providers.dialects.messages import Messages
from providers.dialects.sse import EventSplitter
from schemas.conversation import Delta, Reasoning, Reply, Request, Turn
from tests.support.messages_conversations import replies, requests, streams

MESSAGES = Messages()
ASKED = Request(dialect="messages", model="m", turns=(Turn(role="user", parts=()),))
MANY = settings(derandomize=True, max_examples=200, deadline=None, suppress_health_check=[HealthCheck.too_slow])


@MANY
@given(requests())
def test_a_request_written_is_read_as_the_same(request: Request) -> None:
    written = MESSAGES.write_request(request)
    assert MESSAGES.read_request(json.loads(json.dumps(written.body))) == request
    assert written.dropped == ()


@MANY
@given(replies())
def test_an_answer_written_is_read_as_the_same(reply: Reply) -> None:
    assert MESSAGES.read_reply(json.loads(json.dumps(MESSAGES.write_reply(reply, ASKED)))) == reply


@MANY
@given(
    streams().filter(lambda told: Reasoning() not in told[0].parts)
)  # which only a client of another dialect would miss
def test_a_stream_written_is_read_as_the_same_answer(told: tuple[Reply, list[Delta]]) -> None:
    reply, deltas = told
    assert fold(deltas, "messages") == reply
    writer, reader, splitter = MESSAGES.stream_writer(ASKED), MESSAGES.stream_reader(), EventSplitter()
    read = [
        got
        for delta in deltas
        for event in splitter.feed(writer.write(delta))
        for got in reader.feed(event.name, event.data)
    ]
    assert fold([*read, *reader.end()], "messages") == reply
