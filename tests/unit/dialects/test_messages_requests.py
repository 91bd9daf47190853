"""Requests of Anthropic Messages as real clients send them, and what is said to a client that asks for what cannot be."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from providers.dialects import Unexpressible
from providers.dialects.messages import Messages
from schemas.conversation import (
    Audio,
    CacheHint,
    Data,
    File,
    FileId,
    Hosted,
    HostedTool,
    Image,
    OutputFormat,
    Part,
    Reasoning,
    Refusal,
    Request,
    Text,
    Thinking,
    Tool,
    ToolChoice,
    ToolResult,
    ToolUse,
    Turn,
    Url,
    Video,
)

MESSAGES = Messages()
HINT = {"type": "ephemeral"}
# What Claude Code sends in its second call, shortened.
CLAUDE_CODE: dict[str, Any] = {
    "model": "m",
    "max_tokens": 32000,
    "stream": True,
    "system": [
        {"type": "text", "text": "You are a Claude agent."},
        {"type": "text", "text": "Be brief.", "cache_control": {**HINT, "ttl": "1h", "scope": "global"}},
    ],
    "messages": [
        {
            "role": "user",
            "content": [
                {"type": "text", "text": "<system-reminder>x</system-reminder>"},
                {"type": "text", "text": "ls"},
            ],
        },
        {"role": "system", "content": "The date has changed."},
        {
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": "I list.", "signature": "c2ln"},
                {"type": "text", "text": "Listing."},
                {"type": "tool_use", "id": "toolu_1", "name": "Bash", "input": {"command": "ls -a « »", "n": 1.5}},
                {"type": "tool_use", "id": "toolu_2", "name": "Pwd", "input": {}, "caller": {"type": "direct"}},
            ],
        },
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": "toolu_1", "content": "a\nb", "is_error": False},
                {
                    "type": "tool_result",
                    "tool_use_id": "toolu_2",
                    "content": [
                        {"type": "text", "text": "/"},
                        {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "aGk="}},
                    ],
                },
                {"type": "text", "text": "Go on.", "cache_control": HINT},
            ],
        },
    ],
    "tools": [
        {
            "name": "Bash",
            "description": "Runs.",
            "input_schema": {"type": "object", "properties": {"command": {"type": "string"}}},
            "eager_input_streaming": True,
        },
        {"type": "web_search_20250305", "name": "web_search", "max_uses": 3},
    ],
    "tool_choice": {"type": "auto", "disable_parallel_tool_use": True},
    "thinking": {"type": "adaptive"},
    "output_config": {"effort": "high"},
    "context_management": {"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]},
    "metadata": {"user_id": "{}"},
}


def asked(*messages: dict[str, Any], **fields: Any) -> dict[str, Any]:
    """Return a body."""
    return {"model": "m", "max_tokens": 9, "messages": list(messages), **fields}


def user(*blocks: dict[str, Any]) -> dict[str, Any]:
    """Return a user's message."""
    return {"role": "user", "content": list(blocks)}


def foreign(*turns: Turn, **fields: Any) -> Request:
    """Return a request that came in another dialect."""
    return Request(**{"dialect": "chat", "model": "m", "turns": turns, **fields})


def said(role: Any, *parts: Part) -> Turn:
    """Return a turn."""
    return Turn(role=role, parts=parts)


