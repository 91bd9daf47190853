"""Streams as OpenAI, vLLM and their like send them, cut and broken ones among them, and streams written for clients."""

from __future__ import annotations

import json
from typing import Any

import pytest

from providers.dialects.base import Malformed
from providers.dialects.folding import fold
from providers.dialects.responses import Responses
from providers.dialects.sse import EventSplitter
from schemas.conversation import (
    Delta,
    Hosted,
    PartBegan,
    PartEnded,
    PartGrew,
    Reasoning,
    Refusal,
    ReplyBegan,
    ReplyBroke,
    ReplyEnded,
    Request,
    Text,
    TokenLogprob,
    TokenUsage,
    ToolUse,
)

RESPONSES = Responses()
ASKED = Request(dialect="responses", model="m", turns=(), is_streamed=True, wants_usage=True)
USAGE = {"input_tokens": 5, "output_tokens": 3, "total_tokens": 8}


def response(status: str, *output: dict[str, Any], **fields: Any) -> dict[str, Any]:
    head = {"id": "resp_1", "object": "response", "created_at": 9, "model": "m", "status": status}
    return head | {"output": list(output), "usage": None} | fields


def event(type_: str, output_index: int | None = None, **fields: Any) -> dict[str, Any]:
    place = {} if output_index is None else {"output_index": output_index, "item_id": f"i{output_index}"}
    return {"type": f"response.{type_}", "sequence_number": 0} | place | fields


def read(*events: dict[str, Any]) -> list[Delta]:
    reader = RESPONSES.stream_reader()
    deltas = [delta for each in events for delta in reader.feed(each["type"], json.dumps(each))]
    return deltas + reader.end()


CREATED = event("created", response=response("in_progress"))
DONE = event("completed", response=response("completed", usage=USAGE))
ENDED = ReplyEnded(stop_reason="stop", usage=TokenUsage(input_tokens=5, output_tokens=3))
BEGAN = ReplyBegan(id="resp_1", model="m", created=9)


def call(place: int, arguments: str = "") -> dict[str, Any]:
    return {
        "type": "function_call",
        "id": f"fc_{place}",
        "call_id": f"call_{place}",
        "name": "f",
        "arguments": arguments,
        "status": "in_progress",
    }


def use(place: int, arguments: str = "") -> ToolUse:
    return ToolUse(id=f"call_{place}", name="f", arguments=arguments, item_id=f"fc_{place}")


def test_words_come_as_they_are_said() -> None:
    part = {"type": "output_text", "text": "", "annotations": [], "logprobs": []}
    whole = part | {"text": "Hello"}
    item = {"type": "message", "id": "i0", "role": "assistant", "status": "in_progress", "content": []}
    logprobs = [{"token": "lo", "logprob": -1.5, "top_logprobs": [{"token": "p", "logprob": -2}]}]
    deltas = read(
        CREATED,
        event("in_progress", response=response("in_progress")),
        event("output_item.added", 0, item=item),
        event("content_part.added", 0, content_index=0, part=part),
        event("output_text.delta", 0, content_index=0, delta="Hel", logprobs=[], obfuscation="x9"),
        event("output_text.delta", 0, content_index=0, delta="lo", logprobs=logprobs),
        event("output_text.done", 0, content_index=0, text="Hello", logprobs=[]),
        event("content_part.done", 0, content_index=0, part=whole),
        event("output_item.done", 0, item=item | {"status": "completed", "content": [whole]}),
        DONE,
    )
    assert deltas == [
        BEGAN,
        PartBegan(index=0, part=Text(text="")),
        PartGrew(index=0, field="text", more="Hel"),
        PartGrew(
            index=0, field="text", more="lo", logprobs=(TokenLogprob(token="lo", logprob=-1.5, top=(("p", -2.0),)),)
        ),
        PartEnded(index=0, part=Text(text="Hello")),
        ENDED,
    ]


