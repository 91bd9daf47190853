"""The local model itself: real weights, real tokens, and log-probabilities that are checked against a second computation."""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from gym_bus.local_model import MISSING, weights_path
from providers.models import local_runtime
from providers.models.base import ModelAnswer, ModelCall, ModelError
from providers.models.evidence import TokenEvidence
from providers.models.local import LocalModel
from providers.models.local_backend import LocalBackend
from providers.models.local_runtime import Runtime
from providers.models.token_reading import TokenReading
from schemas.config import LocalModel as LocalModelConfig
from schemas.events import ModelCallCompleted
from schemas.values import Message, Sampling
from tests.support.gateway_with import gateway_with

needs_weights = pytest.mark.skipif(weights_path() is None, reason=MISSING)
SPLIT = "Repeat exactly: 🎉🦜日本語"


def call(text: str, **sampling: Any) -> ModelCall:
    return ModelCall(
        call_id="c1",
        task_id="t",
        repeat=0,
        turn=1,
        tries=1,
        messages=(Message(role="user", content=text),),
        tools=(),
        sampling=Sampling(**{"max_output_tokens": 12, **sampling}),
    )


def evidence_of(answer: ModelAnswer) -> TokenEvidence:
    assert answer.tokens is not None
    return answer.tokens


@pytest.fixture
async def model() -> AsyncIterator[LocalModel]:
    model = LocalModel(LocalModelConfig(context_tokens=512), concurrency=8)
    yield model
    await model.aclose()


@pytest.fixture
async def runtime() -> AsyncIterator[Runtime]:
    runtime = Runtime(threads=1, context_tokens=512)
    await runtime.start()
    yield runtime
    await runtime.aclose()


@pytest.fixture
async def backend() -> AsyncIterator[LocalBackend]:
    backend = LocalBackend(LocalModelConfig(context_tokens=512, max_output_tokens=12), 8, 1)
    yield backend
    await backend.aclose()


async def distribution(runtime: Runtime, ids: list[int]) -> dict[int, float]:
    """Return the log-probability of every token that may follow `ids`, which are computed anew, as a prompt."""
    body = {"prompt": ids, "n_predict": 1, "n_probs": 49_152, "temperature": 0, "cache_prompt": False}
    body |= {"logit_bias": [[33, 1e6]], "return_tokens": True}
    answer = await runtime._ask("/completion", body)
    return {one["id"]: one["logprob"] for one in answer["completion_probabilities"][0]["top_logprobs"]}


@needs_weights
async def test_an_answer_comes_with_an_id_and_a_log_probability_for_each_of_its_tokens(model: LocalModel) -> None:
    answer = await model.complete(call("What is 17+25?", temperature=0, max_output_tokens=40))
    tokens = evidence_of(answer)
    assert answer.message.content
    assert answer.stop_reason == "stop"
    assert len(tokens.generated) == len(tokens.logprobs) == answer.usage.output_tokens
    assert len(tokens.prompt) == answer.usage.input_tokens
    assert tokens.logprob_kind == "raw"
    assert all(-50 < value <= 0 for value in tokens.logprobs)


@needs_weights
async def test_temperature_0_says_the_same_to_the_last_bit_whatever_was_asked_before(model: LocalModel) -> None:
    first = await model.complete(call("Tell me about the sea.", temperature=0))
    await model.complete(call("Tell me about the sky.", temperature=0))
    again = await model.complete(call("Tell me about the sea.", temperature=0))
    assert (again.message, again.tokens) == (first.message, first.tokens)


@needs_weights
async def test_a_seed_makes_chance_repeatable_and_another_seed_does_not(model: LocalModel) -> None:
    texts = [
        (await model.complete(call("Tell me a story.", temperature=1, seed=seed))).message.content for seed in (1, 1, 2)
    ]
    assert texts[0] == texts[1] != texts[2]


@needs_weights
async def test_log_probabilities_are_those_of_the_same_ids_scored_as_a_prompt(
    model: LocalModel, runtime: Runtime
) -> None:
    for text, temperature in (("What is 17+25?", 0.0), (SPLIT, 0.0), ("Tell me a story.", 1.5)):
        tokens = evidence_of(await model.complete(call(text, temperature=temperature, seed=7)))
        for place in (0, 3, len(tokens.generated) - 1):  # SPLIT's fourth is the first third of a character
            id_, logprob = tokens.generated[place], tokens.logprobs[place]
            scored = await distribution(runtime, [*tokens.prompt, *tokens.generated[:place]])
            assert sum(map(math.exp, scored.values())) == pytest.approx(1, abs=1e-3)
            assert logprob == pytest.approx(scored[id_], abs=1e-3)  # a prompt is computed in another order
            if temperature == 0:
                assert id_ == max(scored, key=lambda one: scored[one])


