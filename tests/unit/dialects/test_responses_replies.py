"""Whole answers as OpenAI and vLLM give them, and answers written for clients."""

from __future__ import annotations

from typing import Any

import pytest

from providers.dialects.base import Malformed, Unexpressible
from providers.dialects.responses import Responses
from schemas.conversation import (
    Hosted,
    Image,
    Reasoning,
    Refusal,
    Reply,
    Request,
    Text,
    TokenLogprob,
    TokenUsage,
    ToolUse,
    Url,
)

RESPONSES = Responses()
ASKED = Request(dialect="responses", model="m", turns=())

OPENAI: dict[str, Any] = {
    "id": "resp_1",
    "object": "response",
    "created_at": 1741476777,
    "completed_at": 1741476778,
    "status": "completed",
    "error": None,
    "incomplete_details": None,
    "instructions": "Be brief.",
    "max_output_tokens": None,
    "model": "gpt-5.1-2025-11-13",
    "output": [
        {
            "id": "rs_1",
            "type": "reasoning",
            "summary": [{"type": "summary_text", "text": "S1"}, {"type": "summary_text", "text": "S2"}],
            "encrypted_content": "gAAA",
        },
        {"id": "ws_1", "type": "web_search_call", "status": "completed", "action": {"type": "search", "query": "q"}},
        {
            "id": "msg_1",
            "type": "message",
            "status": "completed",
            "role": "assistant",
            "phase": "commentary",
            "content": [
                {
                    "type": "output_text",
                    "text": "A",
                    "annotations": [
                        {"type": "url_citation", "url": "u", "title": "t", "start_index": 0, "end_index": 1}
                    ],
                    "logprobs": [
                        {
                            "token": "A",
                            "bytes": [65],
                            "logprob": -0.5,
                            "top_logprobs": [{"token": "A", "bytes": [65], "logprob": -0.5}],
                        }
                    ],
                }
            ],
        },
        {
            "id": "fc_1",
            "type": "function_call",
            "status": "completed",
            "arguments": '{"a": 1}',
            "call_id": "call_1",
            "name": "f",
        },
    ],
    "parallel_tool_calls": True,
    "previous_response_id": None,
    "reasoning": {"effort": "medium", "summary": "auto"},
    "service_tier": "default",
    "store": True,
    "temperature": 1.0,
    "text": {"format": {"type": "text"}, "verbosity": "medium"},
    "tool_choice": "auto",
    "tools": [],
    "top_logprobs": 1,
    "top_p": 1.0,
    "truncation": "disabled",
    "usage": {
        "input_tokens": 30,
        "input_tokens_details": {"cached_tokens": 10},
        "output_tokens": 20,
        "output_tokens_details": {"reasoning_tokens": 15},
        "total_tokens": 50,
    },
    "user": None,
    "metadata": {},
}


def test_an_answer_of_openai_is_understood() -> None:
    assert RESPONSES.read_reply(OPENAI) == Reply(
        dialect="responses",
        id="resp_1",
        model="gpt-5.1-2025-11-13",
        parts=(
            Reasoning(summaries=("S1", "S2"), encrypted="gAAA", id="rs_1"),
            Hosted(dialect="responses", item=OPENAI["output"][1]),
            Text(text="A", citations=(OPENAI["output"][2]["content"][0]["annotations"][0],)),
            ToolUse(id="call_1", name="f", arguments='{"a": 1}', item_id="fc_1"),
        ),
        stop_reason="tool_calls",
        usage=TokenUsage(input_tokens=30, output_tokens=20, cached_tokens=10, reasoning_tokens=15),
        logprobs=(TokenLogprob(token="A", logprob=-0.5, top=(("A", -0.5),)),),
        created=1741476777,
        others={"service_tier": "default", "completed_at": 1741476778},
    )


def answer(*output: dict[str, Any], **fields: Any) -> dict[str, Any]:
    return {"id": "r", "object": "response", "model": "m", "status": "completed", "output": list(output)} | fields


def message(*content: dict[str, Any], **fields: Any) -> dict[str, Any]:
    return {"type": "message", "id": "msg_1", "role": "assistant", "content": list(content)} | fields


TEXT = {"type": "output_text", "text": "A", "annotations": []}


def test_what_a_trainer_adds_to_an_item_is_kept_by_its_path() -> None:
    reply = RESPONSES.read_reply(answer(message(TEXT, prompt_token_ids=[1, 2], generation_token_ids=[3])))
    assert reply.others == {"output.0.prompt_token_ids": [1, 2], "output.0.generation_token_ids": [3]}


@pytest.mark.parametrize(
    ("body", "stop_reason"),
    [
        (answer(message(TEXT)), "stop"),
        (answer(message(TEXT), status=None), "stop"),
        (answer(message({"type": "refusal", "refusal": "No."})), "refusal"),
        (answer(status="incomplete", incomplete_details={"reason": "max_output_tokens"}), "length"),
        (answer(status="incomplete", incomplete_details={"reason": "content_filter"}), "content_filter"),
    ],
)
def test_why_an_answer_ended_is_understood(body: dict[str, Any], stop_reason: str) -> None:
    assert RESPONSES.read_reply(body).stop_reason == stop_reason