def test_calls_may_grow_side_by_side() -> None:
    deltas = read(
        CREATED,
        event("output_item.added", 0, item=call(0)),
        event("output_item.added", 1, item=call(1)),
        event("function_call_arguments.delta", 1, delta='{"b'),
        event("function_call_arguments.delta", 0, delta='{"a'),
        event("function_call_arguments.delta", 1, delta='": 1}'),
        event("function_call_arguments.done", 1, arguments='{"b": 1}'),
        event("output_item.done", 1, item=call(1, '{"b": 1}')),
        event("output_item.done", 0, item=call(0, '{"a')),
        event("incomplete", response=response("incomplete", incomplete_details={"reason": "max_output_tokens"})),
    )
    assert [delta.index for delta in deltas if isinstance(delta, PartGrew)] == [1, 0, 1]
    reply = fold(deltas, "responses")
    assert (reply.parts, reply.stop_reason) == ((use(0, '{"a'), use(1, '{"b": 1}')), "length")


def test_thoughts_and_refusals_and_custom_calls_grow() -> None:
    thought = {"type": "reasoning", "id": "rs_0", "summary": []}
    custom = {"type": "custom_tool_call", "id": "ctc_2", "call_id": "c", "name": "p", "input": ""}
    refusal = {"type": "refusal", "refusal": ""}
    deltas = read(
        CREATED,
        event("output_item.added", 0, item=thought),
        event("reasoning_summary_part.added", 0, summary_index=0, part={"type": "summary_text", "text": ""}),
        event("reasoning_summary_text.delta", 0, summary_index=0, delta="S"),
        event("content_part.added", 0, content_index=0, part={"type": "reasoning_text", "text": ""}),
        event("reasoning_text.delta", 0, content_index=0, delta="T"),
        event(
            "output_item.done",
            0,
            item=thought
            | {
                "summary": [{"type": "summary_text", "text": "S"}],
                "content": [{"type": "reasoning_text", "text": "T"}],
                "encrypted_content": "E",
            },
        ),
        event("output_item.added", 1, item={"type": "message", "role": "assistant", "content": []}),
        event("content_part.added", 1, content_index=0, part=refusal),
        event("refusal.delta", 1, content_index=0, delta="No."),
        event("content_part.done", 1, content_index=0, part=refusal | {"refusal": "No."}),
        event(
            "output_item.done",
            1,
            item={"type": "message", "role": "assistant", "content": [refusal | {"refusal": "No."}]},
        ),
        event("output_item.added", 2, item=custom),
        event("custom_tool_call_input.delta", 2, delta="*** Begin"),
        event("output_item.done", 2, item=custom | {"input": "*** Begin"}),
        DONE,
    )
    assert [(delta.field, delta.more) for delta in deltas if isinstance(delta, PartGrew)] == [
        ("summary", "S"),
        ("reasoning", "T"),
        ("refusal", "No."),
        ("arguments", "*** Begin"),
    ]
    assert fold(deltas, "responses").parts == (
        Reasoning(texts=("T",), summaries=("S",), encrypted="E", id="rs_0"),
        Refusal(text="No."),
        ToolUse(id="c", name="p", arguments="*** Begin", kind="custom", item_id="ctc_2"),
    )


def test_items_that_come_whole_are_told_in_one_piece() -> None:
    """NeMo Gym's servers send no more than the items' ends."""
    message = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "A"}]}
    search = {"type": "web_search_call", "id": "ws"}
    deltas = read(
        CREATED,
        event("output_item.done", 0, item=search),
        event("output_item.done", 1, item=message),
        event("output_item.done", 2, item=call(2, "{}")),
        DONE,
    )
    assert deltas[3:] == [
        PartBegan(index=1, part=Text(text="")),
        PartGrew(index=1, field="text", more="A"),
        PartEnded(index=1, part=Text(text="A")),
        PartBegan(index=2, part=use(2)),
        PartGrew(index=2, field="arguments", more="{}"),
        PartEnded(index=2, part=use(2, "{}")),
        ENDED.model_copy(update={"stop_reason": "tool_calls"}),
    ]
    assert fold(deltas, "responses").parts[0] == Hosted(dialect="responses", item=search)


