"""Backends of every kind behind the gateway: their wire forms, in all dialects of clients, and what is recorded of them."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import httpx
import pytest
from starlette.responses import JSONResponse, Response

from providers.dialects.catalog import DIALECTS
from providers.dialects.folding import Folding
from providers.dialects.sse import EventSplitter
from providers.models import addresses as model_addresses
from providers.models.admission import Admission
from providers.models.base import ModelError
from schemas.conversation import DialectName, Part, Reply, Text, TokenUsage, ToolUse
from schemas.events import ModelCallCompleted, ModelCallFailed, ModelCallRequested
from tests.support.gateway_place import GatewayPlace
from tests.support.served_doubles import KEY, MODEL, PROMPT_IDS, Litellm, Switchyard
from tests.support.served_kinds import BY_NAME, DIGEST, KINDS, Kind
from tests.support.served_place import served_place
from tests.support.upstream import served

TOOL = {"type": "object", "properties": {"command": {"type": "string"}}, "required": ["command"]}
CALL = ToolUse(id="call0Ab", name="shell", arguments='{"command":"ls"}')
BODIES: dict[DialectName, dict[str, Any]] = {
    "chat": {
        "model": "any",
        "messages": [{"role": "developer", "content": "Be brief."}, {"role": "user", "content": "List it."}],
        "tools": [{"type": "function", "function": {"name": "shell", "parameters": TOOL}}],
    },
    "responses": {
        "model": "any",
        "input": [{"role": "developer", "content": "Be brief."}, {"role": "user", "content": "List it."}],
        "tools": [{"type": "function", "name": "shell", "parameters": TOOL, "strict": False}],
    },
    "messages": {
        "model": "any",
        "max_tokens": 90,
        "system": "Be brief.",
        "messages": [{"role": "user", "content": "List it."}],
        "tools": [{"name": "shell", "input_schema": TOOL}],
    },
}
WAYS = [(client, is_streamed) for client in DIALECTS for is_streamed in (False, True)]


def reply(dialect: DialectName, *parts: Part) -> Reply:
    usage = TokenUsage(input_tokens=12, output_tokens=5)
    stop = "tool_calls" if any(isinstance(p, ToolUse) for p in parts) else "stop"
    return Reply(dialect=dialect, id="r1", model=MODEL, parts=parts, stop_reason=stop, usage=usage)


async def post(place: GatewayPlace, client: DialectName = "chat", **more: Any) -> httpx.Response:
    headers = {"authorization": f"Bearer {place.token}"}
    async with httpx.AsyncClient(timeout=20, verify=False) as http:
        body = {name: value for name, value in {**BODIES[client], **more}.items() if value is not None}
        return await http.post(f"{place.url}{DIALECTS[client].path}", json=body, headers=headers)


def read(client: DialectName, answer: httpx.Response, *, is_streamed: bool) -> Reply:
    """Return what the client was told."""
    dialect = DIALECTS[client]
    if not is_streamed:
        return dialect.read_reply(answer.json())
    reader, folding = dialect.stream_reader(), Folding(client)
    for event in EventSplitter().feed(answer.content):
        for delta in reader.feed(event.name, event.data):
            folding.add(delta)
    for delta in reader.end():
        folding.add(delta)
    return folding.reply()


@pytest.mark.parametrize("kind", KINDS, ids=[k.name for k in KINDS])
async def test_every_client_gets_an_answer_from_every_kind_of_server(kind: Kind) -> None:
    """Streamed and whole: the double refuses whatever is not its own wire form, and the log says where each call went."""
    double = kind.double(kind.dialect)
    async with served(double.app) as url, served_place(double, kind.config_at(url)) as place:
        for client, is_streamed in WAYS:
            double.answers = [reply(kind.dialect, Text(text="Here."), CALL)]
            answer = await post(
                place, client, stream=is_streamed, **({"store": False} if client == "responses" else {})
            )
            assert answer.status_code == 200, answer.text
            told = read(client, answer, is_streamed=is_streamed)
            assert [p.text for p in told.parts if isinstance(p, Text)] == ["Here."]
            assert [json.loads(p.arguments) for p in told.parts if isinstance(p, ToolUse)] == [{"command": "ls"}]
            assert double.paths[-1] == kind.path
            assert double.bodies[-1]["model"] == MODEL
        for event in place.events(ModelCallRequested):
            assert isinstance(event.data, ModelCallRequested)
            assert event.data.backend == f"{url}{kind.path}"
            is_routed = kind.name.startswith("switchyard")
            assert (event.data.route, event.data.routing_digest) == ((MODEL, DIGEST) if is_routed else (None, None))
        assert len(place.events(ModelCallCompleted)) == len(WAYS)
        assert place.token not in str(double.headers)


def completed(place: GatewayPlace) -> list[ModelCallCompleted]:
    return [e.data for e in place.events(ModelCallCompleted) if isinstance(e.data, ModelCallCompleted)]


@pytest.mark.parametrize("kind", [k for k in KINDS if k.name.startswith("switchyard")], ids=lambda k: k.name)
async def test_switchyard_is_told_the_same_session_at_every_call(kind: Kind) -> None:
    """It is the session's attempt: fit for a header, the same in whatever dialect is asked."""
    double = kind.double(kind.dialect)
    assert isinstance(double, Switchyard)
    async with served(double.app) as url, served_place(double, kind.config_at(url)) as place:
        double.answers = [reply(kind.dialect, Text(text="Here."))]
        for client in DIALECTS:
            assert (await post(place, client)).status_code == 200
        assert set(double.sessions) == {f"{place.grant.conversation.prefix}.1"}