@needs_weights
async def test_tokens_of_less_than_a_character_have_ids_and_log_probabilities_too(model: LocalModel) -> None:
    answer = await model.complete(call(SPLIT, temperature=0, max_output_tokens=30))
    tokens = evidence_of(answer)
    assert "🎉🦜日本語" in (answer.message.content or "")
    assert len(tokens.generated) == len(tokens.logprobs) > len((answer.message.content or "").split())


@needs_weights
async def test_what_ends_an_answer_is_told(model: LocalModel) -> None:
    short = await model.complete(call("Tell me a long story.", temperature=0, max_output_tokens=5))
    assert (short.stop_reason, short.usage.output_tokens) == ("length", 5)
    with pytest.raises(ModelError) as caught:
        await model.complete(call("word " * 600))
    assert caught.value.failure.kind == "context_overflow"
    assert caught.value.failure.terminal
    nearly = await model.complete(call("word " * 470, temperature=0, max_output_tokens=500))
    assert nearly.usage.input_tokens + nearly.usage.output_tokens <= 512


@needs_weights
async def test_calls_wait_for_each_other_and_change_nothing_for_each_other(model: LocalModel) -> None:
    questions = ("Name a colour.", "Name a fish.", "Name a tree.")
    together = await asyncio.gather(*(model.complete(call(q, temperature=0)) for q in questions))
    alone = [await model.complete(call(q, temperature=0)) for q in questions]
    assert [(a.message, a.tokens) for a in together] == [(a.message, a.tokens) for a in alone]


@needs_weights
async def test_more_calls_than_configured_are_refused_and_a_deadline_counts_the_waiting() -> None:
    model = LocalModel(LocalModelConfig(timeout_s=0.4), concurrency=1)
    try:
        endless = asyncio.create_task(model.complete(call("Tell me a long story.", max_output_tokens=4000)))
        await asyncio.sleep(0)
        with pytest.raises(ModelError) as refused:
            await model.complete(call("Hi."))
        with pytest.raises(ModelError) as late:
            await endless
        assert (refused.value.failure.kind, late.value.failure.kind) == ("provider_rate_limited", "transport_timeout")
    finally:
        await model.aclose()


@needs_weights
async def test_a_call_that_is_given_up_makes_room_for_the_next_one(model: LocalModel) -> None:
    """Not at its own end, which is far away."""
    endless = asyncio.create_task(model.complete(call("Tell me a long story.", max_output_tokens=400)))
    waiting = asyncio.create_task(model.complete(call("Name a fish.", temperature=0)))
    await asyncio.sleep(0.5)
    endless.cancel()
    assert (await waiting).message == (await model.complete(call("Name a fish.", temperature=0))).message
    assert endless.cancelled()


async def test_without_the_packages_the_failure_says_how_to_install_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local_runtime, "weights_path", lambda: None)
    with pytest.raises(ModelError, match="scripts/setup local") as caught:
        await LocalModel(LocalModelConfig(), 1).complete(call("Hi."))
    assert caught.value.failure.terminal


@needs_weights
async def test_weights_that_do_not_load_are_a_failure(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "broken.gguf").write_bytes(b"GGUF but no more")
    monkeypatch.setattr(local_runtime, "weights_path", lambda: tmp_path / "broken.gguf")
    with pytest.raises(ModelError, match=r"broken\.gguf"):
        await Runtime(1, 512).start()


@needs_weights
async def test_the_runtime_answers_nobody_without_its_key(runtime: Runtime) -> None:
    async with httpx.AsyncClient() as stranger:
        answer = await stranger.post(f"{runtime._server.listening_address}/completion", json={"prompt": "Hi"})
    assert answer.status_code == 401


# -- behind the gateway -------------------------------------------------------------------------------------------------------


async def body_of(backend: LocalBackend, **changes: Any) -> bytes:
    body = {"model": "x", "messages": [{"role": "user", "content": "Tell me a story."}], "temperature": 0, **changes}
    async with backend.open(backend.adapted(body), "c1", {}) as incoming:
        assert incoming.status == 200
        return await incoming.body()


