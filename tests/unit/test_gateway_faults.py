"""What goes wrong behind and in front of the gateway: bounded, recorded, and told to the client in its own dialect."""

from __future__ import annotations

import asyncio
import json
import time
from typing import Any

import httpx
import pytest
from starlette.responses import JSONResponse, Response, StreamingResponse

from actors.gateway import app as gateway_app
from actors.gateway import conversations
from actors.gateway.conversation import Conversation
from gym_bus.blobs import MemoryBlobs
from projections import violations
from providers.dialects.catalog import DIALECTS
from providers.dialects.unfolding import unfold
from schemas.config import Budget, Budgets
from schemas.conversation import DialectName, Reply, Text
from schemas.events import (
    BudgetExhausted,
    ModelCallCompleted,
    ModelCallFailed,
    ModelCallLate,
    ModelCallLost,
    ModelCallRequested,
)
from tests.support.gateway_calls import BACKENDS, BODIES, NAMES, message_of, post, words
from tests.support.gateway_place import gateway_place
from tests.support.logs import project
from tests.support.upstream import events_of

# -- what clients send ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("client", NAMES)
async def test_what_cannot_be_said_is_a_400_that_names_the_field(client: DialectName) -> None:
    """No event, no call."""
    async with gateway_place("messages" if client != "messages" else "chat") as place:
        broken = {"messages": [{"role": "user", "content": 5}], "input": 5, "contents": 5}
        answer = await post(place, client, **broken)
        assert answer.status_code == 400
        assert {"responses": "input", "gemini": "contents"}.get(client, "messages") in message_of(client, answer)
        assert place.events(ModelCallRequested) == []


async def test_bodies_and_headers_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gateway_app, "BODY_MAX_BYTES", 1000)
    async with gateway_place() as place:
        place.upstream.answers = [words()]
        assert (await post(place, user="x" * 2000)).status_code == 413
        async with httpx.AsyncClient() as http:
            headers = {"authorization": f"Bearer {place.token}", "x-much": "y" * 40_000}
            answer = await http.post(f"{place.url}/v1/messages", json=BODIES["messages"], headers=headers)
            assert answer.status_code == 431
            for content in (b"{", b"[]", b"\xff"):
                headers = {"authorization": f"Bearer {place.token}"}
                answer = await http.post(f"{place.url}/v1/chat/completions", content=content, headers=headers)
                assert answer.status_code == 400


@pytest.mark.parametrize("backend", BACKENDS)
async def test_text_cut_in_the_middle_of_a_character(backend: DialectName) -> None:
    """Half a surrogate pair, which JavaScript clients leave, is no reason to fail; whole pairs stay what they are."""
    async with gateway_place(backend) as place:
        place.upstream.answers = [words(dialect=backend)]
        content = b'{"model": "m", "messages": [{"role": "user", "content": "\\ud83d\\ude00 \\ud83d"}]}'
        async with httpx.AsyncClient() as http:
            headers = {"authorization": f"Bearer {place.token}"}
            answer = await http.post(f"{place.url}/v1/chat/completions", content=content, headers=headers)
        assert answer.status_code == 200
        assert "\U0001f600 \ufffd" in json.dumps(place.upstream.bodies[0], ensure_ascii=False)


async def test_a_session_may_have_only_so_many_calls_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conversations, "SESSION_IN_FLIGHT_MAX", 2)
    async with gateway_place() as place:
        place.upstream.pace_s = 0.3
        place.upstream.answers = [words()]
        answers = await asyncio.gather(*(post(place, stream=True, seed=n) for n in range(4)))
        assert sorted(a.status_code for a in answers) == [200, 200, 429, 429]
        assert all(a.headers.get("retry-after") for a in answers if a.status_code == 429)