def test_what_claude_code_sends_is_read() -> None:
    before = copy.deepcopy(CLAUDE_CODE)
    request = MESSAGES.read_request(CLAUDE_CODE)
    assert before == CLAUDE_CODE
    assert [turn.role for turn in request.turns] == ["system", "user", "system", "assistant", "tool", "user"]
    assert request.turns[2] == Turn(role="system", parts=(Text(text="The date has changed."),), is_plain=True)
    assert request.turns[3].parts == (
        Reasoning(texts=("I list.",), signature="c2ln"),
        Text(text="Listing."),
        ToolUse(id="toolu_1", name="Bash", arguments='{"command":"ls -a « »","n":1.5}'),
        ToolUse(id="toolu_2", name="Pwd", arguments="{}"),
    )
    assert request.turns[4].parts == (
        ToolResult(call_id="toolu_1", parts=(Text(text="a\nb"),), is_plain=True, is_error=False),
        ToolResult(
            call_id="toolu_2",
            parts=(Text(text="/"), Image(source=Data(media_type="image/png", base64="aGk="))),
            is_plain=False,
        ),
    )
    assert request.turns[5].parts == (Text(text="Go on.", cache=CacheHint()),)
    assert request.turns[0].parts[1] == Text(text="Be brief.", cache=CacheHint(ttl="1h"))
    assert (request.tool_choice, request.parallel_tool_calls) == (ToolChoice(mode="auto"), False)
    assert request.thinking == Thinking(is_adaptive=True, effort="high")
    assert request.is_streamed
    assert request.wants_usage
    assert isinstance(request.tools, tuple)
    assert isinstance(request.tools[1], HostedTool)
    assert request.others == {
        "context_management": CLAUDE_CODE["context_management"],
        "metadata": {"user_id": "{}"},
        "tools.0.eager_input_streaming": True,
        "turns.0.parts.1.cache_control.scope": "global",
        "turns.3.parts.3.caller": {"type": "direct"},
    }


def test_what_claude_code_sends_is_written_again_as_it_was_but_for_the_cut_of_messages() -> None:
    body = MESSAGES.write_request(MESSAGES.read_request(CLAUDE_CODE)).body
    results, words = CLAUDE_CODE["messages"][3]["content"][:2], CLAUDE_CODE["messages"][3]["content"][2:]
    assert body == CLAUDE_CODE | {"messages": [*CLAUDE_CODE["messages"][:3], user(*results), user(*words)]}


@pytest.mark.parametrize(
    ("thinking", "config", "read"),
    [
        (
            {"type": "enabled", "budget_tokens": 2048, "display": "omitted"},
            None,
            Thinking(budget_tokens=2048, summary="omitted"),
        ),
        ({"type": "disabled"}, {"effort": "max"}, Thinking(is_off=True, effort="max")),
        (None, {"effort": "low"}, Thinking(effort="low")),
        ({"type": "between_tools"}, None, None),
        ({"type": "enabled"}, {"effort": "utmost"}, None),
    ],
)
def test_thinking_is_read_and_written_again(thinking: Any, config: Any, read: Thinking | None) -> None:
    """What is not known of it goes through as it stands."""
    said_so = {name: value for name, value in (("thinking", thinking), ("output_config", config)) if value}
    body = asked(user(), **said_so)
    request = MESSAGES.read_request(body)
    assert request.thinking == read
    assert MESSAGES.write_request(request).body == body


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("output_config", {"format": {"type": "json_schema", "schema": {"type": "object"}}}),
        ("output_format", {"type": "json_schema", "schema": {"type": "object"}}),
    ],
)
def test_a_schema_is_read_by_its_new_and_its_old_name(field: str, value: Any) -> None:
    request = MESSAGES.read_request(asked(user(), **{field: value}))
    assert request.output == OutputFormat(mode="json_schema", schema_={"type": "object"})
    assert request.others == {}
    assert "output_config" in MESSAGES.write_request(request).body


def test_a_count_of_tokens_is_a_request_without_a_bound() -> None:
    request = MESSAGES.read_request({"model": "m", "messages": [{"role": "user", "content": "hi"}]})
    assert request.max_output_tokens is None
    assert MESSAGES.write_request(request).body["max_tokens"] == 32_000


