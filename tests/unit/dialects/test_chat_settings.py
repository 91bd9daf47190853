"""Chat Completions: tools and settings of a request, what is unknown in it, and what is refused by the field's name."""

from __future__ import annotations

import json
from typing import Any

import pytest

from providers.dialects.base import Unexpressible
from providers.dialects.chat import Chat
from schemas.conversation import (
    HostedTool,
    OutputFormat,
    Thinking,
    Tool,
    ToolChoice,
)
from tests.support.chat_bodies import CHAT, FUNCTION, assistant, body, call, read, result, text, user

DEEP: Any = json.loads("[" * 900 + "]" * 900)

# -- tools and settings -------------------------------------------------------------------------------------------------------


def test_absent_and_empty_tools_are_told_apart() -> None:
    assert read().tools is None
    assert read(tools=[]).tools == ()
    assert CHAT.write_request(read(tools=[])).body["tools"] == []


def test_a_custom_tools_grammar_has_the_form_of_responses() -> None:
    grammar = {"syntax": "lark", "definition": "start: /a/"}
    custom = {"type": "custom", "custom": {"name": "p", "format": {"type": "grammar", "grammar": grammar}}}
    request = read(tools=[custom, {"type": "$web_search"}])
    assert request.tools == (
        Tool(name="p", kind="custom", format={"type": "grammar", **grammar}),
        HostedTool(dialect="chat", tool={"type": "$web_search"}),
    )
    assert CHAT.write_request(request).body["tools"][0] == custom


@pytest.mark.parametrize(
    ("said", "meant"),
    [
        ("none", ToolChoice(mode="none")),
        ("required", ToolChoice(mode="required")),
        ({"type": "function", "function": {"name": "f"}}, ToolChoice(mode="named", name="f")),
        ({"type": "custom", "custom": {"name": "f"}}, ToolChoice(mode="named", name="f", kind="custom")),
        ({"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": []}}, None),
        ({"type": "function", "function": {"name": "f"}, "x": 1}, None),
        ({"type": "function", "function": {"name": DEEP}}, None),
        ("any", None),
    ],
)
def test_a_choice_is_read_or_kept(said: Any, meant: ToolChoice | None) -> None:
    request = read(tools=[FUNCTION], tool_choice=said)
    assert request.tool_choice == meant
    assert request.others == ({} if meant else {"tool_choice": said})


def test_a_choice_without_tools_is_left_out() -> None:
    written = CHAT.write_request(CHAT.read_request(body(tool_choice="auto", parallel_tool_calls=True)))
    assert written.body == body()
    assert written.dropped == ("tool_choice", "parallel_tool_calls")


@pytest.mark.parametrize(
    ("said", "meant"),
    [
        ({"reasoning_effort": "minimal"}, Thinking(effort="minimal")),
        ({"thinking": {"type": "enabled", "budget_tokens": 9}}, Thinking(budget_tokens=9)),
        ({"thinking": {"type": "disabled"}}, Thinking(is_off=True)),
        ({"thinking": {"type": "adaptive"}, "reasoning_effort": "max"}, Thinking(is_adaptive=True, effort="max")),
    ],
)
def test_thinking_is_read(said: dict[str, Any], meant: Thinking) -> None:
    request = read(**said)
    assert request.thinking == meant
    assert CHAT.write_request(request).body == body(**said)


def test_a_schema_for_the_answer_is_read() -> None:
    schema = {"name": "a", "schema": {"type": "object"}, "strict": True, "odd": 1}
    request = read(response_format={"type": "json_schema", "json_schema": schema})
    assert request.output == OutputFormat(mode="json_schema", name="a", schema_={"type": "object"}, strict=True)
    assert request.others == {"response_format.json_schema.odd": 1}
    assert read(response_format={"type": "grammar", "g": 1}).others == {"response_format": {"type": "grammar", "g": 1}}


def test_settings_are_read() -> None:
    said = {
        "temperature": 1,
        "top_p": 0.5,
        "top_k": 3,
        "seed": 4,
        "presence_penalty": 0.1,
        "frequency_penalty": 0.2,
        "logprobs": True,
        "top_logprobs": 2,
        "verbosity": "low",
        "stop": "END",
        "n": 1,
        "user": None,
        "min_p": 0.1,
        "reasoning": {"effort": "high"},
        "stream_options": {"include_usage": False, "continuous_usage_stats": True},
        "stream": True,
    }
    request = read(**said)
    assert (request.temperature, request.top_k, request.seed, request.stop) == (1.0, 3, 4, ("END",))
    assert (request.logprobs, request.top_logprobs, request.verbosity, request.wants_usage) == (True, 2, "low", False)
    assert request.others == {
        "min_p": 0.1,
        "reasoning": {"effort": "high"},
        "stream_options": {"continuous_usage_stats": True},
    }


