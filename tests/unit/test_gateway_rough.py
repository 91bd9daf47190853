"""Clients and servers that do not behave: what was said is recorded, what was not is not, and nobody else pays for it."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest
from starlette.responses import HTMLResponse, JSONResponse, RedirectResponse, Response, StreamingResponse

from gym_bus.errors import BusUnavailable
from gym_bus.event_log import EventLog
from providers.dialects.base import Malformed
from providers.dialects.chat import Chat
from providers.dialects.sse import EventSplitter
from providers.models import http_client
from schemas.config import Budget, Budgets
from schemas.events import ModelCallCompleted, ModelCallFailed, ModelCallLost, ModelCallRequested
from tests.support.gateway_calls import BODIES, post, words
from tests.support.gateway_place import GatewayPlace, gateway_place
from tests.support.upstream import events_of

HEAD = {"id": "c1", "object": "chat.completion.chunk", "model": "up", "created": 1}


def chunk(delta: dict[str, Any], stop: str | None = None, **more: Any) -> str:
    choice = {"index": 0, "delta": delta, "finish_reason": stop}
    return "data: " + json.dumps({**HEAD, "choices": [choice], **more}) + "\n\n"


USAGE = "data: " + json.dumps({**HEAD, "choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": 2}}) + "\n\n"
SAID = [chunk({"role": "assistant", "content": "hi"}), chunk({"content": " there"}), chunk({}, "stop"), USAGE]
DONE = "data: [DONE]\n\n"


def streaming(*pieces: str | float, is_broken: bool = False) -> Any:
    """Return an answer that sends pieces and waits between them for numbers of seconds."""

    async def parts() -> AsyncIterator[str]:
        for piece in pieces:
            if isinstance(piece, float):
                await asyncio.sleep(piece)
            else:
                yield piece
        if is_broken:
            raise ConnectionResetError

    return lambda _: StreamingResponse(parts(), media_type="text/event-stream")


def completed(place: GatewayPlace) -> list[ModelCallCompleted]:
    return [e.data for e in place.events(ModelCallCompleted) if isinstance(e.data, ModelCallCompleted)]


async def until(condition: Any, seconds: float = 6) -> None:
    async with asyncio.timeout(seconds):
        while not condition():
            await asyncio.sleep(0.02)


# -- clients that have what they want -----------------------------------------------------------------------------------------------


async def test_a_client_that_leaves_when_it_has_read_all_has_an_answer() -> None:
    """Many stop at `finish_reason`; the accounts that follow are the record's, and the call counts against its budget."""
    async with gateway_place(budget=Budgets(rollout=Budget(model_calls=2))) as place, httpx.AsyncClient() as http:
        place.upstream.answers = [streaming(*SAID[:3], 0.3, USAGE, DONE)]
        headers = {"authorization": f"Bearer {place.token}"}
        for n in range(2):
            body = {**BODIES["chat"], "stream": True, "seed": n}
            async with http.stream("POST", f"{place.url}/v1/chat/completions", json=body, headers=headers) as answer:
                async for piece in answer.aiter_text():
                    if "stop" in piece:
                        break
            await until(lambda n=n: len(completed(place)) == n + 1)
        assert [(d.usage.output_tokens, d.is_unread) for d in completed(place)] == [(2, False)] * 2
        assert not place.events(ModelCallFailed)
        assert (await post(place)).status_code == 400


async def test_a_client_that_leaves_between_two_tries_gives_its_place_back() -> None:
    """It does not hold one of its session's places for as long as a server asks to be waited for."""
    async with gateway_place(max_tries=3) as place:
        place.upstream.answers = [JSONResponse({"error": {"message": "busy"}}, 429, {"retry-after": "60"}), words()]
        leaving = asyncio.create_task(post(place))
        await until(lambda: place.events(ModelCallFailed))
        leaving.cancel()
        known = next(iter(place.gateway._conversations._known.values()))
        await until(lambda: known.in_flight == 0)
        assert len(place.upstream.bodies) == 1