def test_documents_are_files() -> None:
    blocks: list[dict[str, Any]] = [
        {
            "type": "document",
            "source": {"type": "base64", "media_type": "application/pdf", "data": "aGk="},
            "title": "T",
        },
        {
            "type": "document",
            "source": {"type": "text", "media_type": "text/plain", "data": "words"},
            "context": "C",
            "citations": {"enabled": True},
        },
        {"type": "document", "source": {"type": "url", "url": "https://example.com/a.pdf"}},
        {"type": "document", "source": {"type": "file", "file_id": "file_1"}},
        {"type": "document", "source": {"type": "content", "content": [{"type": "text", "text": "x"}]}},
        {"type": "search_result", "source": "s", "title": "t", "content": []},
    ]
    request = MESSAGES.read_request(asked(user(*blocks)))
    assert request.turns[0].parts == (
        File(source=Data(media_type="application/pdf", base64="aGk="), filename="T"),
        File(text="words", context="C", has_citations=True),
        File(source=Url(url="https://example.com/a.pdf")),
        File(source=FileId(dialect="messages", id="file_1")),
        Hosted(dialect="messages", item=blocks[4]),
        Hosted(dialect="messages", item=blocks[5]),
    )
    assert MESSAGES.write_request(request).body["messages"] == [user(*blocks)]


def test_a_result_that_holds_what_is_not_known_keeps_all_of_it() -> None:
    content = [{"type": "text", "text": "x", "odd": 1}, {"type": "tool_reference", "tool_name": "T"}]
    call = {"role": "assistant", "content": [{"type": "tool_use", "id": "t", "name": "N", "input": {}}]}
    body = asked(call, user({"type": "tool_result", "tool_use_id": "t", "content": content}))
    request = MESSAGES.read_request(body)
    assert request.turns[1].parts == (ToolResult(call_id="t", parts=(Text(text="x"),), is_plain=False),)
    assert request.others == {"turns.1.parts.0.content": content}
    assert MESSAGES.write_request(request).body == body


def test_neighbouring_messages_of_the_assistant_are_one_turn_in_order() -> None:
    """Its thoughts stand before its words and these before its calls."""
    call = {"type": "tool_use", "id": "t", "name": "N", "input": {}}
    thought = {"type": "thinking", "thinking": "b", "signature": ""}
    request = MESSAGES.read_request(
        asked({"role": "assistant", "content": "a"}, {"role": "assistant", "content": [call, thought]})
    )
    assert request.turns == (
        said("assistant", Reasoning(texts=("b",)), Text(text="a"), ToolUse(id="t", name="N", arguments="{}")),
    )


def test_neighbouring_messages_of_results_are_one_turn() -> None:
    results = [user({"type": "tool_result", "tool_use_id": name}) for name in "ab"]
    request = MESSAGES.read_request(asked(*results))
    assert request.turns == (said("tool", ToolResult(call_id="a"), ToolResult(call_id="b")),)


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"messages": []}, "model"),
        ({"model": "m"}, "messages"),
        (asked({"role": "robot", "content": "x"}), "messages.0.role"),
        (asked({"role": "user", "content": 3}), "messages.0.content"),
        (asked({"role": "user"}), "messages.0.content"),
        (asked(user({"text": "x"})), "messages.0.content.0.type"),
        (asked(user({"type": "text"})), "messages.0.content.0.text"),
        (asked(user({"type": "tool_use", "id": "t", "name": "N", "input": {}})), "messages.0.content.0"),
        (
            asked({"role": "assistant", "content": [{"type": "tool_result", "tool_use_id": "t"}]}),
            "messages.0.content.0",
        ),
        (
            asked(user({"type": "text", "text": "x"}, {"type": "tool_result", "tool_use_id": "t"})),
            "messages.0.content.1",
        ),
        (
            asked({"role": "assistant", "content": [{"type": "tool_use", "id": "t", "name": "N", "input": "{}"}]}),
            "messages.0.content.0.input",
        ),
        (asked(user(), tools=[{"description": "x"}]), "tools.0.name"),
        (asked(user(), tools={}), "tools"),
        (asked(user(), tool_choice={"type": "some"}), "tool_choice.type"),
        (asked(user(), max_tokens="9"), "max_tokens"),
        (asked(user(), temperature=float("nan")), "temperature"),
        (asked(user(), stop_sequences=[1]), "stop_sequences.0"),
        (asked(user(), output_config={"format": {"type": "regex"}}), "output_config.format.type"),
        (asked(user(), system=[{"type": "image", "source": {"type": "url", "url": "u"}}]), "system.0"),
    ],
)
def test_what_is_no_request_is_refused_by_the_name_of_its_field(body: dict[str, Any], field: str) -> None:
    with pytest.raises(Unexpressible) as refused:
        MESSAGES.read_request(body)
    assert refused.value.field == field