# -- what backends do ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("client", NAMES)
@pytest.mark.parametrize(
    ("status", "kind", "told"),
    [
        (500, "provider_unavailable", 503),
        (429, "provider_rate_limited", 429),
        (401, "provider_auth", 401),
        (400, "provider_bad_request", 400),
    ],
)
async def test_a_backends_error_is_recorded_with_its_body_and_told(
    client: DialectName, status: int, kind: str, told: int
) -> None:
    async with gateway_place() as place:
        place.upstream.answers = [JSONResponse({"error": {"message": "no luck today"}}, status)]
        answer = await post(place, client)
        assert answer.status_code == told
        assert "no luck today" in message_of(client, answer)
        [failed] = place.events(ModelCallFailed)
        assert isinstance(failed.data, ModelCallFailed)
        assert (failed.data.failure.kind, failed.data.status) == (kind, status)
        assert "no luck today" in (failed.data.body or "")


async def test_a_burst_of_errors_is_tried_again_as_the_same_call() -> None:
    """Two failures and an answer: three tries of one turn, each with its outcome; the client sees the answer."""
    async with gateway_place(max_tries=3) as place:
        busy = JSONResponse({"error": "busy"}, 503, headers={"retry-after": "0"})
        place.upstream.answers = [busy, JSONResponse({"error": "busy"}, 500, headers={"retry-after": "0"}), words()]
        assert (await post(place)).status_code == 200
        asked = [e.data for e in place.events(ModelCallRequested)]
        assert [(a.turn, a.tries) for a in asked if isinstance(a, ModelCallRequested)] == [(1, 1), (1, 2), (1, 3)]
        assert len(place.events(ModelCallFailed)) == 2
        assert len(place.events(ModelCallCompleted)) == 1


async def test_429_for_ever_is_bounded() -> None:
    async with gateway_place(max_tries=3) as place:
        place.upstream.answers = [JSONResponse({"error": "slow down"}, 429, headers={"retry-after": "0"})]
        assert (await post(place)).status_code == 429
        assert len(place.upstream.bodies) == 3


@pytest.mark.alone
async def test_a_backend_that_is_silent_or_gone() -> None:
    async with gateway_place(timeout_s=0.4) as place:

        async def never(_: Any = None) -> Any:
            await asyncio.sleep(30)
            yield b""

        place.upstream.answers = [lambda _: StreamingResponse(never())]
        began = time.monotonic()
        answer = await post(place)
        assert answer.status_code == 504
        assert time.monotonic() - began < 5
        [failed] = place.events(ModelCallFailed)
        assert isinstance(failed.data, ModelCallFailed)
        assert failed.data.failure.kind == "transport_timeout"


@pytest.mark.parametrize("client", NAMES)
@pytest.mark.parametrize("backend", BACKENDS)
async def test_a_stream_cut_in_the_middle_is_an_error_in_mid_stream(client: DialectName, backend: DialectName) -> None:
    """Never an end that looks whole: the client is told, and the log has what came."""
    async with gateway_place(backend) as place:
        whole = await _stream_of(words("one two three", backend), backend)
        cut = whole[: whole.index(b"one two three") + 20].rsplit(b"\n\n", 1)[0] + b"\n\n"
        place.upstream.answers = [Response(cut, media_type="text/event-stream")]
        answer = await post(place, client, stream=True)
        assert answer.status_code in {200, 502}
        assert "[DONE]" not in answer.text or "error" in answer.text
        assert "error" in answer.text or "failed" in answer.text
        for ending in ("message_stop", "response.completed", '"finish_reason":"stop"', '"finishReason":"STOP"'):
            assert ending not in answer.text
        [failed] = place.events(ModelCallFailed)
        assert isinstance(failed.data, ModelCallFailed)
        assert failed.data.failure.kind == "provider_bad_answer"
        assert place.events(ModelCallCompleted) == []