@pytest.mark.parametrize("is_streamed", [False, True])
@pytest.mark.parametrize("client", list(DIALECTS))
async def test_vllm_is_asked_for_token_ids_and_they_are_recorded(client: DialectName, is_streamed: bool) -> None:
    kind = BY_NAME["vllm"]
    double = kind.double("chat")
    config = kind.config_at("http://x", chat_template_kwargs={"enable_thinking": False})
    async with (
        served(double.app) as url,
        served_place(double, config.model_copy(update={"policy_base_url": url})) as place,
    ):
        double.answers = [reply("chat", Text(text="ab"))]
        assert (await post(place, client, stream=is_streamed)).status_code == 200
        sent = double.bodies[0]
        assert (sent["return_token_ids"], sent["logprobs"]) == (True, True)
        assert sent["chat_template_kwargs"] == {"enable_thinking": False}
        assert [message["role"] for message in sent["messages"]] == ["system", "user"]
        [done] = completed(place)
        assert done.tokens is not None
        assert done.tokens.prompt == tuple(PROMPT_IDS)
        assert done.tokens.generated == (ord("a"), ord("b"))
        assert done.tokens.logprobs == (-0.5, -0.5)
        assert done.tokens.logprob_kind == "raw"


async def test_what_a_client_says_of_log_probabilities_stays() -> None:
    """Its template arguments are kept beside the configured ones, which win; a choice among no tools is not passed on."""
    kind = BY_NAME["vllm"]
    double = kind.double("chat")
    async with served(double.app) as url:
        config = kind.config_at(url, chat_template_kwargs={"a": 1}, logprob_kind="processed")
        async with served_place(double, config) as place:
            double.answers = [reply("chat", Text(text="ab"))]
            more = {"top_logprobs": 3, "chat_template_kwargs": {"a": 0, "b": 2}, "tool_choice": "auto", "tools": None}
            assert (await post(place, **more)).status_code == 200
            assert (await post(place, logprobs=False)).status_code == 200
            first, second = double.bodies
            assert (first["logprobs"], first["top_logprobs"], second["logprobs"]) == (True, 3, False)
            assert first["chat_template_kwargs"] == {"a": 1, "b": 2}
            assert "tool_choice" not in first
            assert completed(place)[0].tokens is not None
            assert completed(place)[1].untrainable == "no_logprobs"


