"""Answers that nobody had thought of, and fields that nobody here knows: each call ends in the log, and what was asked is in it."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from starlette.responses import JSONResponse, StreamingResponse

from actors.gateway.grants import mint
from providers.dialects.catalog import DIALECTS
from schemas.config import Budget, Budgets
from schemas.conversation import DialectName, Reply
from schemas.events import BudgetExhausted, ModelCallCompleted, ModelCallFailed, ModelCallRequested
from tests.support.gateway_calls import BACKENDS, NAMES, post, words
from tests.support.gateway_place import KEY, GatewayPlace, gateway_place

LONE = "\ud800"
SAID = {"role": "user", "content": "x"}


def asked(place: GatewayPlace) -> list[ModelCallRequested]:
    return [e.data for e in place.events(ModelCallRequested) if isinstance(e.data, ModelCallRequested)]


def failures(place: GatewayPlace) -> list[str]:
    return [e.data.failure.kind for e in place.events(ModelCallFailed) if isinstance(e.data, ModelCallFailed)]


# -- what cannot be read is a failure of the backend --------------------------------------------------------------------------------


@pytest.mark.parametrize("client", NAMES)
@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
async def test_an_answer_that_breaks_its_reader_closes_its_call(
    client: DialectName, streamed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever code of ours raises over it: a bad answer, in the client's shape, and it takes no place of the budget."""

    def broken(*_: Any) -> Any:
        raise TypeError("unhashable type: 'list'")

    chat = DIALECTS["chat"]
    monkeypatch.setattr(type(chat), "read_reply", broken)
    monkeypatch.setattr(type(chat.stream_reader()), "feed", broken)
    async with gateway_place(budget=Budgets(rollout=Budget(model_calls=2))) as place:
        place.upstream.answers = [words()]
        for _ in range(3):
            answer = await post(place, client, stream=streamed)
            assert answer.status_code == 502
            assert "cannot be read: TypeError" in answer.text
        assert failures(place) == ["provider_bad_answer"] * 3
        assert not place.events(BudgetExhausted)


@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
async def test_a_failure_that_is_no_text_is_recorded(streamed: bool) -> None:
    """Half a character in what a server says of its own fault."""
    said = json.dumps({"error": {"message": f"cut {LONE}"}})
    answer: Any = JSONResponse(json.loads(said.replace("\\ud800", "x")))
    answer.body = said.encode()
    answer.headers["content-length"] = str(len(said))
    async with gateway_place() as place:
        place.upstream.answers = [
            (lambda _: StreamingResponse(iter([f"data: {said}\n\n"]), media_type="text/event-stream"))
            if streamed
            else answer
        ]
        assert (await post(place, stream=streamed)).status_code == 502
        assert failures(place) == ["provider_bad_answer"]


# -- answers that hold nothing --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize(("stop", "is_answer"), [("stop", False), ("length", True), ("content_filter", True)])
async def test_an_answer_without_anything_is_one_only_if_it_says_why(
    backend: DialectName, streamed: bool, stop: Any, is_answer: bool
) -> None:
    """Whole and streamed alike: a program would ask the same for ever; but a model that was cut off has stopped by itself."""
    async with gateway_place(backend) as place:
        place.upstream.answers = [words(dialect=backend).model_copy(update={"parts": (), "stop_reason": stop})]
        for client in NAMES:
            answer = await post(place, client, stream=streamed)
            assert ("the answer holds nothing" in answer.text) != is_answer, (client, answer.text)
            assert streamed or (answer.status_code == 200) == is_answer
        reasons = [
            e.data.stop_reason for e in place.events(ModelCallCompleted) if isinstance(e.data, ModelCallCompleted)
        ]
        assert reasons == ([stop] * len(NAMES) if is_answer else [])
        assert failures(place) == ([] if is_answer else ["provider_bad_answer"] * len(NAMES))


# -- fields that nobody here knows ----------------------------------------------------------------------------------------------------


async def test_what_nobody_knows_is_recorded_where_it_is_new() -> None:
    """Each once, and again when it says something else; what a client calls itself is not."""
    async with gateway_place() as place:
        place.upstream.answers = [words()]
        told = {"min_p": 0.1, "logit_bias": {"5": 3}, "user": "me"}
        await post(place, **told)
        await post(place, **told)
        await post(place, **{**told, "min_p": 0.2})
        first, second, third = (call.parameters for call in asked(place))
        assert first["others"] == {"min_p": 0.1, "logit_bias": {"5": 3}}
        assert "others" not in second
        assert third["others"] == {"min_p": 0.2}
        assert first["others_digest"] == second["others_digest"] != third["others_digest"]