def test_what_only_the_last_event_holds_is_told_then() -> None:
    deltas = read(event("completed", response=response("completed", call(0, "{}"), usage=USAGE)))
    reply = fold(deltas, "responses")
    assert (reply.id, reply.parts, reply.stop_reason) == ("resp_1", (use(0, "{}"),), "tool_calls")


def test_noise_is_passed_over() -> None:
    reader = RESPONSES.stream_reader()
    for name, data in [(None, ""), ("ping", "{}"), ("codex.rate_limits", '{"type": "codex.rate_limits"}')]:
        assert reader.feed(name, data) == []
    assert reader.feed(None, json.dumps(CREATED)) == [BEGAN]
    assert reader.feed("response.metadata", '{"type": "response.metadata"}') == []
    assert reader.feed("response.completed", json.dumps(DONE)) == [ENDED]
    assert reader.feed(None, "[DONE]") == []
    assert reader.end() == []


@pytest.mark.parametrize(
    "events",
    [
        [],
        [CREATED],
        [CREATED, event("output_item.added", 0, item=call(0)), event("function_call_arguments.delta", 0, delta="{")],
    ],
)
def test_a_cut_stream_is_malformed(events: list[dict[str, Any]]) -> None:
    with pytest.raises(Malformed, match="ended before"):
        read(*events)


@pytest.mark.parametrize(
    ("event_", "why"),
    [
        (event("output_item.added", item=call(0)), "output_index"),
        (event("output_item.added", 0, item={"type": "function_call", "call_id": "c"}), "item.name"),
        (event("function_call_arguments.delta", 7, delta="{"), "never began"),
        (event("output_text.delta", 0, content_index=-1, delta="x"), "content_index"),
        (event("completed"), "response"),
        (event("completed", response=response("in_progress")), "in_progress"),
    ],
)
def test_an_event_that_makes_no_sense_is_malformed(event_: dict[str, Any], why: str) -> None:
    with pytest.raises(Malformed, match=why):
        read(CREATED, event_)


@pytest.mark.parametrize("nth", [4097, 20_000_000, 2**63, 10**400])
@pytest.mark.parametrize(
    ("grew", "index"), [("reasoning_text", "content_index"), ("reasoning_summary_text", "summary_index")]
)
def test_a_number_that_leaves_very_many_thoughts_out_is_malformed(grew: str, index: str, nth: int) -> None:
    """Each of them would be told as an empty one: some hundred bytes would become hundreds of megabytes."""
    with pytest.raises(Malformed, match="is left out"):
        read(CREATED, event(f"{grew}.delta", 0, delta="x", **{index: nth}))


def test_very_many_thoughts_are_not_left_out_little_by_little() -> None:
    skipping = [event("reasoning_text.delta", place, delta="x", content_index=1000) for place in range(5)]
    with pytest.raises(Malformed, match="is left out"):
        read(CREATED, *skipping)
    following = [event("reasoning_text.delta", 0, delta="x", content_index=nth) for nth in range(5000)]
    assert (
        len(read(CREATED, *following, event("output_item.done", 0, item={"type": "reasoning", "summary": []}), DONE))
        == 5004
    )


@pytest.mark.parametrize("data", ["{", "[]", "[" * 100_000])
def test_data_that_is_no_event_is_malformed(data: str) -> None:
    with pytest.raises(Malformed):
        RESPONSES.stream_reader().feed("response.created", data)


def test_an_answer_that_ends_before_its_parts_is_malformed() -> None:
    with pytest.raises(Malformed, match="part 0"):
        read(CREATED, event("output_item.added", 0, item=call(0)), DONE)


@pytest.mark.parametrize(
    ("body", "message", "code"),
    [
        ({"type": "error", "code": "rate_limit_exceeded", "message": "slow down"}, "slow down", "rate_limit_exceeded"),
        ({"type": "error", "error": {"message": "boom", "code": 500}}, "boom", "500"),
        ({"error": "boom"}, "boom", None),
        (
            event("failed", response=response("failed", error={"code": "server_error", "message": "boom"})),
            "boom",
            "server_error",
        ),
    ],
)
def test_a_failure_in_mid_stream_is_told(body: dict[str, Any], message: str, code: str | None) -> None:
    reader = RESPONSES.stream_reader()
    reader.feed(None, json.dumps(CREATED))
    assert reader.feed(None, json.dumps(body)) == [ReplyBroke(message=message, code=code, body=body)]
    assert reader.end() == []


