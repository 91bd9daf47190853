"""Token ids in the log: as what each call adds, over a takeover too; and what a client sees of them."""

from __future__ import annotations

from typing import Any

import pytest
from starlette.responses import JSONResponse, StreamingResponse

from actors.token_chains import TokenChains
from gym_bus.token_ids import digest_of, ids_of
from schemas.conversation import DialectName
from schemas.events import ModelCallCompleted, ModelCallRequested
from tests.support.gateway_calls import NAMES, post
from tests.support.gateway_place import GatewayPlace, gateway_place


def answered(place: GatewayPlace) -> list[ModelCallCompleted]:
    return [e.data for e in place.events(ModelCallCompleted) if isinstance(e.data, ModelCallCompleted)]


class Engine:
    """An engine with a tokenizer of one id a word, which answers as vLLM does."""

    def __init__(self) -> None:
        self.words: dict[str, int] = {}
        self.drop_logprobs = 0

    def ids(self, text: str) -> list[int]:
        """Return a text's ids."""
        return [self.words.setdefault(word, len(self.words)) for word in text.split()]

    def __call__(self, body: dict[str, Any]) -> Any:
        """Answer a call."""
        prompt = [i for m in body["messages"] for i in self.ids(f"<{m['role']}> {m['content']}")] + self.ids(
            "<assistant>"
        )
        said = f"answer {len(body['messages'])} done"
        ids = self.ids(said)
        entries = [
            {"token": w, "logprob": -0.25 * n, "bytes": None, "top_logprobs": []} for n, w in enumerate(said.split())
        ]
        entries = entries[self.drop_logprobs :]
        head = {"id": f"c{len(prompt)}", "model": "engine", "created": 1}
        usage = {"prompt_tokens": len(prompt), "completion_tokens": len(ids), "total_tokens": len(prompt) + len(ids)}
        if not body.get("stream"):
            message = {"role": "assistant", "content": said}
            choice = {
                "index": 0,
                "message": message,
                "finish_reason": "stop",
                "token_ids": ids,
                "logprobs": {"content": entries},
            }
            return JSONResponse(
                {**head, "object": "chat.completion", "prompt_token_ids": prompt, "choices": [choice], "usage": usage}
            )
        chunk = {**head, "object": "chat.completion.chunk"}
        deltas: list[dict[str, Any]] = [
            {
                **chunk,
                "prompt_token_ids": prompt,
                "choices": [{"index": 0, "delta": {"role": "assistant", "content": ""}}],
            }
        ]
        for n, (word, id_) in enumerate(zip(said.split(), ids, strict=True)):
            logprobs = {"content": entries[n : n + 1]}
            delta = {"content": word if n == 0 else f" {word}"}
            deltas.append(
                {**chunk, "choices": [{"index": 0, "delta": delta, "token_ids": [id_], "logprobs": logprobs}]}
            )
        deltas.append({**chunk, "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]})
        deltas.append({**chunk, "choices": [], "usage": usage})
        lines = [f"data: {JSONResponse(d).body.decode()}\n\n" for d in deltas]  # type: ignore[union-attr]
        return StreamingResponse(iter([*lines, "data: [DONE]\n\n"]), media_type="text/event-stream")


def asked(client: DialectName, turns: list[tuple[str, str]]) -> dict[str, Any]:
    """Return the part of a body that holds a conversation, in a client's dialect."""
    if client == "gemini":
        roles = {"assistant": "model"}
        return {"contents": [{"role": roles.get(role, role), "parts": [{"text": text}]} for role, text in turns]}
    messages = [{"role": role, "content": text} for role, text in turns]
    return {"input" if client == "responses" else "messages": messages}


@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("client", NAMES)
async def test_every_token_is_in_the_log(client: DialectName, streamed: bool) -> None:
    """Three turns: each event holds what is new; put together, it is what the engine read and wrote, byte for byte."""
    engine = Engine()
    async with gateway_place() as place:
        place.backend.logprob_kind = "raw"  # type: ignore[misc]
        place.upstream.answers = [engine]
        turns = [("user", "hello there")]
        for _ in range(3):
            answer = await post(place, client, stream=streamed, **asked(client, turns))
            assert answer.status_code == 200
            turns += [("assistant", f"answer {len(turns)} done"), ("user", f"and {len(turns)} more")]
        done = answered(place)
        chains = TokenChains()
        for call, data in zip(place.events(ModelCallRequested), done, strict=True):
            assert data.tokens is not None
            assert data.untrainable is None
            chains.answer(call.event_id, data.tokens)
            assert len(data.tokens.generated) == len(data.tokens.logprobs) == 3
            assert data.tokens.logprob_kind == "raw"
            whole = chains.whole(call.event_id)
            assert digest_of(whole) == data.tokens.digest
            assert len(whole) == data.usage.input_tokens + data.usage.output_tokens
        first, second, third = (d.tokens for d in done)
        assert first is not None and second is not None and third is not None  # noqa: PT018  for the type checker
        assert first.parent_id is None
        assert second.shared == len(first.prompt) + len(first.generated)
        assert len(third.prompt) == len(second.prompt) == 5  # "<user> and N more <assistant>"


async def test_a_takeover_knows_the_tokens() -> None:
    """A second gateway states the difference to what the first one recorded."""
    async with gateway_place(is_doubled=True) as place:
        place.backend.logprob_kind = "raw"  # type: ignore[misc]
        place.upstream.answers = [Engine()]
        turns = [("user", "hello there")]
        await post(place, **asked("chat", turns))
        turns += [("assistant", "answer 1 done"), ("user", "more")]
        place.first_is_silent()
        await post(place, url=place.second_url, **asked("chat", turns))
        first, second = (d.tokens for d in answered(place))
        assert first is not None
        assert second is not None
        assert second.parent_id == place.events(ModelCallRequested)[0].event_id
        assert second.shared == len(first.prompt) + len(first.generated)


async def test_a_prompt_that_was_tokenised_anew_is_stored_as_it_is() -> None:
    """What the engine reads is the truth: where it differs from what it wrote, only the common beginning is shared."""
    engine = Engine()
    async with gateway_place() as place:
        place.backend.logprob_kind = "processed"  # type: ignore[misc]
        place.upstream.answers = [engine]
        await post(place, **asked("chat", [("user", "hello")]))
        engine.words["answer"] = 10_000  # the tokenizer reads its own word as another id
        await post(place, **asked("chat", [("user", "hello"), ("assistant", "answer 1 done"), ("user", "more")]))
        first, second = (d.tokens for d in answered(place))
        assert first is not None
        assert second is not None
        assert second.shared == len(first.prompt)
        assert second.prompt[0] == 10_000
        assert second.digest == digest_of(ids_of([*first.prompt, *second.prompt, *second.generated]))


async def test_a_missing_logprob_makes_a_call_untrainable_and_nothing_else() -> None:
    """The client has its answer, the log has the ids and says why they cannot be learned from."""
    engine = Engine()
    engine.drop_logprobs = 1
    async with gateway_place() as place:
        place.backend.logprob_kind = "raw"  # type: ignore[misc]
        place.upstream.answers = [engine]
        assert (await post(place)).status_code == 200
        (data,) = answered(place)
        assert data.untrainable == "lengths_differ"
        assert data.tokens is not None
        assert len(data.tokens.generated) == 3


async def test_a_backend_that_is_not_asked_for_tokens_has_none_in_the_log() -> None:
    """Nothing is worked out from text."""
    async with gateway_place() as place:
        place.upstream.answers = [Engine()]
        await post(place)
        (data,) = answered(place)
        assert data.tokens is None
        assert data.untrainable is None