def read(backend: LocalBackend, events: list[dict[str, Any]]) -> TokenEvidence:
    reading = TokenReading(backend.logprob_kind)
    for event in events:
        reading.feed(event)
    found = reading.evidence()
    assert found is not None
    assert found.problem is None
    return found


def events_of(stream: bytes) -> list[dict[str, Any]]:
    lines = stream.decode().split("\n\n")
    assert lines[-2:] == ["data: [DONE]", ""]
    return [json.loads(line.removeprefix("data: ")) for line in lines[:-2]]


@needs_weights
async def test_a_stream_says_what_a_whole_answer_says_tokens_included(backend: LocalBackend, model: LocalModel) -> None:
    for text in ("Tell me a story.", SPLIT):
        messages = [{"role": "user", "content": text}]
        whole = json.loads(await body_of(backend, messages=messages))
        stream = events_of(
            await body_of(backend, messages=messages, stream=True, stream_options={"include_usage": True})
        )
        said = "".join(e["choices"][0]["delta"].get("content", "") for e in stream if e["choices"])
        assert said == whole["choices"][0]["message"]["content"]
        assert stream[-1]["usage"] == whole["usage"]
        assert read(backend, stream) == read(backend, [whole])
        answer = await model.complete(call(text, temperature=0))
        assert (answer.message.content, answer.tokens) == (said, read(backend, [whole]))


@needs_weights
async def test_an_answer_ends_before_a_stop_string_that_tokens_share(backend: LocalBackend) -> None:
    plain = json.loads(await body_of(backend))["choices"][0]["message"]["content"]
    stop = plain[10:16]
    for is_streamed in (False, True):
        content = await body_of(backend, stop=[stop], stream=is_streamed)
        events = events_of(content) if is_streamed else [json.loads(content)]
        choices = [e["choices"][0] for e in events if e["choices"]]
        said = "".join(c.get("delta", c.get("message"))["content"] for c in choices if c.get("delta", True))
        assert said == plain[: plain.index(stop)]
        assert choices[-1]["finish_reason"] == "stop"
        assert len(read(backend, events).generated) > 0


@needs_weights
async def test_the_likeliest_tokens_are_told_and_are_no_more_than_all_there_is(backend: LocalBackend) -> None:
    answer = json.loads(await body_of(backend, logprobs=True, top_logprobs=20))
    for token in answer["choices"][0]["logprobs"]["content"]:
        likely = [one["logprob"] for one in token["top_logprobs"]]
        assert len(likely) == 20
        assert sum(map(math.exp, likely)) <= 1 + 1e-3
        assert token["logprob"] == max(likely)  # temperature 0


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"tool_choice": "required", "tools": [{"type": "function", "function": {"name": "f"}}]}, "tool_choice"),
        ({"response_format": {"type": "json_object"}}, "response_format"),
        ({"presence_penalty": 1.0}, "presence_penalty"),
        ({"n": 2}, "n"),
        (
            {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "http://x/y"}}]}]},
            "image",
        ),
    ],
)
async def test_what_this_model_cannot_do_is_refused_before_it_is_asked(changes: dict[str, Any], field: str) -> None:
    backend = LocalBackend(LocalModelConfig(), 8, 1)
    with pytest.raises(ModelError, match=field) as caught:
        await body_of(backend, **changes)
    assert caught.value.failure.kind == "provider_bad_request"


@needs_weights
@pytest.mark.parametrize("is_streamed", [False, True])
async def test_a_call_through_the_gateway_is_in_the_log_with_its_tokens(
    backend: LocalBackend, *, is_streamed: bool
) -> None:
    body = {"model": "x", "stream": is_streamed, "temperature": 0, "max_tokens": 8}
    body["messages"] = [{"role": "user", "content": "Tell me a story."}]
    async with gateway_with(backend) as front:
        answer = await front.post(body)
        assert answer.status_code == 200, answer.text
        [done] = [event.data for event in front.events(ModelCallCompleted)]
    assert done.tokens is not None
    assert (done.untrainable, done.tokens.logprob_kind) == (None, "raw")
    assert len(done.tokens.generated) == len(done.tokens.logprobs) == done.usage.output_tokens == 8
    assert len(done.tokens.prompt) == done.usage.input_tokens
