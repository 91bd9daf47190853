"""A native agent's calls to backends of every dialect: what goes there, what comes back, what goes wrong."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from starlette.responses import JSONResponse, Response

from providers.dialects.catalog import DIALECTS
from providers.models import make_model
from providers.models.base import Model, ModelCall, ModelError
from schemas.config import AnthropicModel, ModelConfig, OpenAIModel
from schemas.conversation import DialectName, Reasoning, Reply, Text, TokenUsage, ToolResult, ToolUse
from schemas.values import Message, Sampling, ToolCall, ToolSpec
from tests.support.upstream import Upstream, served

KEY = "sk-very-secret"
NAMES: list[DialectName] = ["responses", "messages"]
CALLS = tuple(ToolCall(id=name, name="shell", arguments="{}") for name in ("a1", "a2"))
ASKED = (
    Message(role="system", content="Be brief."),
    Message(role="user", content="Look."),
    Message(role="assistant", tool_calls=CALLS),
    Message(role="tool", content="one", tool_call_id="a1"),
    Message(role="tool", content="two", tool_call_id="a2"),
)


def call(messages: tuple[Message, ...] = ASKED, **sampling: float) -> ModelCall:
    tools = (ToolSpec(name="shell", description="Runs it.", parameters={"type": "object"}),)
    return ModelCall("c1", "t", 0, 1, 1, messages, tools, Sampling.model_validate(sampling))


@asynccontextmanager
async def model_at(name: DialectName) -> AsyncIterator[tuple[Model, Upstream]]:
    upstream = Upstream(DIALECTS[name])
    async with served(upstream.app) as url:
        config: ModelConfig = AnthropicModel(policy_base_url=url, policy_model_name="up", timeout_s=5)
        if name == "responses":
            config = OpenAIModel(policy_base_url=f"{url}/v1", policy_model_name="up", api="responses", timeout_s=5)
        model = make_model(config, KEY, 8)
        try:
            yield model, upstream
        finally:
            await model.aclose()


@pytest.mark.parametrize("name", NAMES)
async def test_a_conversation_goes_there_and_an_answer_comes_back(name: DialectName) -> None:
    """Two results of one turn together, tools and settings; words, calls and tokens of the answer."""
    async with model_at(name) as (model, upstream):
        use = ToolUse(id="b1", name="shell", arguments='{"command":"ls"}')
        upstream.answers = [
            Reply(
                dialect=name, id="r1", model="up", parts=(Reasoning(texts=("hm",)), Text(text="I look."), use),
                stop_reason="tool_calls", usage=TokenUsage(input_tokens=9, output_tokens=4, cached_tokens=2),
            )
        ]  # fmt: skip
        answer = await model.complete(call(temperature=0.5, max_output_tokens=50))
        assert answer.message.content == "I look."
        assert answer.message.tool_calls == (ToolCall(id="b1", name="shell", arguments=use.arguments),)
        assert (answer.stop_reason, answer.usage.input_tokens, answer.usage.cached_tokens) == ("tool_calls", 9, 2)
        asked = DIALECTS[name].read_request(upstream.bodies[0])
        assert (asked.model, asked.temperature, asked.max_output_tokens) == ("up", 0.5, 50)
        assert [t.role for t in asked.turns] == ["system", "user", "assistant", "tool"]
        assert [p.call_id for p in asked.turns[-1].parts if isinstance(p, ToolResult)] == ["a1", "a2"]
        sent = upstream.headers[0]
        assert sent["x-api-key" if name == "messages" else "authorization"].endswith(KEY)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    ("status", "kind", "is_terminal"),
    [(401, "provider_auth", True), (429, "provider_rate_limited", False), (500, "provider_unavailable", False)],
)
async def test_errors_have_their_kinds_and_no_key_in_them(
    name: DialectName, status: int, kind: str, is_terminal: bool
) -> None:
    async with model_at(name) as (model, upstream):
        upstream.answers = [JSONResponse({"error": f"no, {KEY}"}, status)]
        with pytest.raises(ModelError) as caught:
            await model.complete(call())
        assert (caught.value.failure.kind, caught.value.failure.terminal) == (kind, is_terminal)
        assert KEY not in caught.value.failure.message


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("content", [b"", b"<html>", b"[]", b"{}"])
async def test_no_answer_is_not_an_empty_one(name: DialectName, content: bytes) -> None:
    async with model_at(name) as (model, upstream):
        upstream.answers = [Response(content)]
        with pytest.raises(ModelError) as caught:
            await model.complete(call())
        assert caught.value.failure.kind == "provider_bad_answer"


@pytest.mark.parametrize("name", NAMES)
async def test_what_the_dialect_cannot_say_is_said_by_name(name: DialectName) -> None:
    """A seed is refused before anything is sent; trying again cannot help."""
    async with model_at(name) as (model, upstream):
        with pytest.raises(ModelError, match="seed") as caught:
            await model.complete(call(seed=7))
        assert caught.value.failure.terminal
        assert upstream.bodies == []
