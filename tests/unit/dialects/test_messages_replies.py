"""Whole answers of Anthropic Messages, and errors."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from providers.dialects import Malformed, Problem, Unexpressible
from providers.dialects.messages import Messages
from schemas.conversation import (
    Hosted,
    Part,
    Reasoning,
    Refusal,
    Reply,
    Request,
    StopReason,
    Text,
    TokenLogprob,
    TokenUsage,
    ToolUse,
)

MESSAGES = Messages()
ASKED = Request(dialect="messages", model="m", turns=())
# As the API answers.
ANSWER: dict[str, Any] = {
    "id": "msg_01",
    "type": "message",
    "role": "assistant",
    "model": "claude-x",
    "content": [
        {"type": "thinking", "thinking": "Well.", "signature": "c2ln"},
        {"type": "redacted_thinking", "data": "ZGF0YQ=="},
        {"type": "text", "text": "Searching."},
        {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {"query": "x"}},
        {"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": []},
        {"type": "text", "text": "It is.", "citations": [{"type": "web_search_result_location", "url": "u"}]},
        {"type": "tool_use", "id": "toolu_1", "name": "Bash", "input": {"command": "ls"}, "caller": {"type": "direct"}},
    ],
    "container": None,
    "stop_reason": "tool_use",
    "stop_sequence": None,
    "usage": {
        "input_tokens": 3,
        "cache_creation_input_tokens": 10,
        "cache_read_input_tokens": 100,
        "cache_creation": {"ephemeral_5m_input_tokens": 10, "ephemeral_1h_input_tokens": 0},
        "output_tokens": 20,
        "output_tokens_details": {"thinking_tokens": 7},
        "service_tier": "standard",
    },
}


def answer(*parts: Part, stop_reason: StopReason = "stop", **fields: Any) -> Reply:
    """Return an answer from another dialect."""
    return Reply(**{"dialect": "chat", "id": "i", "model": "m", "parts": parts, "stop_reason": stop_reason, **fields})


def test_an_answer_is_read() -> None:
    before = copy.deepcopy(ANSWER)
    reply = MESSAGES.read_reply(ANSWER)
    assert before == ANSWER
    assert reply.parts == (
        Reasoning(texts=("Well.",), signature="c2ln"),
        Reasoning(redacted="ZGF0YQ=="),
        Text(text="Searching."),
        Hosted(dialect="messages", item=ANSWER["content"][3]),
        Hosted(dialect="messages", item=ANSWER["content"][4]),
        Text(text="It is.", citations=({"type": "web_search_result_location", "url": "u"},)),
        ToolUse(id="toolu_1", name="Bash", arguments='{"command":"ls"}'),
    )
    assert reply.stop_reason == "tool_calls"
    assert reply.usage == TokenUsage(
        input_tokens=113, output_tokens=20, cached_tokens=100, cache_written_tokens=10, reasoning_tokens=7
    )
    assert reply.others == {
        "parts.6.caller": {"type": "direct"},
        "usage.cache_creation": ANSWER["usage"]["cache_creation"],
        "usage.service_tier": "standard",
    }


def test_an_answer_is_written_again_as_it_was() -> None:
    written = MESSAGES.write_reply(MESSAGES.read_reply(ANSWER), ASKED)
    assert written == {name: value for name, value in ANSWER.items() if name != "container"}


@pytest.mark.parametrize(
    ("said", "read", "written"),
    [
        ("end_turn", "stop", "end_turn"),
        ("max_tokens", "length", "max_tokens"),
        ("model_context_window_exceeded", "length", "max_tokens"),
        ("stop_sequence", "stop_sequence", "stop_sequence"),
        ("tool_use", "tool_calls", "tool_use"),
        ("pause_turn", "pause", "pause_turn"),
        ("refusal", "refusal", "refusal"),
    ],
)
def test_stop_reasons(said: str, read: StopReason, written: str) -> None:
    reply = MESSAGES.read_reply(ANSWER | {"stop_reason": said})
    assert reply.stop_reason == read
    assert MESSAGES.write_reply(reply, ASKED)["stop_reason"] == written


def test_an_answer_of_another_dialect_is_written() -> None:
    """What only another provider can read has no place; what is unknown there does not come along."""
    reply = answer(
        Reasoning(encrypted="e", id="rs_1"),
        Reasoning(texts=("Hm.",), id="rs_2"),
        Text(text="Hi", citations=({"type": "url_citation"},)),
        ToolUse(id="c", name="N", arguments='{"a": [1, 2]}'),
        stop_reason="tool_calls",
        usage=TokenUsage(input_tokens=10, cached_tokens=4, output_tokens=2),
        created=1,
        logprobs=(TokenLogprob(token="Hi", logprob=0.0),),
        others={"system_fingerprint": "f"},
    )
    assert MESSAGES.write_reply(reply, ASKED) == {
        "id": "i",
        "type": "message",
        "role": "assistant",
        "model": "m",
        "content": [
            {"type": "thinking", "thinking": "Hm.", "signature": ""},
            {"type": "text", "text": "Hi"},
            {"type": "tool_use", "id": "c", "name": "N", "input": {"a": [1, 2]}},
        ],
        "stop_reason": "tool_use",
        "stop_sequence": None,
        "usage": {
            "input_tokens": 6,
            "cache_creation_input_tokens": 0,
            "cache_read_input_tokens": 4,
            "output_tokens": 2,
        },
    }


def test_a_refusal_is_text_and_a_stop_reason() -> None:
    written = MESSAGES.write_reply(answer(Refusal(text="No.")), ASKED)
    assert (written["content"], written["stop_reason"]) == ([{"type": "text", "text": "No."}], "refusal")
    assert MESSAGES.write_reply(answer(stop_reason="content_filter"), ASKED)["stop_reason"] == "refusal"


ODD_ARGUMENTS = ['{"command": "rm -rf /tm', "null", "1"]


@pytest.mark.parametrize("arguments", ODD_ARGUMENTS)
def test_a_call_that_is_no_object_is_refused_where_the_answer_is_whole(arguments: str) -> None:
    with pytest.raises(Unexpressible) as refused:
        MESSAGES.write_reply(answer(ToolUse(id="c", name="N", arguments=arguments), stop_reason="tool_calls"), ASKED)
    assert refused.value.field == "parts.0.arguments"


@pytest.mark.parametrize("arguments", [*ODD_ARGUMENTS, "", " "])
def test_a_call_that_was_cut_off_is_never_made_one_that_can_be_run(arguments: str) -> None:
    """It is left out, and the message says that it was cut off."""
    whole, cut = ToolUse(id="b", name="N", arguments=""), ToolUse(id="c", name="N", arguments=arguments)
    body = MESSAGES.write_reply(answer(Text(text="x"), whole, cut, stop_reason="length"), ASKED)
    assert body["stop_reason"] == "max_tokens"
    called = {"type": "tool_use", "id": "b", "name": "N", "input": {}}
    assert body["content"] == [{"type": "text", "text": "x"}, called]
    assert MESSAGES.write_reply(answer(cut, stop_reason="length"), ASKED)["content"] == []


@pytest.mark.parametrize("arguments", ["", " \n"])
def test_a_call_without_arguments_takes_an_empty_object(arguments: str) -> None:
    body = MESSAGES.write_reply(answer(ToolUse(id="c", name="N", arguments=arguments), stop_reason="tool_calls"), ASKED)
    assert body["content"] == [{"type": "tool_use", "id": "c", "name": "N", "input": {}}]


def test_what_no_message_holds_is_refused() -> None:
    with pytest.raises(Unexpressible):
        MESSAGES.write_reply(answer(Hosted(dialect="responses", item={"type": "x"})), ASKED)


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"type": "error", "error": {"type": "api_error", "message": "x"}},
        {name: value for name, value in ANSWER.items() if name != "content"},
        ANSWER | {"stop_reason": None},
        ANSWER | {"stop_reason": "boredom"},
        ANSWER | {"content": [{"type": "tool_use", "id": "t", "name": "N", "input": '{"a": 1}'}]},
        ANSWER | {"content": [{"type": "tool_result", "tool_use_id": "t"}]},
        ANSWER | {"usage": {"input_tokens": "3"}},
        ANSWER | {"role": "user"},
    ],
)
def test_what_is_no_answer_is_malformed(body: dict[str, Any]) -> None:
    with pytest.raises(Malformed):
        MESSAGES.read_reply(body)


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, "invalid_request_error"),
        (401, "authentication_error"),
        (404, "not_found_error"),
        (413, "request_too_large"),
        (422, "invalid_request_error"),
        (429, "rate_limit_error"),
        (500, "api_error"),
        (503, "api_error"),
        (529, "overloaded_error"),
    ],
)
def test_an_error_has_the_type_of_its_status_and_names_the_field(status: int, kind: str) -> None:
    body = MESSAGES.write_problem(Problem(status, "odd", "will not do", "messages.0"))
    assert body == {"type": "error", "error": {"type": kind, "message": "messages.0: will not do", "code": "odd"}}