@pytest.mark.parametrize(
    ("body", "why"),
    [
        ({}, "id"),
        (answer(model=5), "model"),
        (answer(status="in_progress"), "in_progress"),
        (answer(status="failed", error={"code": "server_error", "message": "boom"}), "boom"),
        (answer(status="incomplete"), "reason"),
        (answer(status="incomplete", incomplete_details={"reason": "steered"}), "steered"),
        (answer({"type": "function_call", "call_id": "c", "name": "f"}), r"output.0.arguments"),
        (answer(usage={"input_tokens": "5"}), "usage.input_tokens"),
        (answer(output=["x"]), r"output.0"),
        (answer(created_at=float("nan")), "NaN"),
        (answer(message(TEXT | {"logprobs": [{"token": "A", "logprob": float("-inf")}]})), "logprob"),
    ],
)
def test_what_is_no_answer_is_malformed(body: dict[str, Any], why: str) -> None:
    with pytest.raises(Malformed, match=why):
        RESPONSES.read_reply(body)


CUT = Reply(
    dialect="chat",
    id="chatcmpl-1",
    model="m",
    parts=(
        Reasoning(texts=("T",), signature="s"),
        Text(text="A", citations=({"type": "url_citation", "url_citation": {"url": "u"}},)),
        Refusal(text="B"),
        ToolUse(id="call_1", name="f", arguments='{"cut'),
    ),
    stop_reason="length",
    usage=TokenUsage(input_tokens=3, output_tokens=2, cached_tokens=1, reasoning_tokens=1),
    logprobs=(TokenLogprob(token="é", logprob=-0.5),),
    created=7,
    others={"system_fingerprint": "fp"},
)


def test_an_answer_of_another_dialect_is_written_whole() -> None:
    asked = RESPONSES.read_request(
        {
            "model": "m",
            "instructions": "S",
            "input": "x",
            "tools": [{"type": "function", "name": "f", "parameters": {}, "strict": True}],
            "tool_choice": "required",
            "temperature": 0.5,
            "metadata": {"a": "b"},
            "store": False,
            "reasoning": {"effort": "low"},
            "text": {"verbosity": "low"},
        }
    )
    body = RESPONSES.write_reply(CUT, asked)
    thought, words, call = body.pop("output")
    ids = [item.pop("id") for item in (thought, words, call)]
    assert [id_.partition("_")[0] for id_ in ids] == ["rs", "msg", "fc"]
    assert all(len(id_) <= 64 for id_ in ids)
    assert [item["id"] for item in RESPONSES.write_reply(CUT, asked)["output"]] == ids
    assert thought == {"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": "T"}]}
    token = {"token": "é", "logprob": -0.5, "bytes": [195, 169], "top_logprobs": []}
    assert words == {
        "type": "message",
        "role": "assistant",
        "status": "completed",
        "content": [
            {"type": "output_text", "text": "A", "annotations": [], "logprobs": [token]},
            {"type": "refusal", "refusal": "B"},
        ],
    }
    assert call == {
        "type": "function_call",
        "status": "incomplete",
        "call_id": "call_1",
        "name": "f",
        "arguments": '{"cut',
    }
    assert body == {
        "id": "chatcmpl-1",
        "object": "response",
        "created_at": 7,
        "status": "incomplete",
        "error": None,
        "incomplete_details": {"reason": "max_output_tokens"},
        "model": "m",
        "usage": {
            "input_tokens": 3,
            "input_tokens_details": {"cached_tokens": 1, "cache_write_tokens": 0},
            "output_tokens": 2,
            "output_tokens_details": {"reasoning_tokens": 1},
            "total_tokens": 5,
        },
        "instructions": "S",
        "max_output_tokens": None,
        "metadata": {"a": "b"},
        "parallel_tool_calls": True,
        "previous_response_id": None,
        "reasoning": {"effort": "low", "summary": None},
        "temperature": 0.5,
        "text": {"format": {"type": "text"}, "verbosity": "low"},
        "tool_choice": "required",
        "tools": [{"type": "function", "name": "f", "parameters": {}, "strict": True}],
        "top_p": None,
        "truncation": "disabled",
        "store": False,
    }


@pytest.mark.parametrize(
    ("parts", "stop_reason", "status", "reason"),
    [
        ((Text(text="x"),), "stop_sequence", "completed", None),
        ((Refusal(text="x"),), "refusal", "completed", None),
        ((Text(text="x"),), "refusal", "incomplete", "content_filter"),
        ((Text(text="x"),), "content_filter", "incomplete", "content_filter"),
    ],
)
def test_why_an_answer_ended_is_told(parts: Any, stop_reason: Any, status: str, reason: str | None) -> None:
    reply = Reply(dialect="messages", id="i", model="m", parts=parts, stop_reason=stop_reason)
    body = RESPONSES.write_reply(reply, ASKED)
    assert (body["status"], body["incomplete_details"]) == (status, reason and {"reason": reason})
    assert (body["created_at"], body["usage"]) == (0, None)


@pytest.mark.parametrize(
    ("part", "stop_reason", "field"),
    [
        (Hosted(dialect="messages", item={}), "stop", "output.0"),
        (Image(source=Url(url="u")), "stop", "output.0"),
        (Text(text="x"), "pause", "stop_reason"),
    ],
)
def test_what_an_answer_cannot_say_is_refused_by_name(part: Any, stop_reason: Any, field: str) -> None:
    with pytest.raises(Unexpressible) as refused:
        RESPONSES.write_reply(
            Reply(dialect="messages", id="i", model="m", parts=(part,), stop_reason=stop_reason), ASKED
        )
    assert refused.value.field == field