async def test_a_block_that_nobody_knows_is_in_the_log() -> None:
    """What a tool returned, in a form of which only its provider knows."""
    found = {"type": "search_result", "source": "s", "title": "t", "content": [{"type": "text", "text": "blue"}]}
    use = {"type": "tool_use", "id": "c", "name": "look", "input": {}}
    said = [
        {"role": "user", "content": "look"},
        {"role": "assistant", "content": [use]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c", "content": [found]}]},
    ]
    async with gateway_place("messages") as place:
        place.upstream.answers = [words(dialect="messages")]
        assert (await post(place, "messages", messages=said)).status_code == 200
        (call,) = asked(place)
        assert "blue" in json.dumps(call.parameters["others"])


# -- what goes on from an answer that its provider keeps ----------------------------------------------------------------------


def reply(number: int) -> Reply:
    return words(f"answer {number}", "responses").model_copy(update={"id": f"resp_{number}"})


async def test_a_call_goes_on_from_the_answer_that_it_names() -> None:
    """Its parent is the call that had it; one that names another answer is another question, and one that nobody had says so."""
    async with gateway_place("responses") as place:
        place.upstream.answers = [reply(1), reply(2), reply(3), reply(4)]
        await post(place, "responses")
        for named in ("resp_1", "resp_2", "resp_elsewhere"):
            await post(place, "responses", previous_response_id=named, input="go on")
        events = place.events(ModelCallRequested)
        assert [call.parent_id for call in asked(place)] == [None, events[0].event_id, events[1].event_id, None]
        assert [call.gaps for call in asked(place)][1:] == [(), (), ("parent_elsewhere",)]
        assert [call.turn for call in asked(place)] == [1, 2, 3, 4]


async def test_what_went_on_from_an_answer_elsewhere_is_found_again() -> None:
    """Each question after the same one, too: a launch that follows asks nothing of the model."""
    async with gateway_place("responses") as place:
        place.upstream.answers = [reply(1), reply(2)]
        asks = [{"previous_response_id": "resp_elsewhere", "input": words_asked} for words_asked in ("one", "two")]
        for body in asks:
            await post(place, "responses", **body)
        again = mint(KEY, replace(place.grant, launch=2))
        for body in asks:
            await post(place, "responses", token=again, **body)
        assert len(place.upstream.bodies) == 2


async def test_a_result_goes_to_a_call_that_its_provider_keeps() -> None:
    """It is refused only where the call would have to be in the same body."""
    result = [{"type": "function_call_output", "call_id": "a", "output": "done"}]
    async with gateway_place("responses") as place:
        place.upstream.answers = [words(dialect="responses")]
        assert (await post(place, "responses", previous_response_id="resp_0", input=result)).status_code == 200
        kept = [{"type": "item_reference", "id": "fc_1"}, *result]
        assert (await post(place, "responses", input=kept)).status_code == 200
        assert (await post(place, "responses", input=result)).status_code == 400


@pytest.mark.parametrize(
    ("client", "first", "second"),
    [
        ("chat", {"min_p": 0.1}, {"min_p": 0.2}),
        ("chat", {"chat_template_kwargs": {"a": 1}}, {}),
        ("chat", {"messages": [{**SAID, "name": "a"}]}, {"messages": [{**SAID, "name": "b"}]}),
        ("responses", {"previous_response_id": "r1"}, {"previous_response_id": "r9"}),
        ("messages", {"is_error": True}, {"is_error": False}),
    ],
)  # fmt: skip
async def test_a_program_that_is_run_again_is_not_given_the_answer_to_another_question(
    client: DialectName, first: dict[str, Any], second: dict[str, Any]
) -> None:
    """By whatever it differs, as long as the model is told it."""

    def body(said: dict[str, Any]) -> dict[str, Any]:
        if "is_error" not in said:
            return said
        use = {"type": "tool_use", "id": "c", "name": "look", "input": {}}
        block = {"type": "tool_result", "tool_use_id": "c", "content": "x", **said}
        return {"messages": [{"role": "assistant", "content": [use]}, {"role": "user", "content": [block]}]}

    async with gateway_place(client) as place:
        place.upstream.answers = [words(dialect=client)]
        again = mint(KEY, replace(place.grant, launch=2))
        await post(place, client, **body(first))
        await post(place, client, token=again, **body(second))
        assert len(place.upstream.bodies) == 2
        await post(place, client, token=again, **body(first))
        assert len(place.upstream.bodies) == 2