# -- written streams ----------------------------------------------------------------------------------------------------------


def written(*deltas: Delta) -> list[dict[str, Any]]:
    writer, splitter = RESPONSES.stream_writer(ASKED), EventSplitter()
    events = [event for delta in deltas for event in splitter.feed(writer.write(delta))]
    bodies = [json.loads(event.data) for event in events]
    assert [event.name for event in events] == [body["type"] for body in bodies]
    assert [body.pop("sequence_number") for body in bodies] == list(range(len(bodies)))
    return bodies


def names(bodies: list[dict[str, Any]]) -> list[str]:
    return [body["type"].removeprefix("response.") for body in bodies]


def test_each_piece_is_written_when_it_comes() -> None:
    writer = RESPONSES.stream_writer(ASKED)
    said = [
        writer.write(BEGAN),
        writer.write(PartBegan(index=0, part=Text(text=""))),
        writer.write(PartGrew(index=0, field="text", more="Hel")),
        writer.write(PartGrew(index=0, field="text", more="lo")),
    ]
    assert b"response.created" in said[0]
    assert b"content_part.added" in said[1]
    assert b'"delta":"Hel"' in said[2]
    assert b'"delta":"lo"' in said[3]


def test_the_whole_sequence_is_written() -> None:
    token = TokenLogprob(token="A", logprob=-1)
    bodies = written(
        BEGAN,
        PartBegan(index=0, part=Reasoning()),
        PartGrew(index=0, field="summary", more="S1"),
        PartGrew(index=0, field="summary", more="S2", nth=1),
        PartGrew(index=0, field="reasoning", more="T"),
        PartGrew(index=0, field="signature", more="sig"),
        PartEnded(index=0, part=Reasoning(summaries=("S1", "S2"), texts=("T",), signature="sig")),
        PartBegan(index=1, part=Text(text="")),
        PartGrew(index=1, field="text", more="A", logprobs=(token,)),
        PartEnded(index=1, part=Text(text="A")),
        PartBegan(index=2, part=Refusal(text="")),
        PartGrew(index=2, field="refusal", more="B"),
        PartEnded(index=2, part=Refusal(text="B")),
        PartBegan(index=3, part=use(3)),
        PartGrew(index=3, field="arguments", more="{}"),
        PartEnded(index=3, part=use(3, "{}")),
        ReplyEnded(stop_reason="tool_calls", usage=TokenUsage(input_tokens=1)),
    )
    assert names(bodies) == [
        "created",
        "in_progress",
        "output_item.added",
        "reasoning_summary_part.added",
        "reasoning_summary_text.delta",
        "reasoning_summary_text.done",
        "reasoning_summary_part.done",
        "reasoning_summary_part.added",
        "reasoning_summary_text.delta",
        "reasoning_summary_text.done",
        "reasoning_summary_part.done",
        "content_part.added",
        "reasoning_text.delta",
        "reasoning_text.done",
        "content_part.done",
        "output_item.done",
        "output_item.added",
        "content_part.added",
        "output_text.delta",
        "output_text.done",
        "content_part.done",
        "content_part.added",
        "refusal.delta",
        "refusal.done",
        "content_part.done",
        "output_item.done",
        "output_item.added",
        "function_call_arguments.delta",
        "function_call_arguments.done",
        "output_item.done",
        "completed",
    ]
    last = bodies[-1]["response"]
    assert last["output"] == [body["item"] for body in bodies if body["type"] == "response.output_item.done"]
    assert [item["type"] for item in last["output"]] == ["reasoning", "message", "function_call"]
    assert last["output"][1]["content"][0]["logprobs"][0]["bytes"] == [65]
    assert (last["status"], last["usage"]["total_tokens"]) == ("completed", 1)
    assert bodies[21]["content_index"] == 1