@pytest.mark.parametrize(
    "said", [{"max_tokens": 5}, {"max_completion_tokens": 5}, {"max_tokens": 5, "max_completion_tokens": 5}]
)
def test_both_names_of_the_limit_are_read(said: dict[str, int]) -> None:
    request = read(**said)
    assert request.max_output_tokens == 5
    assert CHAT.write_request(request).body["max_tokens"] == 5
    assert Chat("max_completion_tokens").write_request(request).body == body(max_completion_tokens=5)


def test_unknown_fields_go_back_where_they_were() -> None:
    """At any depth, and under names that have dots in them."""
    came = body(
        user([{**text("a"), "uuid": "u"}, {"type": "image_url", "image_url": {"url": "x", "min_pixels": 1}}]),
        assistant(None, tool_calls=[{**call(), "extra_content": {"google": {"thought_signature": "s"}}}]),
        result(),
        tools=[{"type": "function", "function": {"name": "f", "defer": True}}],
        **{"messages.0.content": "not this one", "a~b.c": 1},
    )
    request = CHAT.read_request(came)
    assert "messages.1.tool_calls.0.extra_content" in request.others
    assert CHAT.write_request(request).body == came


# -- refused, by name ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("asked", "field"),
    [
        ({"messages": []}, "model"),
        ({"model": "m"}, "messages"),
        ({"model": "m", "messages": "hi"}, "messages"),
        ({"model": "m", "messages": ["hi"]}, "messages.0"),
        (body(functions=[]), "functions"),
        (body(function_call="auto"), "function_call"),
        (body(n=2), "n"),
        (body(max_tokens=1, max_completion_tokens=2), "max_tokens"),
        (body(temperature="hot"), "temperature"),
        (body(temperature=float("nan")), "temperature"),
        (body(top_p=10**400), "top_p"),
        (body(stop=[1]), "stop"),
        (body(stop=DEEP), "stop"),
        (body(stream="yes"), "stream"),
        (body(reasoning_effort="huge"), "reasoning_effort"),
        (body(verbosity="loud"), "verbosity"),
        (body(tool_choice=1), "tool_choice"),
        (body(tools=[{"type": "function", "name": "flat"}]), "tools.0.function"),
        (body(tools=[{"type": "function", "function": {}}]), "tools.0.function.name"),
        (body(response_format={"type": "json_schema"}), "response_format.json_schema"),
        (body({"content": "hi"}), "messages.0.role"),
        (body({"role": "owner", "content": "hi"}), "messages.0.role"),
        (body({"role": "function", "name": "f", "content": "hi"}), "messages.0.role"),
        (body(assistant("", function_call={"name": "f", "arguments": ""})), "messages.0.function_call"),
        (body({"role": "user"}), "messages.0.content"),
        (body(user(5)), "messages.0.content"),
        (body(user(["hi"])), "messages.0.content.0"),
        (body(user([{"text": "hi"}])), "messages.0.content.0.type"),
        (body(user([{"type": "text"}])), "messages.0.content.0.text"),
        (body(user([{"type": "image_url", "image_url": {"url": "x", "detail": "fine"}}])), "messages.0.content.0.image_url.detail"),
        (body(user([{"type": "file", "file": {}}])), "messages.0.content.0.file.file_id"),
        (body({"role": "tool", "content": "x"}), "messages.0.tool_call_id"),
        (body(result(content=[{"type": "odd"}])), "messages.0.content.0"),
        (body(assistant(tool_calls=[{"type": "function", "function": {"name": "f", "arguments": ""}}])), "messages.0.tool_calls.0.id"),
        (body(assistant(tool_calls=[call(arguments={})])), "messages.0.tool_calls.0.function.arguments"),
        (body(assistant(tool_calls=[{"id": "c", "type": "odd"}])), "messages.0.tool_calls.0.type"),
        (body(assistant("a", x=1), assistant("b", x=2)), "messages.1.x"),
    ],
)  # fmt: skip
def test_what_is_no_request_is_refused_by_its_field(asked: dict[str, Any], field: str) -> None:
    with pytest.raises(Unexpressible) as refused:
        CHAT.read_request(asked)
    assert refused.value.field == field
