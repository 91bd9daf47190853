"""A native agent's calls to servers of every kind: their wire forms, costs, queues, addresses; what goes wrong with each."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from starlette.responses import JSONResponse

from providers.models import addresses as model_addresses
from providers.models import make_model
from providers.models.base import Model, ModelCall, ModelError
from schemas.config import HttpModel
from schemas.conversation import DialectName, Reply, Text, TokenUsage, ToolUse
from schemas.values import Message, Sampling, ToolCall, ToolSpec
from tests.support.served_doubles import KEY, MODEL, PROMPT_IDS, Double, Switchyard
from tests.support.served_kinds import BY_NAME, KINDS, Kind
from tests.support.upstream import served

IDS = [kind.name for kind in KINDS]
TOOL = ToolSpec(name="shell", description="Runs it.", parameters={"type": "object"})


def call(session: str = "", **sampling: Any) -> ModelCall:
    asked = (Message(role="system", content="Be brief."), Message(role="user", content="Look."))
    return ModelCall("c1", "t", 0, 1, 1, asked, (TOOL,), Sampling.model_validate(sampling), session=session)


def reply(dialect: DialectName) -> Reply:
    use = ToolUse(id="b1", name="shell", arguments='{"command":"ls"}')
    return Reply(
        dialect=dialect, id="r1", model=MODEL, parts=(Text(text="I look."), use), stop_reason="tool_calls",
        usage=TokenUsage(input_tokens=9, output_tokens=4),
    )  # fmt: skip


@asynccontextmanager
async def model_of(config: HttpModel, key: str = KEY) -> AsyncIterator[Model]:
    model = make_model(config, key, 8)
    try:
        yield model
    finally:
        await model.aclose()


@asynccontextmanager
async def double_of(kind: Kind) -> AsyncIterator[tuple[Double, str]]:
    double = kind.double(kind.dialect)
    double.answers = [reply(kind.dialect)]
    async with served(double.app) as url:
        yield double, url


@pytest.mark.parametrize("kind", KINDS, ids=IDS)
async def test_every_kind_of_server_answers(kind: Kind) -> None:
    """The double refuses whatever is not its own wire form."""
    async with double_of(kind) as (double, url), model_of(kind.config_at(url)) as model:
        answer = await model.complete(call(temperature=0.5, max_output_tokens=50))
        assert answer.message.content == "I look."
        assert answer.message.tool_calls == (ToolCall(id="b1", name="shell", arguments='{"command":"ls"}'),)
        assert (answer.stop_reason, answer.usage.input_tokens) == ("tool_calls", 9)
        assert answer.cost_usd == (0.00042 if kind.name.startswith("litellm") else None)
        assert answer.queue_s is None
        assert double.paths == [kind.path]
        assert double.bodies[0]["temperature"] == 0.5


@pytest.mark.parametrize("kind", KINDS, ids=IDS)
async def test_a_refused_key_ends_it_and_is_not_repeated(kind: Kind) -> None:
    async with double_of(kind) as (_, url), model_of(kind.config_at(url), "sk-another") as model:
        with pytest.raises(ModelError) as caught:
            await model.complete(call())
        assert (caught.value.failure.kind, caught.value.failure.terminal) == ("provider_auth", True)
        assert "sk-another" not in caught.value.failure.message


@pytest.mark.parametrize("name", ["openai-chat", "vllm", "azure-responses", "litellm-messages"])
async def test_overrides_win_and_calls_wait_their_turn(name: str) -> None:
    """By OpenAI's SDK as well as by our own client; the session's own parameters lose."""
    kind = BY_NAME[name]
    async with double_of(kind) as (double, url):
        config = kind.config_at(
            url, sampling_overrides={"temperature": 0, "max_output_tokens": 7}, max_concurrent_requests=1
        )
        async with model_of(config) as model:
            answers = await asyncio.gather(
                *(model.complete(call(temperature=1.0, max_output_tokens=50)) for _ in "abc")
            )
        assert all(answer.queue_s is not None for answer in answers)
        assert max(answer.queue_s or 0 for answer in answers) > 0
        for body in double.bodies:
            limits = {name: body[name] for name in body if "tokens" in name and name.startswith("max")}
            assert (body["temperature"], list(limits.values())) == (0, [7])


@pytest.mark.parametrize("name", ["openai-chat", "vllm"])
async def test_a_session_keeps_to_its_address_and_leaves_a_dead_one(name: str) -> None:
    """Sessions are spread over both; when one server is gone its sessions' next tries go to the other, without a wait."""
    kind = BY_NAME[name]
    async with double_of(kind) as (first, one):
        async with double_of(kind) as (second, two):
            config = kind.config_at(one, two)
            async with model_of(config) as model:
                for n in range(20):
                    before = len(first.bodies), len(second.bodies)
                    for _ in range(2):
                        await model.complete(call(f"s{n}"))
                    assert (len(first.bodies) - before[0], len(second.bodies) - before[1]) in {(2, 0), (0, 2)}
                assert min(len(first.bodies), len(second.bodies)) >= 2
        async with model_of(config) as model:  # the second server is no more
            count, failures = len(first.bodies), []
            for n in range(20):
                try:
                    await model.complete(call(f"s{n}"))
                except ModelError as error:
                    failures.append(error)
                    await model.complete(call(f"s{n}"))
            assert len(first.bodies) == count + 20
            [failure] = failures  # one call found it dead, and the others were spared
            assert (failure.failure.kind, failure.failure.terminal) == ("transport_unreachable", False)
            assert failure.retry_after_s == 0.0


