"""OpenAI's own library takes what is written here: answers, each event of a stream, and whole streams."""

from __future__ import annotations

import json
from typing import Any, get_args

import httpx
import pytest
from hypothesis import HealthCheck, given, settings
from openai import OpenAI
from openai.types.responses import Response, ResponseStreamEvent
from pydantic import BaseModel

from providers.dialects.responses import Responses
from providers.dialects.sse import EventSplitter
from schemas.conversation import Delta, Reply, Request, Tool
from tests.support.responses_conversations import replies, requests, streams

SETTINGS = settings(derandomize=True, max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
RESPONSES = Responses()
EVENTS: dict[str, type[BaseModel]] = {
    get_args(event.model_fields["type"].annotation)[0]: event for event in get_args(get_args(ResponseStreamEvent)[0])
}


def describes_namespaces(request: Request) -> bool:
    """Return whether the library would take a request's namespaces: it wants all of them described."""
    used = {tool.namespace for tool in request.tools or () if isinstance(tool, Tool) and tool.namespace}
    return used <= request.others.get("tools.namespaces", {}).keys()


@SETTINGS
@given(replies(), requests().filter(describes_namespaces))
def test_the_library_takes_an_answer(reply: Reply, request: Request) -> None:
    body = RESPONSES.write_reply(reply, request)
    assert Response.model_validate(body).id == reply.id


@SETTINGS
@given(streams(), requests().filter(describes_namespaces))
def test_the_library_takes_each_event(deltas: list[Delta], request: Request) -> None:
    writer, splitter = RESPONSES.stream_writer(request), EventSplitter()
    for delta in deltas:
        for event in splitter.feed(writer.write(delta)):
            EVENTS[str(event.name)].model_validate(json.loads(event.data))


def client(content: bytes, type_: str) -> OpenAI:
    def answer(_request: httpx.Request) -> httpx.Response:
        return httpx.Response(200, content=content, headers={"content-type": type_})

    http = httpx.Client(transport=httpx.MockTransport(answer))
    return OpenAI(api_key="k", base_url="http://model.example/v1", http_client=http, max_retries=0)


@settings(SETTINGS, max_examples=20)
@given(streams())
def test_the_library_puts_a_stream_together(deltas: list[Delta]) -> None:
    asked = RESPONSES.read_request({"model": "m", "input": "x", "stream": True})
    writer = RESPONSES.stream_writer(asked)
    content = b"".join(map(writer.write, deltas))
    last: Any = None
    with client(content, "text/event-stream") as openai, openai.responses.stream(model="m", input="x") as stream:
        for event in stream:
            last = event
    body = json.loads(content.decode().rstrip().rpartition("data: ")[2])["response"]
    assert last.type == f"response.{body['status']}"
    texts = [
        part["text"] for item in body["output"] for part in item.get("content", ()) if part["type"] == "output_text"
    ]
    assert last.response.output_text == "".join(texts)


def test_the_library_reads_a_whole_answer() -> None:
    reply = Reply(dialect="chat", id="i", model="m", parts=(), stop_reason="stop")
    content = json.dumps(RESPONSES.write_reply(reply, Request(dialect="responses", model="m", turns=()))).encode()
    with client(content, "application/json") as openai:
        assert openai.responses.create(model="m", input="x").status == "completed"


@pytest.mark.parametrize("name", ["response.created", "response.custom_tool_call_input.delta", "error"])
def test_the_library_knows_the_events(name: str) -> None:
    assert name in EVENTS
