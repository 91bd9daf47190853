"""Chat Completions: whole answers as real backends give them and as clients get them, errors, and what is no answer."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from providers.dialects.base import Malformed, Problem, Unexpressible
from providers.dialects.chat import Chat
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

CHAT = Chat()
REQUEST = Request(dialect="chat", model="m", turns=())
CALL = {"id": "c1", "type": "function", "function": {"name": "bash", "arguments": '{"command": "ls"}'}}
USE = ToolUse(id="c1", name="bash", arguments='{"command": "ls"}')


def body(message: dict[str, Any] | None = None, *, top: dict[str, Any] | None = None, **choice: Any) -> dict[str, Any]:
    """Return an answer of one choice."""
    said = {"role": "assistant", "content": "hi", **(message or {})}
    one = {"index": 0, "message": said, "finish_reason": "stop", **choice}
    head = {"id": "chatcmpl-1", "object": "chat.completion", "created": 7, "model": "m"}
    return {**head, "choices": [one], **(top or {})}


def reply(*parts: Any, **more: Any) -> Reply:
    """Return an answer of another dialect."""
    fields: dict[str, Any] = {"dialect": "messages", "id": "msg_1", "model": "m", "parts": parts, "stop_reason": "stop"}
    return Reply(**{**fields, **more})


def written(*parts: Any, **more: Any) -> dict[str, Any]:
    """Return the only choice of what is written for an answer of another dialect."""
    [choice] = CHAT.write_reply(reply(*parts, **more), REQUEST)["choices"]
    return dict(choice)


# -- read ---------------------------------------------------------------------------------------------------------------------

# What OpenAI answers, and vLLM with a reasoning parser and token ids.
OPENAI = body(
    {"refusal": None, "annotations": []},
    top={
        "usage": {
            "prompt_tokens": 19,
            "completion_tokens": 10,
            "total_tokens": 29,
            "prompt_tokens_details": {"cached_tokens": 4, "audio_tokens": 0},
            "completion_tokens_details": {
                "reasoning_tokens": 3,
                "audio_tokens": 0,
                "accepted_prediction_tokens": 0,
                "rejected_prediction_tokens": 0,
            },
        },
        "service_tier": "default",
        "system_fingerprint": "fp_1",
    },
    logprobs=None,
)
VLLM = body(
    {"content": None, "reasoning_content": "hm", "reasoning": "hm", "tool_calls": [CALL], "function_call": None},
    top={
        "usage": {"prompt_tokens": 5, "completion_tokens": 6, "total_tokens": 11, "prompt_tokens_details": None},
        "prompt_logprobs": None,
        "prompt_token_ids": [1, 2],
        "kv_transfer_params": None,
    },
    finish_reason="tool_calls",
    stop_reason=None,
    token_ids=[3, 4],
)


def test_openais_answer_reads_whole() -> None:
    read = CHAT.read_reply(OPENAI)
    assert (read.id, read.model, read.created, read.stop_reason) == ("chatcmpl-1", "m", 7, "stop")
    assert read.parts == (Text(text="hi"),)
    assert read.usage == TokenUsage(input_tokens=19, output_tokens=10, cached_tokens=4, reasoning_tokens=3)
    assert read.others["system_fingerprint"] == "fp_1"
    assert read.others["usage.completion_tokens_details.audio_tokens"] == 0


def test_an_answer_is_written_as_it_came() -> None:
    """Everything unknown goes back to its place; an empty list of annotations says nothing."""
    came = copy.deepcopy(OPENAI)
    del came["choices"][0]["message"]["annotations"]
    assert CHAT.write_reply(CHAT.read_reply(OPENAI), REQUEST) == came


def test_vllms_answer_reads_whole() -> None:
    read = CHAT.read_reply(VLLM)
    assert read.parts == (Reasoning(texts=("hm",)), USE)
    assert (read.stop_reason, read.stop_sequence) == ("tool_calls", None)
    assert read.others == {"prompt_token_ids": [1, 2], "choices.0.token_ids": [3, 4]}


def test_an_empty_text_beside_a_call_is_no_part() -> None:
    assert CHAT.read_reply(body({"content": "", "tool_calls": [CALL]})).parts == (USE,)


def test_a_refusal_is_told_from_words() -> None:
    read = CHAT.read_reply(body({"content": None, "refusal": "No."}))
    assert read.parts == (Refusal(text="No."),)
    assert read.stop_reason == "stop"


def test_words_in_parts_are_read_and_strange_ones_kept() -> None:
    thinking = {"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]}
    read = CHAT.read_reply(body({"content": [thinking, {"type": "text", "text": "hi"}]}))
    assert read.parts == (Hosted(dialect="chat", item=thinking), Text(text="hi"))
    assert CHAT.read_reply(CHAT.write_reply(read, REQUEST)) == read


@pytest.mark.parametrize(
    ("choice", "reason", "sequence"),
    [
        ({"finish_reason": "stop"}, "stop", None),
        ({"finish_reason": "stop", "stop_reason": "END"}, "stop_sequence", "END"),
        ({"finish_reason": "stop", "matched_stop": "END"}, "stop_sequence", "END"),
        ({"finish_reason": "stop", "stop_reason": 128009}, "stop", None),
        ({"finish_reason": "tool_calls"}, "tool_calls", None),
        ({"finish_reason": "function_call"}, "tool_calls", None),
        ({"finish_reason": "length"}, "length", None),
        ({"finish_reason": "content_filter"}, "content_filter", None),
    ],
)
def test_why_it_ended_is_read(choice: dict[str, Any], reason: str, sequence: str | None) -> None:
    read = CHAT.read_reply(body(**choice))
    assert (read.stop_reason, read.stop_sequence) == (reason, sequence)


def test_a_call_that_ends_with_stop_stays_as_it_was_said() -> None:
    """OpenAI says so of a tool that was chosen by name; nothing is put right."""
    assert CHAT.read_reply(body({"tool_calls": [CALL]}, finish_reason="stop")).stop_reason == "stop"


def test_probabilities_are_read() -> None:
    token = {
        "token": "hi",
        "logprob": -0.5,
        "bytes": [104, 105],
        "top_logprobs": [{"token": "ho", "logprob": -1, "bytes": None}],
    }
    read = CHAT.read_reply(body(logprobs={"content": [token], "refusal": None}))
    assert read.logprobs == (TokenLogprob(token="hi", logprob=-0.5, top=(("ho", -1.0),)),)
    assert CHAT.read_reply(body(logprobs={"content": None, "refusal": [token]})).logprobs == read.logprobs
    assert CHAT.read_reply(body(logprobs={"content": [], "refusal": None})).logprobs is None


@pytest.mark.parametrize(
    ("usage", "tokens"),
    [
        (
            {"prompt_tokens": 9, "completion_tokens": 1, "prompt_cache_hit_tokens": 4},
            TokenUsage(input_tokens=9, output_tokens=1, cached_tokens=4),
        ),
        (
            {"prompt_tokens": 9, "prompt_tokens_details": {"cached_tokens": 1, "cache_write_tokens": 2}},
            TokenUsage(input_tokens=9, cached_tokens=1, cache_written_tokens=2),
        ),
        (
            {"prompt_tokens": 9, "prompt_tokens_details": {"cache_creation_tokens": 2}},
            TokenUsage(input_tokens=9, cache_written_tokens=2),
        ),
    ],
)
def test_what_a_prompts_cache_gave_is_read_under_every_name(usage: dict[str, Any], tokens: TokenUsage) -> None:
    assert CHAT.read_reply(body(top={"usage": usage})).usage == tokens


def test_a_sum_that_is_none_is_kept() -> None:
    usage = {"prompt_tokens": 9, "completion_tokens": 1, "total_tokens": 30}
    read = CHAT.read_reply(body(top={"usage": usage}))
    assert read.others == {"usage.total_tokens": 30}
    assert CHAT.write_reply(read, REQUEST)["usage"]["total_tokens"] == 30


@pytest.mark.parametrize(
    "answer",
    [
        {},
        {"error": {"message": "upstream is gone", "code": 502}},
        body(top={"choices": []}),
        body(top={"choices": [body()["choices"][0]] * 2}),
        body(top={"choices": [{"index": 0, "finish_reason": "stop"}]}),
        body(top={"id": None}),
        body(top={"model": 5}),
        body(top={"usage": {"prompt_tokens": "many"}}),
        body(finish_reason=None),
        body(finish_reason="abort"),
        body({"role": "user"}),
        body({"content": 5}),
        body({"function_call": {"name": "f", "arguments": "{}"}}),
        body({"tool_calls": [{"id": "c", "function": {"name": "f", "arguments": {}}}]}),
        body({"tool_calls": [{"function": {"name": "f", "arguments": ""}}]}),
        body(logprobs={"content": [{"token": "a"}]}),
        body(logprobs={"content": [{"token": "a", "logprob": float("-inf")}]}),
        body(logprobs={"content": [{"token": "a", "logprob": -(10**400)}]}),
    ],
)
def test_what_is_no_whole_answer_is_malformed(answer: dict[str, Any]) -> None:
    with pytest.raises(Malformed):
        CHAT.read_reply(answer)


def test_an_error_in_place_of_an_answer_is_told() -> None:
    with pytest.raises(Malformed, match="upstream is gone"):
        CHAT.read_reply({"error": {"message": "upstream is gone"}})


# -- written ------------------------------------------------------------------------------------------------------------------


def test_an_answer_of_another_dialect_is_written_whole() -> None:
    said = reply(
        Reasoning(texts=("a",), signature="s"),
        Reasoning(summaries=("b", "c")),
        Text(text="I ", citations=({"type": "char_location"},)),
        Text(text="look."),
        USE,
        ToolUse(id="c2", name="p", arguments="*** Begin", kind="custom"),
        stop_reason="tool_calls",
        usage=TokenUsage(input_tokens=9, output_tokens=2, cached_tokens=1, cache_written_tokens=3, reasoning_tokens=1),
        others={"container": None},
    )
    assert CHAT.write_reply(said, REQUEST) == {
        "id": "msg_1",
        "object": "chat.completion",
        "created": 0,
        "model": "m",
        "choices": [
            {
                "index": 0,
                "message": {
                    "role": "assistant",
                    "content": "I look.",
                    "reasoning_content": "a\n\nb\n\nc",
                    "refusal": None,
                    "tool_calls": [CALL, {"id": "c2", "type": "custom", "custom": {"name": "p", "input": "*** Begin"}}],
                },
                "logprobs": None,
                "finish_reason": "tool_calls",
            }
        ],
        "usage": {
            "prompt_tokens": 9,
            "completion_tokens": 2,
            "total_tokens": 11,
            "prompt_tokens_details": {"cached_tokens": 1, "cache_write_tokens": 3},
            "completion_tokens_details": {"reasoning_tokens": 1},
        },
    }


def test_content_is_null_only_where_something_stands_in_its_place() -> None:
    assert written()["message"]["content"] == ""
    assert written(Reasoning(texts=("hm",)))["message"]["content"] == ""
    assert written(USE)["message"]["content"] is None
    assert written(Refusal(text="No."))["message"] == {"role": "assistant", "content": None, "refusal": "No."}


def test_why_it_ended_is_written() -> None:
    assert written(stop_reason="refusal")["finish_reason"] == "content_filter"
    assert written(stop_reason="length")["finish_reason"] == "length"
    ended = written(stop_reason="stop_sequence", stop_sequence="END")
    assert (ended["finish_reason"], ended["stop_reason"]) == ("stop", "END")


@pytest.mark.parametrize(
    ("answer", "field"),
    [
        (reply(stop_reason="pause"), "finish_reason"),
        (reply(Text(text="a"), Image(source=Url(url="u"))), "choices.0.message.content.1"),
        (reply(Hosted(dialect="messages", item={})), "choices.0.message.content.0"),
        (reply(USE.model_copy(update={"namespace": "n"})), "choices.0.message.tool_calls.0.namespace"),
    ],
)
def test_what_no_answer_says_is_refused(answer: Reply, field: str) -> None:
    with pytest.raises(Unexpressible) as refused:
        CHAT.write_reply(answer, REQUEST)
    assert refused.value.field == field


@pytest.mark.parametrize(
    ("status", "type_"),
    [
        (400, "invalid_request_error"),
        (401, "authentication_error"),
        (429, "rate_limit_error"),
        (500, "server_error"),
        (529, "server_error"),
    ],
)
def test_a_problem_has_openais_shape(status: int, type_: str) -> None:
    problem = Problem(status, "unexpressible", "no", "messages.0")
    told = {"message": "no", "type": type_, "param": "messages.0", "code": "unexpressible"}
    assert CHAT.write_problem(problem) == {"error": told}