async def test_a_question_that_is_asked_often_is_tried_as_often_as_any(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tries are counted for a call, not for what it asks."""
    monkeypatch.setattr("actors.gateway.exchange.backoff_s", lambda *_: 0.01)
    async with gateway_place(max_tries=2) as place:
        busy = JSONResponse({"error": {"message": "busy"}}, 503)
        place.upstream.answers = [words(), words(), words(), busy, words()]
        assert [(await post(place)).status_code for _ in range(4)] == [200] * 4


async def test_one_good_token_is_enough() -> None:
    """SDKs send a dummy key beside the header that they were given."""
    async with gateway_place() as place, httpx.AsyncClient() as http:
        place.upstream.answers = [words()]
        headers = {"authorization": f"Bearer {place.token}", "x-api-key": "dummy"}
        answer = await http.post(f"{place.url}/v1/chat/completions", json=BODIES["chat"], headers=headers)
        assert answer.status_code == 200


# -- streams with an odd end --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "end",
    [streaming(*SAID, DONE, 60.0), streaming(*SAID, DONE, *[": ping\n\n", 0.2] * 100), streaming(*SAID, DONE, is_broken=True)],
    ids=["is never closed", "pings for ever", "is broken off"],
)  # fmt: skip
@pytest.mark.alone
async def test_what_comes_after_the_end_is_not_waited_for(end: Any) -> None:
    """An answer that is whole is an answer."""
    async with gateway_place(timeout_s=5) as place:
        place.upstream.answers = [end]
        began = time.monotonic()
        answer = await post(place, stream=True)
        assert time.monotonic() - began < 3
        assert answer.text.endswith(DONE)
        assert completed(place)[0].message.content == "hi there"


@pytest.mark.alone
def test_a_large_event_is_searched_once() -> None:
    """In pieces of a kibibyte: time in proportion to its size, not to its square."""

    def seconds(size: int) -> float:
        splitter, data = EventSplitter(), b"data: " + b"x" * size + b"\n\n"
        began = time.perf_counter()
        found = [event for at in range(0, len(data), 1024) for event in splitter.feed(data[at : at + 1024])]
        assert len(found[0].data) == size
        return time.perf_counter() - began

    assert seconds(8 * 1024 * 1024) < 20 * max(seconds(1024 * 1024), 0.02)


WORDS = {"content": "x"}
ODD: list[dict[str, Any]] = [
    {"object": "error"},
    {"usage": 0},
    {"choices": [{"index": "", "delta": WORDS}]},
    {"choices": [{"index": 0, "delta": WORDS, "finish_reason": 0}]},
]


@pytest.mark.parametrize("odd", ODD)
def test_the_short_way_reads_nothing_that_the_long_way_refuses(odd: dict[str, Any]) -> None:
    """Words in an object that is no plain chunk: both ways agree."""
    plain = {**HEAD, "choices": [{"index": 0, "delta": {"content": "a"}}]}
    outcomes = []
    for has_begun in (True, False):
        reader = Chat().stream_reader()
        if has_begun:
            reader.feed(None, json.dumps(plain))
        try:
            deltas = reader.feed(None, json.dumps({**plain, **odd}))
            outcomes.append({type(d).__name__ for d in deltas} & {"ReplyBroke", "PartGrew"})
        except Malformed as error:
            outcomes.append({type(error).__name__})
    assert outcomes[0] == outcomes[1]


async def test_a_chunk_that_says_more_than_its_cost_is_passed_on() -> None:
    """A filter's verdict beside the usage is the client's; what it did not ask for is hidden only alone."""
    verdict = {
        **HEAD,
        "choices": [],
        "usage": {"prompt_tokens": 3, "completion_tokens": 2},
        "prompt_filter_results": [1],
    }
    async with gateway_place() as place:
        place.upstream.answers = [streaming(*SAID[:3], f"data: {json.dumps(verdict)}\n\n", DONE)]
        assert "prompt_filter_results" in (await post(place, stream=True)).text
        place.upstream.answers = [streaming(*SAID, DONE)]
        assert not [c for c in events_of((await post(place, stream=True)).text) if c.get("usage")]


# -- what cannot be written down ----------------------------------------------------------------------------------------------------


async def test_a_request_that_cannot_be_recorded_is_refused_alone() -> None:
    """A schema three hundred objects deep, bytes that are no text: a 400, and the session's other calls go on."""
    deep: dict[str, Any] = {"type": "string"}
    for _ in range(300):
        deep = {"type": "object", "properties": {"a": deep}}
    tools = [{"type": "function", "function": {"name": "f", "parameters": deep}}]
    async with gateway_place() as place, httpx.AsyncClient() as http:
        place.upstream.answers = [words()]
        place.upstream.pace_s = 0.1
        going = asyncio.create_task(post(place, stream=True, seed=1))
        await until(lambda: place.upstream.open_streams)
        assert (await post(place, tools=tools)).status_code == 400
        headers = {"authorization": f"Bearer {place.token}", "content-type": "application/json"}
        for raw in (
            b'{"model": "m", "messages": [{"role": "user", "content": "\xed\xa0\xbd"}]}',
            "{}".encode("utf-16"),
        ):
            refused = await http.post(f"{place.url}/v1/chat/completions", content=raw, headers=headers)
            assert refused.status_code == 400
        assert (await post(place, seed=2)).status_code == 200
        assert (await going).status_code == 200
        assert len(completed(place)) == 2
        assert not place.events(ModelCallLost)


@pytest.mark.parametrize("streamed", [False, True])
async def test_halves_of_a_character_are_joined_or_replaced(streamed: bool) -> None:
    """Servers that cut by UTF-16 units leave them; the client has its answer, and the log something that is text."""
    halves = [chunk({"role": "assistant", "content": "a"}), chunk({"content": "\ud83d"}), chunk({"content": "\ude00"})]
    whole = {"index": 0, "message": {"role": "assistant", "content": "a\ud83d\ude00\ud83d"}, "finish_reason": "stop"}
    content = json.dumps({**HEAD, "object": "chat.completion", "choices": [whole]}).encode()
    async with gateway_place() as place:
        ended = streaming(*halves, chunk({"content": "\ud83d"}), chunk({}, "stop"), DONE)
        place.upstream.answers = [ended if streamed else Response(content, media_type="application/json")]
        assert (await post(place, stream=streamed)).status_code == 200
        assert completed(place)[0].message.content == "a\U0001f600\ufffd"
        assert (await post(place, "messages", stream=streamed)).status_code == 200


async def test_a_server_that_says_nothing_of_its_usage_is_not_free() -> None:
    """What is not known is not nought: no price, and the log says so."""
    async with gateway_place() as place:
        place.upstream.answers = [streaming(*SAID[:3], DONE)]
        await post(place, stream=True)
        assert (completed(place)[0].has_usage, completed(place)[0].cost_usd) == (False, None)


# -- secrets ------------------------------------------------------------------------------------------------------------------------

TELLING = "Incorrect API key provided: the-key"


@pytest.mark.parametrize(
    "answer",
    [
        RedirectResponse("https://elsewhere/?key=the-key"),
        streaming("data: " + json.dumps({"error": {"message": TELLING}}) + "\n\n"),
        streaming(SAID[0], "data: " + json.dumps({"error": {"message": TELLING}}) + "\n\n"),
        JSONResponse({"error": {"message": TELLING}}),
        HTMLResponse(f"<p>{TELLING}</p>"),
        JSONResponse({"error": {"message": TELLING}}, 401),
    ],
    ids=["redirect", "first event", "mid-stream", "200 with an error", "200 with HTML", "401"],
)
@pytest.mark.parametrize("streamed", [False, True])
async def test_the_backends_key_reaches_nobody(answer: Any, streamed: bool) -> None:
    """However a server repeats it."""
    async with gateway_place() as place:
        place.upstream.answers = [answer]
        told = await post(place, stream=streamed)
        assert "the-key" not in told.text
        assert not [s for s in place.server.events if b"the-key" in s.body]


# -- the log behind it --------------------------------------------------------------------------------------------------------------


async def test_a_takeover_that_breaks_off_counts_nothing_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    """The log is read again from the start: six answers are six, and a budget of seven has one left."""
    async with gateway_place(budget=Budgets(rollout=Budget(model_calls=7)), is_doubled=True) as place:
        place.upstream.answers = [words()]
        for n in range(6):
            assert (await post(place, seed=n)).status_code == 200
        reading, calls = EventLog.read, 0

        async def breaks_off(self: EventLog, pattern: str, *arguments: Any, **more: Any) -> AsyncIterator[Any]:
            nonlocal calls
            place_in = 0
            async for event in reading(self, pattern, *arguments, **more):
                if ".model.s1.>" in pattern and calls == 0 and place_in == 6:
                    calls += 1
                    raise BusUnavailable("away")
                place_in += 1
                yield event

        monkeypatch.setattr(EventLog, "read", breaks_off)
        place.first_is_silent()
        assert (await post(place, url=place.second_url, seed=7)).status_code == 503
        assert (await post(place, url=place.second_url, seed=7)).status_code == 200
        assert (await post(place, url=place.second_url, seed=8)).status_code == 400


async def test_a_gateway_that_is_stopped_says_so() -> None:
    """Calls under way end with a reason in the log, whatever their clients think."""
    async with gateway_place() as place:
        place.upstream.answers = [streaming(SAID[0], 60.0)]
        going = asyncio.create_task(post(place, stream=True))
        await until(lambda: place.events(ModelCallRequested))
        await asyncio.sleep(0.1)
        await place.gateway.stop(3)
        await asyncio.wait({going}, timeout=5)
        assert going.done(), "its client knows that nothing more comes"
        (failed,) = [e.data for e in place.events(ModelCallFailed)]
        assert isinstance(failed, ModelCallFailed)
        assert failed.failure.message == "the gateway was stopped"
        assert failed.parts is not None


def test_proxies_of_the_environment_are_understood(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a scheme, for hosts that are not to be proxied however they are written, and of a kind that is not spoken here."""
    monkeypatch.setenv("http_proxy", "proxy:3128")
    monkeypatch.setenv("no_proxy", "inner,::1")
    monkeypatch.delenv("HTTP_PROXY", raising=False)
    http_client._proxy_for.cache_clear()
    try:
        assert http_client._proxy_of("http://outer:1/v1") == "http://proxy:3128"
        assert http_client._proxy_of("http://user:pw@inner:1/v1") is None
        monkeypatch.setenv("http_proxy", "socks5://proxy:1080")
        http_client._proxy_for.cache_clear()
        with pytest.raises(http_client.Unsendable, match="not spoken here"):
            http_client._proxy_of("http://outer:1/v1")

    finally:
        http_client._proxy_for.cache_clear()