@pytest.mark.parametrize("name", ["openai-chat", "azure-chat-dated"])
async def test_addresses_in_a_file_are_followed(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model_addresses, "LOOK_EVERY_S", 0.0)
    kind, file = BY_NAME[name], tmp_path / "endpoints"
    async with double_of(kind) as (first, one), double_of(kind) as (second, two):
        config = kind.config_at("", policy_base_url=(), endpoint_file=str(file), endpoint_stale_grace_s=0)
        async with model_of(config) as model:
            with pytest.raises(ModelError, match="does not exist") as caught:
                await model.complete(call())
            assert (caught.value.failure.kind, caught.value.failure.terminal) == ("provider_unavailable", False)
            assert str(file) in caught.value.failure.message
            assert caught.value.retry_after_s
            file.write_text(f"{one}{kind.base}")
            await model.complete(call())
            file.write_text(json.dumps([f"{two}{kind.base}"]))
            await model.complete(call())
            assert (len(first.bodies), len(second.bodies)) == (1, 1)


async def test_vllm_gives_token_ids_and_switchyard_hears_whose_call_it_is() -> None:
    async with double_of(BY_NAME["vllm"]) as (_, url), model_of(BY_NAME["vllm"].config_at(url)) as model:
        answer = await model.complete(call())
        assert answer.tokens is not None
        assert (answer.tokens.prompt, len(answer.tokens.generated)) == (tuple(PROMPT_IDS), len("I look."))
    kind = BY_NAME["switchyard-messages"]
    async with double_of(kind) as (double, url), model_of(kind.config_at(url)) as model:
        assert isinstance(double, Switchyard)
        await model.complete(call("gym.evt.0.r1.3-0.model.s1.2"))
        await model.complete(call("å b"))
        await model.complete(call())
        assert double.sessions == ["gym.evt.0.r1.3-0.model.s1.2", "%C3%A5%20b", "t/0"]


LIMIT = "This model's maximum context length is"
ANTHROPIC = (
    "input length and `max_tokens` exceed context limit: 178959 + 64000 > 200000, decrease input length or `max_tokens`"
)
OVERFLOWS: list[tuple[str, int, str, str | int | None]] = [
    ("openai", 400, f"{LIMIT} 8192 tokens. However, your messages resulted in 9001 tokens.", "context_length_exceeded"),
    ("openai", 400, "Your input exceeds the context window of this model.", "context_length_exceeded"),
    ("openai", 400, "Input tokens exceed the configured limit of 272000 tokens.", None),
    ("vllm", 400, f"{LIMIT} 16384 tokens. However, you requested 122946 tokens (112946 in the messages).", 400),
    ("vllm", 400, f"'max_tokens' or 'max_completion_tokens' is too large: 32000. {LIMIT} 4096 tokens.", 400),
    ("vllm", 400, "max_tokens is too large: 32000.", 400),
    ("vllm", 400, "max_tokens must be at least 1, got -120.", 400),
    ("vllm", 400, "The decoder prompt (length 5000) is longer than the maximum model length of 4096.", 400),
    ("vllm", 400, "You passed 40961 input tokens. However, the model's context length is only 40960 tokens.", 400),
    ("sglang", 400, "The input (5000 tokens) is longer than the model's context length (4096 tokens).", 400),
    ("llama.cpp", 400, "the request exceeds the available context size", "exceed_context_size_error"),
    ("anthropic", 400, "prompt is too long: 209303 tokens > 200000 maximum", None),
    ("anthropic", 400, ANTHROPIC, None),
    ("azure", 400, f"{LIMIT} 4097 tokens, however you requested 4569 tokens.", "context_length_exceeded"),
    ("litellm", 400, "litellm.ContextWindowExceededError: litellm.BadRequestError: too much.", "400"),
    ("litellm", 400, f"litellm.BadRequestError: AnthropicException - {ANTHROPIC}", "400"),
    ("litellm", 500, "litellm.ContextWindowExceededError: AnthropicError - prompt is too long", "500"),
    ("gemini", 400, "The input token count (2800010) exceeds the maximum number of tokens allowed (1048575).", 400),
    ("tgi", 422, "Input validation error: `inputs` tokens + `max_new_tokens` must be <= 4096. Given: 5000", None),
]