def test_a_custom_call_is_told_by_its_input() -> None:
    custom = ToolUse(id="c", name="p", arguments="", kind="custom")
    bodies = written(
        BEGAN,
        PartBegan(index=0, part=custom),
        PartGrew(index=0, field="arguments", more="ls"),
        PartEnded(index=0, part=custom.model_copy(update={"arguments": "ls"})),
        ReplyEnded(stop_reason="tool_calls"),
    )
    assert names(bodies)[3:5] == ["custom_tool_call_input.delta", "custom_tool_call_input.done"]
    assert bodies[4]["input"] == "ls"
    assert bodies[5]["item"]["id"].startswith("ctc_")


@pytest.mark.parametrize(("stop_reason", "status"), [("length", "incomplete"), ("tool_calls", "completed")])
def test_only_what_was_cut_is_incomplete(stop_reason: Any, status: str) -> None:
    bodies = written(
        BEGAN,
        PartBegan(index=0, part=Text(text="A")),
        PartEnded(index=0, part=Text(text="A")),
        PartBegan(index=1, part=use(1)),
        PartGrew(index=1, field="arguments", more='{"cut'),
        PartEnded(index=1, part=use(1, '{"cut')),
        ReplyEnded(stop_reason=stop_reason),
    )
    items = [body["item"] for body in bodies if body["type"] == "response.output_item.done"]
    assert [item["status"] for item in items] == ["completed", status]
    assert items[1]["arguments"] == '{"cut'
    assert names(bodies)[-1] == status


def test_what_no_piece_told_is_told_before_the_end() -> None:
    bodies = written(
        BEGAN,
        PartBegan(index=0, part=Text(text="")),
        PartGrew(index=0, field="text", more="Hel"),
        PartEnded(index=0, part=Text(text="Hello")),
        ReplyEnded(stop_reason="stop"),
    )
    assert [body["delta"] for body in bodies if body["type"] == "response.output_text.delta"] == ["Hel", "lo"]


def test_parts_that_nobody_ended_are_ended_as_far_as_they_came() -> None:
    bodies = written(
        BEGAN,
        PartBegan(index=0, part=Reasoning(texts=("T",))),
        PartBegan(index=1, part=Text(text="A")),
        PartBegan(index=2, part=use(2)),
        PartGrew(index=2, field="arguments", more="{"),
        ReplyEnded(stop_reason="length"),
    )
    thought, words, call_ = bodies[-1]["response"]["output"]
    assert thought["content"] == [{"type": "reasoning_text", "text": "T"}]
    assert (words["content"][0]["text"], words["status"]) == ("A", "completed")
    assert (call_["arguments"], call_["status"]) == ("{", "incomplete")


def test_words_after_a_call_are_another_message_also_if_the_first_goes_on() -> None:
    bodies = written(
        BEGAN,
        PartBegan(index=0, part=Text(text="A")),
        PartBegan(index=1, part=use(1)),
        PartBegan(index=2, part=Text(text="B")),
        PartGrew(index=0, field="text", more="A"),
        PartEnded(index=2, part=Text(text="B")),
        PartEnded(index=1, part=use(1, "{}")),
        PartEnded(index=0, part=Text(text="AA")),
        ReplyEnded(stop_reason="tool_calls"),
    )
    output = bodies[-1]["response"]["output"]
    assert [item["type"] for item in output] == ["message", "function_call", "message"]
    assert [item["content"][0]["text"] for item in (output[0], output[2])] == ["AA", "B"]


def test_a_break_in_mid_stream_is_a_failed_answer() -> None:
    bodies = written(BEGAN, PartBegan(index=0, part=Text(text="A")), ReplyBroke(message="boom"), ENDED)
    assert names(bodies)[-2:] == ["output_item.done", "failed"]
    failed = bodies[-1]["response"]
    assert (failed["status"], failed["error"]) == ("failed", {"code": "server_error", "message": "boom"})
    assert failed["output"][0]["status"] == "incomplete"


def test_a_break_before_the_answer_is_an_error() -> None:
    assert written(ReplyBroke(message="boom", code="c")) == [
        {"type": "error", "code": "c", "message": "boom", "param": None}
    ]