def test_a_request_of_another_dialect_is_written() -> None:
    """Leading prompts are one `system`, a later one is a message; what changes no answer is left out and listed."""
    request = foreign(
        Turn(role="system", parts=(Text(text="S"),), is_plain=True),
        Turn(role="developer", parts=(Text(text="D"),), is_plain=True),
        Turn(role="user", parts=(Image(source=Url(url="u"), detail="low"),)),
        said(
            "assistant",
            Reasoning(summaries=("a", "b"), encrypted="e", id="rs_1"),
            Text(text=""),
            ToolUse(id="c", name="N", arguments='{ "a": 1 }', item_id="fc_1"),
        ),
        said("tool", ToolResult(call_id="c", parts=(Text(text="r"),))),
        said("assistant", Reasoning(encrypted="only they can read it", id="rs_2")),
        said("developer", Text(text="later")),
        said("assistant", Refusal(text="no")),
        dialect="responses",
        tools=(Tool(name="N"),),
        parallel_tool_calls=True,
        presence_penalty=0,
        logprobs=False,
        thinking=Thinking(effort="medium", summary="auto"),
        output=OutputFormat(mode="json_schema", name="x", schema_={}, strict=True),
        others={"store": False, "include": ["reasoning.encrypted_content"], "prompt_cache_key": "k"},
    )
    written = MESSAGES.write_request(request)
    assert written.body == {
        "model": "m",
        "max_tokens": 32_000,
        "system": [{"type": "text", "text": "S"}, {"type": "text", "text": "D"}],
        "messages": [
            user({"type": "image", "source": {"type": "url", "url": "u"}}),
            {
                "role": "assistant",
                "content": [
                    {"type": "thinking", "thinking": "a\n\nb", "signature": ""},
                    {"type": "tool_use", "id": "c", "name": "N", "input": {"a": 1}},
                ],
            },
            user({"type": "tool_result", "tool_use_id": "c", "content": "r"}),
            {"role": "system", "content": [{"type": "text", "text": "later"}]},
            {"role": "assistant", "content": [{"type": "text", "text": "no"}]},
        ],
        "tools": [{"name": "N", "input_schema": {"type": "object", "properties": {}}}],
        "tool_choice": {"type": "auto", "disable_parallel_tool_use": False},
        "output_config": {"effort": "medium", "format": {"type": "json_schema", "schema": {}}},
    }
    assert set(written.dropped) == {
        "store",
        "include",
        "prompt_cache_key",
        "presence_penalty",
        "logprobs",
        "thinking.summary",
        "output.name",
        "output.strict",
        "turns.2.parts.0.detail",
        "turns.3.parts.0.encrypted",
        "turns.3.parts.0.id",
        "turns.3.parts.1",
        "turns.3.parts.2.item_id",
        "turns.5.parts.0",
        "turns.5.parts.0.encrypted",
        "turns.5.parts.0.id",
    }


def test_a_choice_without_tools_is_left_out() -> None:
    for tools in (None, ()):
        request = foreign(tools=tools, tool_choice=ToolChoice(mode="auto"), parallel_tool_calls=False)
        written = MESSAGES.write_request(request)
        assert "tool_choice" not in written.body
        assert set(written.dropped) == {"tool_choice", "parallel_tool_calls"}
        assert written.body.get("tools") == (None if tools is None else [])