async def test_vllm_is_not_asked_for_what_nobody_wants() -> None:
    kind = BY_NAME["vllm"]
    double = kind.double("chat")
    async with served(double.app) as url:
        off = kind.config_at(url, return_token_id_information=False, replace_developer_role_with_system=False)
        async with served_place(double, off) as place:
            double.answers = [reply("chat", Text(text="ab"))]
            refused = await post(place)
            assert (refused.status_code, "Unexpected message role" in refused.text) == (400, True)
            assert (await post(place, "messages")).status_code == 200
            assert {"return_token_ids", "logprobs"}.isdisjoint(double.bodies[-1])
            assert completed(place)[0].tokens is None


@pytest.mark.parametrize(
    ("said", "is_streamed", "cost"),
    [("0.00042", False, 0.00042), ("5e-06", False, 5e-06), ("0.0", False, 0.0), ("0.00042", True, None),
     ("None", False, None), ("nan", False, None), ("-1", False, None), ("", False, None)],
)  # fmt: skip
async def test_what_litellm_says_of_costs_is_recorded(said: str, is_streamed: bool, cost: float | None) -> None:
    """The 0 in the head of a streamed answer is nobody's knowledge."""
    kind = BY_NAME["litellm-chat"]
    double = kind.double("chat")
    assert isinstance(double, Litellm)
    double.cost = said
    async with served(double.app) as url, served_place(double, kind.config_at(url)) as place:
        double.answers = [reply("chat", Text(text="ab"))]
        assert (await post(place, stream=is_streamed)).status_code == 200
        assert completed(place)[0].cost_usd == cost


@pytest.mark.parametrize(
    ("name", "overrides", "sent"),
    [
        ("vllm", {"temperature": 0, "max_output_tokens": 7, "min_p": 0.1, "stop": "END", "top_p": None},
         {"temperature": 0, "max_tokens": 7, "min_p": 0.1, "stop": ["END"]}),
        ("azure-chat", {"max_output_tokens": 7}, {"max_completion_tokens": 7, "temperature": 0.9, "top_p": 0.8}),
        ("azure-responses", {"max_output_tokens": 7, "temperature": 1}, {"max_output_tokens": 7, "temperature": 1, "top_p": 0.8}),
        ("anthropic", {"max_output_tokens": 7, "top_k": 3, "stop": ["A", "B"]},
         {"max_tokens": 7, "top_k": 3, "stop_sequences": ["A", "B"], "temperature": 0.9, "top_p": 0.8}),
    ],
)  # fmt: skip
async def test_overrides_win_in_the_backends_own_words(
    name: str, overrides: dict[str, Any], sent: dict[str, Any]
) -> None:
    """Over the client, and over `extra_body`; the event says that they did."""
    kind = BY_NAME[name]
    double = kind.double(kind.dialect)
    async with served(double.app) as url:
        config = kind.config_at(url, sampling_overrides=overrides, extra_body={"temperature": 0.9})
        async with served_place(double, config) as place:
            double.answers = [reply(kind.dialect, Text(text="ab"))]
            answer = await post(place, max_tokens=90, temperature=0.1, top_p=0.8)
            assert answer.status_code == 200, answer.text
            names = {
                "temperature", "top_p", "top_k", "min_p", "stop", "stop_sequences",
                "max_tokens", "max_completion_tokens", "max_output_tokens",
            }  # fmt: skip
            assert {name: value for name, value in double.bodies[0].items() if name in names} == sent
            [asked] = place.events(ModelCallRequested)
            assert isinstance(asked.data, ModelCallRequested)
            assert asked.data.overrides == overrides
            assert asked.data.parameters["temperature"] == 0.1