async def _stream_of(reply: Reply, name: DialectName) -> bytes:
    dialect = DIALECTS[name]
    writer = dialect.stream_writer(dialect.read_request({**BODIES[name], "stream": True}))
    return b"".join(writer.write(delta) for delta in unfold(reply))


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"data: [DONE]\n\n",
        b"<html>busy</html>",
        b"data: {not json}\n\n",
        b'data: {"choices": 7}\n\n',
        b"data: \xff\n\n",
    ],
)
async def test_garbage_instead_of_a_stream_is_never_an_empty_200(content: bytes) -> None:
    async with gateway_place() as place:
        place.upstream.answers = [Response(content, media_type="text/event-stream")]
        answer = await post(place, "messages", stream=True)
        assert answer.status_code == 502
        assert message_of("messages", answer)
        assert len(place.events(ModelCallFailed)) == 1


@pytest.mark.parametrize("content", [b"", b"<html>", b"[]", b'{"choices": []}', b'{"id": 1'])
async def test_garbage_instead_of_an_answer(content: bytes) -> None:
    async with gateway_place() as place:
        place.upstream.answers = [Response(content, media_type="application/json")]
        assert (await post(place)).status_code == 502
        assert len(place.events(ModelCallFailed)) == 1


async def test_a_line_of_a_mebibyte_passes() -> None:
    async with gateway_place() as place:
        place.upstream.answers = [words("ü" * 600_000)]
        answer = await post(place, stream=True)
        said = "".join(c["choices"][0]["delta"].get("content") or "" for c in events_of(answer.text) if c["choices"])
        assert said == "ü" * 600_000


# -- streaming, leaving, taking over ------------------------------------------------------------------------------------------------


async def test_the_first_word_leaves_when_it_arrives_and_the_last_when_it_is_recorded() -> None:
    async with gateway_place() as place:
        place.upstream.pace_s = 0.15
        place.upstream.answers = [words()]
        headers = {"authorization": f"Bearer {place.token}"}
        body = {**BODIES["messages"], "stream": True}
        async with (
            httpx.AsyncClient(timeout=20) as http,
            http.stream("POST", f"{place.url}/v1/messages", json=body, headers=headers) as answer,
        ):
            async for line in answer.aiter_lines():
                if "text_delta" in line:
                    assert place.upstream.open_streams == 1, "the word came only when all was there"
                    assert place.events(ModelCallCompleted) == []
                if "message_stop" in line and line.startswith("data"):
                    assert len(place.events(ModelCallCompleted)) == 1, "the end was told before it was recorded"


async def test_a_client_that_leaves_stops_the_backend_and_what_came_is_kept() -> None:
    async with gateway_place() as place:
        place.upstream.pace_s = 0.1
        many = tuple(Text(text=f"part {n} ") for n in range(50))
        place.upstream.answers = [words().model_copy(update={"parts": many})]
        headers = {"authorization": f"Bearer {place.token}"}
        body = {**BODIES["chat"], "stream": True}
        async with (
            httpx.AsyncClient(timeout=20) as http,
            http.stream("POST", f"{place.url}/v1/chat/completions", json=body, headers=headers) as answer,
        ):
            async for line in answer.aiter_lines():
                if "part 1" in line:
                    break
        async with asyncio.timeout(5):
            while not place.events(ModelCallFailed) or place.upstream.open_streams:
                await asyncio.sleep(0.02)
        [failed] = place.events(ModelCallFailed)
        assert isinstance(failed.data, ModelCallFailed)
        assert failed.data.failure.kind == "cancelled"
        assert failed.data.parts is not None
        assert "part 1" in json.dumps([p.model_dump(mode="json") for p in failed.data.parts])


async def test_a_client_that_leaves_before_anything_came() -> None:
    async with gateway_place() as place:

        async def never() -> Any:
            await asyncio.sleep(30)
            yield b""

        place.upstream.answers = [lambda _: StreamingResponse(never())]
        headers = {"authorization": f"Bearer {place.token}"}
        async with httpx.AsyncClient(timeout=0.3) as http:
            with pytest.raises(httpx.ReadTimeout):
                await http.post(f"{place.url}/v1/chat/completions", json=BODIES["chat"], headers=headers)
        async with asyncio.timeout(5):
            while not place.events(ModelCallFailed):
                await asyncio.sleep(0.02)


