"""What this dialect can say is the same when it is read again: requests, replies and streams."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from providers.dialects.folding import fold
from providers.dialects.responses import Responses
from providers.dialects.responses.echo import ECHOED, echo
from providers.dialects.sse import EventSplitter
from schemas.conversation import Delta, Reply, Request
from tests.support.responses_conversations import replies, requests, streams

SETTINGS = settings(derandomize=True, max_examples=80, deadline=None, suppress_health_check=list(HealthCheck))
RESPONSES = Responses()
ASKED = Request(dialect="responses", model="m", turns=())


def over_the_wire(body: dict[str, Any]) -> dict[str, Any]:
    return json.loads(json.dumps(body))


@SETTINGS
@given(requests())
def test_a_request_is_the_same_when_it_is_read_again(request: Request) -> None:
    written = RESPONSES.write_request(request)
    assert written.dropped == ()
    assert RESPONSES.read_request(over_the_wire(written.body)) == request


@SETTINGS
@given(requests())
def test_a_body_that_was_written_is_written_again_as_it_is(request: Request) -> None:
    body = RESPONSES.write_request(request).body
    assert RESPONSES.write_request(RESPONSES.read_request(over_the_wire(body))).body == body


@SETTINGS
@given(replies(), requests())
def test_a_reply_is_the_same_when_it_is_read_again(reply: Reply, request: Request) -> None:
    assert RESPONSES.read_reply(over_the_wire(RESPONSES.write_reply(reply, request))) == reply


@SETTINGS
@given(streams(), st.integers(1, 50))
def test_a_stream_is_the_same_reply_when_it_is_read_again(deltas: list[Delta], chunk: int) -> None:
    writer, reader, splitter = RESPONSES.stream_writer(ASKED), RESPONSES.stream_reader(), EventSplitter()
    raw = b"".join(map(writer.write, deltas))
    read: list[Delta] = []
    for start in range(0, len(raw), chunk * 40):
        for event in splitter.feed(raw[start : start + chunk * 40]):
            read += reader.feed(event.name, event.data)
    read += reader.end()
    assert fold(read, "responses") == fold(deltas, "responses")


@SETTINGS
@given(requests())
def test_all_that_an_answer_repeats_is_known_as_such(request: Request) -> None:
    assert echo(request).keys() <= ECHOED