@pytest.mark.parametrize("name", ["openai-chat", "openai-responses", "anthropic", "azure-chat", "vllm", "litellm-chat"])
async def test_a_conversation_that_is_too_long_is_said_to_be(name: str) -> None:
    """Whatever words a server has for it; never an empty answer, and never tried again."""
    kind = BY_NAME[name]
    async with double_of(kind) as (double, url), model_of(kind.config_at(url)) as model:
        for said, status, text, code in OVERFLOWS:
            error = {"type": "invalid_request_error", "message": text, "param": None, "code": code}
            double.answers = [JSONResponse({"type": "error", "error": error}, status)]
            with pytest.raises(ModelError) as caught:
                await model.complete(call())
            assert (caught.value.failure.kind, caught.value.failure.terminal) == ("context_overflow", True), (
                said,
                text,
            )


@pytest.mark.parametrize(
    ("status", "text", "kind"),
    [
        (400, "max_tokens must be an integer", "provider_bad_request"),
        (400, "Invalid value for temperature: too large", "provider_bad_request"),
        (400, "max_tokens is required", "provider_bad_request"),
        (500, "the context length of a log line", "provider_unavailable"),
        (429, "too many input tokens a minute", "provider_rate_limited"),
    ],
)
async def test_not_every_refusal_is_about_length(status: int, text: str, kind: str) -> None:
    async with double_of(BY_NAME["vllm"]) as (double, url), model_of(BY_NAME["vllm"].config_at(url)) as model:
        double.answers = [JSONResponse({"error": {"message": text}}, status)]
        with pytest.raises(ModelError) as caught:
            await model.complete(call())
        assert caught.value.failure.kind == kind


async def test_an_answer_that_fails_after_it_began_well() -> None:
    """Responses have a status of their own inside of a 200."""
    kind = BY_NAME["openai-responses"]
    error = {"code": "context_length_exceeded", "message": "Your input exceeds the context window of this model."}
    body = {"id": "r", "object": "response", "model": MODEL, "output": [], "status": "failed", "error": error}
    async with double_of(kind) as (double, url), model_of(kind.config_at(url)) as model:
        double.answers = [JSONResponse(body)]
        with pytest.raises(ModelError) as caught:
            await model.complete(call())
        assert caught.value.failure.kind == "context_overflow"


@pytest.mark.parametrize(
    ("name", "path", "headers", "body", "status"),
    [
        (
            "azure-chat-dated",
            "/openai/deployments/up/chat/completions?api-version=2024-10-21",
            {"api-key": KEY},
            {},
            200,
        ),
        ("azure-chat-dated", "/openai/deployments/up/chat/completions", {"api-key": KEY}, {}, 404),
        (
            "azure-chat-dated",
            "/openai/deployments/it/chat/completions?api-version=2024-10-21",
            {"api-key": KEY},
            {},
            404,
        ),
        ("azure-chat-dated", "/v1/chat/completions?api-version=2024-10-21", {"api-key": KEY}, {}, 404),
        (
            "azure-chat-dated",
            "/openai/deployments/up/chat/completions?api-version=2024-10-21",
            {"x-api-key": KEY},
            {},
            401,
        ),
        ("azure-chat", "/openai/v1/chat/completions", {"authorization": f"Bearer {KEY}"}, {}, 401),
        ("azure-chat", "/openai/v1/chat/completions?api-version=2024-10-21", {"api-key": KEY}, {}, 404),
        ("switchyard-chat", "/v1/chat/completions", {"authorization": f"Bearer {KEY}"}, {}, 400),
        ("vllm", "/v1/chat/completions", {"authorization": f"Bearer {KEY}"}, {"top_logprobs": 2}, 400),
        ("vllm", "/v1/chat/completions", {"authorization": f"Bearer {KEY}"}, {"tool_choice": "auto"}, 400),
        ("litellm-messages", "/v1/messages", {"x-api-key": KEY}, {"max_tokens": 5}, 401),
    ],
)
async def test_the_doubles_refuse_what_is_not_theirs(
    name: str, path: str, headers: dict[str, str], body: dict[str, Any], status: int
) -> None:
    """Otherwise the tests above could not fail."""
    async with double_of(BY_NAME[name]) as (_, url), httpx.AsyncClient(verify=False) as http:
        asked = {"model": MODEL, "messages": [{"role": "user", "content": "hi"}], **body}
        assert (await http.post(f"{url}{path}", headers=headers, json=asked)).status_code == status


async def test_a_key_that_no_header_can_hold_is_no_crash() -> None:
    for name in ("vllm", "openai-chat"):
        async with (
            double_of(BY_NAME[name]) as (_, url),
            model_of(BY_NAME[name].config_at(url), "sk-\u043a\u043b\u044e\u0447") as model,
        ):
            with pytest.raises(ModelError, match="cannot be encoded") as caught:
                await model.complete(call())
            assert caught.value.failure.terminal


async def test_a_key_that_is_a_word_may_be_said() -> None:
    """Servers without keys are often given `EMPTY`: an answer that says so stays what it is."""
    kind = BY_NAME["vllm"]
    async with double_of(kind) as (double, url), model_of(kind.config_at(url), "EMPTY WORD") as model:
        double.key = "EMPTY WORD"
        words = reply("chat").model_copy(update={"parts": (Text(text="an EMPTY WORD"),), "stop_reason": "stop"})
        double.answers = [words]
        assert (await model.complete(call())).message.content == "an EMPTY WORD"