async def test_a_client_that_leaves_while_its_answer_is_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    """The answer is recorded all the same, once, and the session can go on: half an append would have broken its log."""
    complete = Conversation.complete

    async def slowly(self: Conversation, *arguments: Any, **more: Any) -> None:
        await asyncio.sleep(0.6)
        await complete(self, *arguments, **more)

    monkeypatch.setattr(Conversation, "complete", slowly)
    async with gateway_place() as place:
        place.upstream.answers = [words()]
        async with httpx.AsyncClient(timeout=0.3) as http:
            headers = {"authorization": f"Bearer {place.token}"}
            with pytest.raises(httpx.ReadTimeout):
                await http.post(f"{place.url}/v1/chat/completions", json=BODIES["chat"], headers=headers)
        async with asyncio.timeout(5):
            while not place.events(ModelCallCompleted):
                await asyncio.sleep(0.02)
        assert place.events(ModelCallFailed) == []
        assert (await post(place, user="again")).status_code == 200


async def test_a_session_is_pinned_to_the_gateway_that_was_asked_first() -> None:
    """While it lives, another one refuses it, names the first, and says how long to wait; nothing is asked, nothing recorded."""
    async with gateway_place(is_doubled=True) as place:
        place.upstream.answers = [words()]
        assert (await post(place)).status_code == 200
        held = len(place.server.events)
        for streamed in (False, True):
            refused = await post(place, url=place.second_url, stream=streamed)
            assert refused.status_code == 503
            assert "the gateway g0 has this session and is alive" in refused.json()["error"]["message"]
            assert 1 < int(refused.headers["retry-after"]) <= 60
        assert len(place.server.events) == held
        assert len(place.upstream.bodies) == 1
        assert (await post(place, seed=2)).status_code == 200, "the first one was not disturbed"
        place.first_is_silent()
        assert (await post(place, url=place.second_url, seed=3)).status_code == 200
        assert (await post(place, seed=4)).status_code == 503, "it was fenced"
        pinned = await post(place, seed=4)
        assert "the gateway g1 has this session" in pinned.json()["error"]["message"]


async def test_both_gateways_asked_at_once_cost_one_call_each_time() -> None:
    """A client that spreads its calls over two gateways is told so, and loses none of the answers that were paid for."""
    async with gateway_place(is_doubled=True) as place:
        place.upstream.answers = [words()]
        urls = [place.url, place.second_url] * 20
        answers = await asyncio.gather(*(post(place, url=url, seed=n) for n, url in enumerate(urls)))
        assert {a.status_code for a in answers} == {200, 503}
        good = sum(a.status_code == 200 for a in answers)
        assert len(place.events(ModelCallCompleted)) == good == len(place.upstream.bodies)
        assert not place.events(ModelCallLost, ModelCallLate)


async def test_of_two_gateways_the_later_one_has_the_session() -> None:
    """A silent one is fenced: it answers 503; what it had open is lost, once, and what it had shown by then is kept as late."""
    async with gateway_place(is_doubled=True) as place:
        place.upstream.pace_s = 0.2
        place.upstream.answers = [words()]
        first = asyncio.create_task(post(place, seed=1, stream=True))
        async with asyncio.timeout(5):
            while not place.upstream.open_streams:
                await asyncio.sleep(0.01)
        place.first_is_silent()
        second = await post(place, seed=2, url=place.second_url)
        assert second.status_code == 200
        fenced = await first
        assert fenced.status_code == 503 or "error" in fenced.text
        assert len(place.events(ModelCallLost)) == 1
        assert len(place.events(ModelCallCompleted)) == 1
        (late,) = place.events(ModelCallLate)
        assert isinstance(late.data, ModelCallLate)
        assert late.data.request_id == place.events(ModelCallRequested)[0].event_id
        assert late.data.was_shown
        assert late.data.parts == words().parts
        assert late.key.startswith(f"{place.grant.conversation.key}-late-")
        place.presences[0].gone("g1.x")
        again = await post(place, seed=3)
        assert again.status_code == 200, "the first gateway takes the session back when the second is gone"