async def test_a_session_falls_over_to_the_next_address_and_each_try_says_where_it_went() -> None:
    """Nobody at the first: the second answers at once, and the session stays there while the first is gone."""
    kind = BY_NAME["vllm"]
    double = kind.double("chat")
    double.answers = [reply("chat", Text(text="ab"))]
    async with served(double.app) as url:
        dead = [f"http://127.0.0.1:{port}" for port in (9, 11, 13, 17)]
        async with served_place(double, kind.config_at(url, *dead, max_tries=3)) as place:
            said = [(await post(place)).status_code for _ in range(4)]
            tries = [e.data for e in place.events(ModelCallRequested) if isinstance(e.data, ModelCallRequested)]
            failures = [e.data for e in place.events(ModelCallFailed) if isinstance(e.data, ModelCallFailed)]
            assert said[-1] == 200
            where = [(t.backend or "").partition("/v1/")[0] for t in tries]
            assert where[-1] == url
            assert where.count(url) == said.count(200)
            at_dead_ones = [place for place in where if place != url]
            assert len(at_dead_ones) == len(set(at_dead_ones)), "a dead address was tried twice"
            assert all(f.failure.kind == "transport_unreachable" for f in failures)
            assert all(f.retry_in_s in (0.0, None) for f in failures)


async def test_addresses_in_a_file_are_followed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file that is not there yet is waited for within the tries; a new address is taken without a restart."""
    monkeypatch.setattr(model_addresses, "LOOK_EVERY_S", 0.05)
    monkeypatch.setattr("providers.models.http_backend.LOOK_EVERY_S", 0.1)
    kind, file = BY_NAME["vllm"], tmp_path / "endpoints"
    first, second = kind.double("chat"), kind.double("chat")
    first.answers = second.answers = [reply("chat", Text(text="ab"))]
    config = kind.config_at("", policy_base_url=(), endpoint_file=str(file), endpoint_stale_grace_s=0.2, max_tries=3)
    async with served(first.app) as one, served(second.app) as two, served_place(first, config) as place:
        asking = asyncio.create_task(post(place))
        await asyncio.sleep(0.05)
        file.write_text(one)
        assert (await asking).status_code == 200
        [waited, *_] = place.events(ModelCallFailed)
        assert isinstance(waited.data, ModelCallFailed)
        assert waited.data.failure.kind == "provider_unavailable"
        assert str(file) in waited.data.failure.message
        file.write_text(json.dumps([two]))
        await asyncio.sleep(0.06)
        assert (await post(place)).status_code == 200
        assert (len(first.bodies), len(second.bodies)) == (1, 1)
        file.write_text("")
        await asyncio.sleep(0.06)
        assert (await post(place)).status_code == 200, "within the grace"
        await asyncio.sleep(0.3)
        refused = await post(place)
        assert (refused.status_code, str(file) in refused.text) == (503, True)


async def test_calls_wait_their_turn_and_how_long_is_recorded() -> None:
    """Never more at once than may be; first come, first served."""
    kind = BY_NAME["vllm"]
    double = kind.double("chat")
    double.answers = [reply("chat", Text(text="a" * 3))]
    double.pace_s = 0.02
    peak = 0
    async with served(double.app) as url, served_place(double, kind.config_at(url, max_concurrent_requests=2)) as place:

        async def watch() -> None:
            nonlocal peak
            while True:
                peak = max(peak, double.open_streams)
                await asyncio.sleep(0.002)

        watching = asyncio.create_task(watch())
        answers = await asyncio.gather(*(post(place, stream=True, seed=n) for n in range(8)))
        watching.cancel()
        assert [a.status_code for a in answers] == [200] * 8
        assert peak == 2
        queued = sorted(done.queue_s or 0.0 for done in completed(place))
        assert queued[0] < 0.05 < queued[-1]
        assert all(done.queue_s is not None for done in completed(place))


async def test_a_place_that_never_comes_free_is_a_failure_and_no_hang() -> None:
    """It may be tried again; who waits is served in order; a place that somebody gave up is nobody's."""
    admission, order = Admission(1), []

    async def take(n: int) -> None:
        async with admission.turn(5) as waited_s:
            assert waited_s is not None
            order.append(n)

    async with admission.turn(5):
        with pytest.raises(ModelError, match="max_concurrent_requests") as caught:
            async with admission.turn(0.02):
                pass
        assert (caught.value.failure.kind, caught.value.failure.terminal) == ("provider_unavailable", False)
        waiting = [asyncio.create_task(take(n)) for n in range(5)]
        await asyncio.sleep(0)
        waiting[1].cancel()
    await asyncio.gather(*waiting, return_exceptions=True)
    assert order == [0, 2, 3, 4]
    async with admission.turn(1) as waited_s:
        assert waited_s == pytest.approx(0, abs=0.05)
    async with Admission(None).turn(1) as waited_s:
        assert waited_s is None


