"""What a client of the Gemini API says by an address: the model, the verb, how it is answered; and what it asks beside calls."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from schemas.conversation import Reply, Text, ToolUse
from schemas.events import ModelCallCompleted, ModelCallRequested
from tests.support.gateway_calls import BODIES, GEMINI, message_of, post, words
from tests.support.gateway_place import gateway_place

BODY = BODIES["gemini"]


async def test_the_token_may_be_in_the_path_and_the_models_name_hold_slashes() -> None:
    """Whatever key the client sends beside it."""
    async with gateway_place() as place, httpx.AsyncClient(headers={"x-goog-api-key": "unused"}) as http:
        place.upstream.answers = [words()]
        url = f"{place.url}/a/{place.token}/v1beta/models/org/name:generateContent"
        answer = await http.post(url, json=BODY)
        assert answer.json()["candidates"][0]["content"]["parts"] == [{"text": "hi"}]
        [asked] = place.events(ModelCallRequested)
        assert isinstance(asked.data, ModelCallRequested)
        assert asked.data.parameters["model"] == "org/name"


async def test_tokens_are_counted_and_the_model_is_listed() -> None:
    """An estimate, of a body or of the whole request in it; the session has one model, by whatever name."""
    async with gateway_place() as place, httpx.AsyncClient(headers={"x-goog-api-key": place.token}) as http:
        counts = [
            await http.post(f"{place.url}{GEMINI}:countTokens", json=body)
            for body in (BODY, {"generateContentRequest": {"model": "models/m", **BODY}})
        ]
        assert counts[0].json() == counts[1].json()
        assert counts[0].json()["totalTokens"] > 1
        assert "4" in counts[0].headers["x-gym-bus-estimate"]
        model = (await http.get(f"{place.url}{GEMINI}")).json()
        assert (await http.get(f"{place.url}/v1beta/models")).json() == {"models": [model]}
        assert model["name"] == "models/upstream-model"
        assert place.events(ModelCallRequested) == []


@pytest.mark.parametrize(
    ("verb", "more", "status", "named"),
    [
        ("embedContent", {}, 404, "embedContent"),
        ("streamGenerateContent", {}, 400, "alt"),
        ("generateContent", {"stream": True}, 400, "stream"),
        ("generateContent", {"cachedContent": "cachedContents/x"}, 400, "cachedContent"),
    ],
)
async def test_what_is_not_served_is_said(verb: str, more: dict[str, Any], status: int, named: str) -> None:
    async with gateway_place() as place, httpx.AsyncClient(headers={"x-goog-api-key": place.token}) as http:
        answer = await http.post(f"{place.url}{GEMINI}:{verb}", json={**BODY, **more})
        assert answer.status_code == status
        assert named in message_of("gemini", answer)
        assert place.events(ModelCallRequested) == []


async def test_a_call_is_continued() -> None:
    """Nothing that was said before is stored again."""
    async with gateway_place() as place:
        call = ToolUse(id="call0", name="look", arguments="{}")
        parts = (Text(text="So. "), call)
        place.upstream.answers = [
            Reply(dialect="chat", id="r", model="up", parts=parts, stop_reason="tool_calls"),
            words(),
        ]
        assert (await post(place, "gemini")).status_code == 200
        use = {"id": "call0", "name": "look"}
        model = {"role": "model", "parts": [{"text": "So. "}, {"functionCall": {**use, "args": {}}}]}
        result = {"role": "user", "parts": [{"functionResponse": {**use, "response": {"output": "a"}}}]}
        answer = await post(place, "gemini", contents=[*BODY["contents"], model, result])
        assert answer.status_code == 200
        first, second = (event.data for event in place.events(ModelCallRequested))
        assert isinstance(first, ModelCallRequested)
        assert isinstance(second, ModelCallRequested)
        assert second.parent_id == place.events(ModelCallRequested)[0].event_id
        assert [turn.role for turn in second.new_turns] == ["tool"]
        assert len(place.events(ModelCallCompleted)) == 2
