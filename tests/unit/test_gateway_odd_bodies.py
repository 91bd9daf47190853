"""Bodies that no client should send: a refusal in the client's own words, and a session that goes on wherever it is taken up."""

from __future__ import annotations

import json
from typing import Any, Final, NoReturn

import httpx
import pytest
from starlette.responses import JSONResponse, StreamingResponse

from gym_bus.nesting import GIVEN_MAX_LEVELS
from providers.dialects.catalog import CLIENTS
from schemas.conversation import DialectName
from schemas.events import ModelCallCompleted, ModelCallFailed, ModelCallRequested
from tests.support.gateway_calls import BODIES, GEMINI, NAMES, PATHS, message_of, post, words
from tests.support.gateway_place import gateway_place
from tests.support.nested import nested

BY_MESSAGES: dict[str, Any] = {
    "id": "x",
    "type": "message",
    "role": "assistant",
    "model": "m",
    "content": [
        {"type": "server_tool_use", "id": "s1", "name": "web_search", "input": nested(200)},
        {"type": "text", "text": "hi"},
    ],
    "stop_reason": "end_turn",
    "usage": {"input_tokens": 1, "output_tokens": 1},
}


def offering(client: DialectName, schema: dict[str, Any]) -> dict[str, Any]:
    """Return what a body of a dialect says of one tool."""
    match client:
        case "gemini":
            return {"tools": [{"functionDeclarations": [{"name": "t", "parametersJsonSchema": schema}]}]}
        case "messages":
            return {"tools": [{"name": "t", "input_schema": schema}]}
        case "responses":
            return {"tools": [{"type": "function", "name": "t", "parameters": schema}]}
        case _:
            return {"tools": [{"type": "function", "function": {"name": "t", "parameters": schema}}]}


@pytest.mark.parametrize("client", NAMES)
async def test_a_body_that_is_too_deep_is_refused_and_the_session_can_be_taken_over(client: DialectName) -> None:
    async with gateway_place(is_doubled=True) as place:
        place.upstream.answers = [words()]
        for levels in (GIVEN_MAX_LEVELS, 220, 900):
            refused = await post(place, client, **offering(client, nested(levels)))
            assert refused.status_code == 400
            assert f"more than {GIVEN_MAX_LEVELS} levels" in message_of(client, refused)
        assert (await post(place, client, **offering(client, nested(100)))).status_code == 200
        place.first_is_silent()
        assert (await post(place, client, url=place.second_url)).status_code == 200
        assert len(place.events(ModelCallCompleted)) == 2


@pytest.mark.parametrize("client", NAMES)
async def test_an_answer_that_is_too_deep_is_a_failed_call(client: DialectName) -> None:
    """Nothing of it is stored, and another gateway can read what is."""
    async with gateway_place("messages", is_doubled=True) as place:
        place.upstream.answers = [JSONResponse(BY_MESSAGES)]
        answer = await post(place, client)
        assert answer.status_code == 502
        assert f"more than {GIVEN_MAX_LEVELS} levels" in message_of(client, answer)
        failures = [e.data.failure for e in place.events(ModelCallFailed) if isinstance(e.data, ModelCallFailed)]
        assert {failure.kind for failure in failures} == {"provider_bad_answer"}
        place.first_is_silent()
        place.upstream.answers = [words(dialect="messages")]
        assert (await post(place, client, url=place.second_url)).status_code == 200


@pytest.mark.parametrize("client", NAMES)
async def test_a_streamed_answer_that_is_too_deep_breaks_off(client: DialectName) -> None:
    """Also in the dialect of the backend, whose bytes are passed on as they come."""
    usage = {"input_tokens": 1, "output_tokens": 1}
    events: list[dict[str, Any]] = [
        {"type": "message_start", "message": {**BY_MESSAGES, "content": [], "stop_reason": None}},
        {"type": "content_block_start", "index": 0, "content_block": BY_MESSAGES["content"][0]},
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": usage},
        {"type": "message_stop"},
    ]
    stream = "".join(f"event: {event['type']}\ndata: {json.dumps(event)}\n\n" for event in events)
    async with gateway_place("messages") as place:
        place.upstream.answers = [lambda _: StreamingResponse(iter([stream]), media_type="text/event-stream")]
        answer = await post(place, client, stream=True)
        assert "error" in answer.text
        assert {type(e.data) for e in place.events()[-1:]} == {ModelCallFailed}