@pytest.mark.parametrize("client", list(DIALECTS))
async def test_a_key_that_is_refused_and_a_model_that_is_not_there(client: DialectName) -> None:
    """Told in the client's dialect; no key in what is told or recorded."""
    for kind in (BY_NAME["azure-chat-dated"], BY_NAME["litellm-messages"], BY_NAME["switchyard-responses"]):
        double = kind.double(kind.dialect)
        async with served(double.app) as url, served_place(double, kind.config_at(url)) as place:
            double.models = ["another"]
            gone = await post(place, client)
            double.key = "another"
            refused = await post(place, client)
            assert (gone.status_code, refused.status_code) == (400, 401)
            assert KEY not in gone.text + refused.text
            assert KEY not in str([s.body for s in place.server.events])


@pytest.mark.parametrize("client", list(DIALECTS))
async def test_a_conversation_that_is_too_long_is_never_an_empty_answer(client: DialectName) -> None:
    kind = BY_NAME["vllm"]
    double = kind.double("chat")
    async with served(double.app) as url, served_place(double, kind.config_at(url)) as place:
        text = "This model's maximum context length is 4096 tokens. However, you requested 5000 tokens."
        double.answers = [JSONResponse({"error": {"message": text, "type": "BadRequestError", "code": 400}}, 400)]
        answer = await post(place, client, stream=True)
        assert (answer.status_code, "maximum context length" in answer.text) == (400, True)
        [failed] = place.events(ModelCallFailed)
        assert isinstance(failed.data, ModelCallFailed)
        assert failed.data.failure.kind == "context_overflow"
        assert failed.data.failure.terminal
        assert failed.data.retry_in_s is None


@pytest.mark.parametrize("client", list(DIALECTS))
async def test_that_it_was_too_long_may_be_said_in_a_stream(client: DialectName) -> None:
    """A 200 that fails afterwards: told as what it is, recorded as what it is, and not tried again."""
    kind = BY_NAME["openai-responses"]
    double = kind.double("responses")
    error = {"code": "context_length_exceeded", "message": "Your input exceeds the context window of this model."}
    failed = {"id": "r", "object": "response", "model": MODEL, "output": [], "status": "failed", "error": error}
    events = [{"type": "response.created", "response": {**failed, "status": "in_progress", "error": None}}]
    events.append({"type": "response.failed", "response": failed})
    content = "".join(f"event: {e['type']}\ndata: {json.dumps(e)}\n\n" for e in events)
    async with served(double.app) as url, served_place(double, kind.config_at(url)) as place:
        double.answers = [Response(content, media_type="text/event-stream")]
        answer = await post(place, client, stream=True)
        assert "exceeds the context window" in answer.text
        [tried] = place.events(ModelCallFailed)
        assert isinstance(tried.data, ModelCallFailed)
        assert tried.data.failure.kind == "context_overflow"