@pytest.mark.parametrize("path", ["/v1/embeddings", "/", "/a/{token}/v1/completions", "/v2/messages"])
async def test_a_path_that_is_not_served_says_which_are(path: str) -> None:
    """A client that was given a wrong base URL can tell; a token in the path is not repeated to anybody."""
    async with gateway_place() as place, httpx.AsyncClient() as http:
        answer = await http.post(place.url + path.format(token=place.token), json={})
        assert answer.status_code == 404
        assert "/v1/responses" in answer.json()["error"]["message"]
        assert place.token not in answer.text


async def test_the_log_of_a_busy_session_holds() -> None:
    """Asked again after an answer, taken over in mid-call, over budget: what `gym-bus doctor` looks at finds nothing."""
    async with gateway_place(is_doubled=True, budget=Budgets(rollout=Budget(model_calls=4))) as place:
        place.upstream.answers = [words()]
        for _ in range(2):
            assert (await post(place)).status_code == 200
        place.upstream.pace_s = 0.2
        first = asyncio.create_task(post(place, seed=1, stream=True))
        async with asyncio.timeout(5):
            while not place.upstream.open_streams:
                await asyncio.sleep(0.01)
        place.first_is_silent()
        assert (await post(place, seed=2, url=place.second_url)).status_code == 200
        await first
        assert (await post(place, url=place.second_url)).status_code == 200
        assert (await post(place, url=place.second_url)).status_code == 400
        assert place.events(ModelCallLate)
        assert place.events(BudgetExhausted)
        assert violations(project(list(place.server.events), MemoryBlobs())) == {}


@pytest.mark.parametrize("asks", [False, True])
async def test_what_a_stream_cost_is_in_the_log_whether_its_client_asks_or_not(asks: bool) -> None:
    """The backend is always asked; a client that is not told otherwise gets no chunk without a choice, which some cannot read."""
    async with gateway_place() as place:
        place.upstream.answers = [words()]
        more = {"stream_options": {"include_usage": True, "of_its_own": 1}} if asks else {}
        answer = await post(place, stream=True, **more)
        chunks = events_of(answer.text)
        assert [c for c in chunks if c["choices"] == []] == [c for c in chunks if c.get("usage")]
        assert bool([c for c in chunks if c.get("usage")]) == asks
        assert place.upstream.bodies[0]["stream_options"] == {"include_usage": True, **more.get("stream_options", {})}
        [done] = place.events(ModelCallCompleted)
        assert isinstance(done.data, ModelCallCompleted)
        assert (done.data.usage.input_tokens, done.data.usage.output_tokens) == (3, 2)


async def test_a_slow_log_is_no_slow_backend(monkeypatch: pytest.MonkeyPatch) -> None:
    """The deadline of a call is over when the answer is there: recording takes what it takes, and is never cut in the middle."""
    complete = Conversation.complete

    async def slowly(self: Conversation, *arguments: Any, **more: Any) -> None:
        await asyncio.sleep(1.5)
        await complete(self, *arguments, **more)

    monkeypatch.setattr(Conversation, "complete", slowly)
    async with gateway_place(timeout_s=1) as place:
        place.upstream.answers = [words()]
        for streamed in (False, True):
            assert (await post(place, stream=streamed)).status_code == 200
        assert len(place.events(ModelCallCompleted)) == 2
        assert not place.events(ModelCallFailed)