@pytest.mark.parametrize("client", NAMES)
async def test_a_number_that_is_none_is_refused(client: DialectName) -> None:
    headers = {"content-type": "application/json"}
    async with gateway_place() as place, httpx.AsyncClient(headers=headers) as http:
        content = json.dumps({**BODIES[client], **offering(client, {"maximum": 7})})
        for number in ("NaN", "-Infinity", "1e999", "9" * 5000):
            url = f"{place.url}/a/{place.token}{PATHS[client]}"
            answer = await http.post(url, content=content.replace("7", number))
            assert answer.status_code == 400
            assert "no JSON" in message_of(client, answer)
        assert place.events(ModelCallRequested) == []


@pytest.mark.parametrize("client", NAMES)
async def test_whatever_reading_a_body_raises_is_a_400(client: DialectName, monkeypatch: pytest.MonkeyPatch) -> None:
    kinds = iter(kinds_ := [ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError])

    def reads_nothing(*_: object) -> NoReturn:
        raise next(kinds)("odd")

    monkeypatch.setattr(type(CLIENTS[client]), "read_request", reads_nothing)
    async with gateway_place() as place:
        for kind in kinds_:
            answer = await post(place, client)
            assert answer.status_code == 400
            assert f"body: cannot be read: {kind.__name__}" in message_of(client, answer)
        assert place.events(ModelCallRequested) == []


async def test_a_schema_of_geminis_that_is_none_is_refused_by_its_field() -> None:
    odd: list[tuple[str, dict[str, Any]]] = [
        ("anyOf", {"anyOf": 5, "nullable": True}),
        ("anyOf", {"anyOf": {"type": "STRING"}}),
        ("maxItems", {"type": "ARRAY", "maxItems": "9" * 5000}),
        ("maxItems", {"type": "ARRAY", "maxItems": "many"}),
    ]
    async with gateway_place() as place:
        for field, schema in odd:
            offered = [{"functionDeclarations": [{"name": "t", "parameters": schema}]}]
            answer = await post(place, "gemini", tools=offered)
            assert answer.status_code == 400
            assert f"parameters.{field}: want" in message_of("gemini", answer)


async def test_tokens_of_a_body_that_is_too_deep_are_not_counted() -> None:
    """Also of one that is large enough to be parsed aside."""
    async with gateway_place() as place, httpx.AsyncClient(headers={"x-goog-api-key": place.token}) as http:
        deep = "[" * 975 + "]" * 975
        content = f'{{"z": "{"x" * 300_000}", "contents": {deep}}}'
        for path, client in ((f"{GEMINI}:countTokens", "gemini"), ("/v1/messages/count_tokens", "messages")):
            answer = await http.post(place.url + path, content=content)
            assert answer.status_code == 400
            assert "levels" in message_of(client, answer)


NOT_SERVED: Final = [
    ("POST", "/v1beta/models", 405),
    ("DELETE", "/v1beta/models/m", 405),
    ("POST", "/v1beta/models/m", 405),
    ("GET", f"{GEMINI}:generateContent", 405),
    ("PUT", f"{GEMINI}:generateContent", 405),
    ("POST", f"{GEMINI}:embedContent", 404),
    ("GET", "/v1beta/", 404),
    ("GET", "/v1beta/files", 404),
    ("POST", "/v1beta/models/a%0ab:generateContent", 404),
    ("POST", f"{GEMINI}:gen%0aerate", 404),
    ("GET", "/v1beta/models/a%0ab", 404),
]


@pytest.mark.parametrize("behind", ["", "/a/{token}"])
async def test_what_is_not_served_below_v1beta_is_said_in_googles_shape(behind: str) -> None:
    async with gateway_place() as place, httpx.AsyncClient(headers={"x-goog-api-key": place.token}) as http:
        for method, path, status in NOT_SERVED:
            url = place.url + behind.format(token=place.token) + path
            answer = await http.request(method, url, json=BODIES["gemini"])
            assert answer.status_code == status, (method, path)
            assert message_of("gemini", answer)
            assert place.token not in answer.text