def test_a_call_without_arguments_is_written_with_an_empty_object() -> None:
    body = MESSAGES.write_request(foreign(*called(""))).body
    assert body["messages"][0]["content"] == [{"type": "tool_use", "id": "c", "name": "N", "input": {}}]


def called(arguments: str, **about: Any) -> tuple[Turn, Turn]:
    """Return a call and its result."""
    return (
        said("assistant", ToolUse(id="c", name="N", arguments=arguments, **about)),
        said("tool", ToolResult(call_id="c")),
    )


@pytest.mark.parametrize(
    ("request_", "field"),
    [
        (foreign(seed=1), "seed"),
        (foreign(presence_penalty=0.5), "presence_penalty"),
        (foreign(frequency_penalty=0.5), "frequency_penalty"),
        (foreign(logprobs=True), "logprobs"),
        (foreign(top_logprobs=2), "top_logprobs"),
        (foreign(verbosity="low"), "verbosity"),
        (foreign(output=OutputFormat(mode="json_object")), "output"),
        (foreign(thinking=Thinking(effort="minimal")), "thinking.effort"),
        (foreign(thinking=Thinking(is_off=True, budget_tokens=9)), "thinking"),
        (foreign(tools=(Tool(name="N", kind="custom"),)), "tools.0"),
        (foreign(tools=(Tool(name="N", namespace="s"),)), "tools.0.namespace"),
        (foreign(tools=(HostedTool(dialect="responses", tool={"type": "web_search"}),)), "tools.0"),
        (foreign(others={"logit_bias": {"1": 2}}), "logit_bias"),
        (foreign(others={"include": ["message.output_text.logprobs"]}), "include"),
        (foreign(said("user", Audio(base64="", format="wav"))), "turns.0.parts.0"),
        (foreign(said("user", Video(source=Url(url="u")))), "turns.0.parts.0"),
        (foreign(said("user", File(source=FileId(dialect="chat", id="f")))), "turns.0.parts.0.source"),
        (foreign(said("user", Image(source=Data(media_type=None, base64="")))), "turns.0.parts.0.source.media_type"),
        (foreign(said("user", Hosted(dialect="responses", item={"type": "compaction"}))), "turns.0.parts.0"),
        (foreign(said("system", Image(source=Url(url="u")))), "turns.0.parts.0"),
        (foreign(Turn(role="user", parts=(), name="Ann")), "turns.0.name"),
        (foreign(*called('{"command": "rm -rf /tm')), "turns.0.parts.0.arguments"),
        (foreign(*called("[1]")), "turns.0.parts.0.arguments"),
        (foreign(*called('{"a": NaN}')), "turns.0.parts.0.arguments"),
        (foreign(*called('{"a": 1e999}')), "turns.0.parts.0.arguments"),
        (foreign(*called('{"a":' * 200_000)), "turns.0.parts.0.arguments"),
        (foreign(*called("x", kind="custom")), "turns.0.parts.0"),
        (foreign(*called("{}", namespace="s")), "turns.0.parts.0.namespace"),
        (foreign(called("{}")[0]), "the last turn"),
    ],
)
def test_what_cannot_be_said_is_refused_by_the_name_of_its_field(request_: Request, field: str) -> None:
    with pytest.raises(Unexpressible) as refused:
        MESSAGES.write_request(request_)
    assert refused.value.field == field


@pytest.mark.parametrize("kind", ["bash_20250124", [], {}])
def test_a_tool_of_a_type_that_is_not_known_is_hosted(kind: Any) -> None:
    tool = {"type": kind, "name": "x"}
    assert MESSAGES.read_request(asked(user(), tools=[tool])).tools == (HostedTool(dialect="messages", tool=tool),)
