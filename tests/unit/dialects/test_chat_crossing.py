"""Chat Completions: requests that were asked in another dialect, what is left out of them, and what is refused by the field's name."""

from __future__ import annotations

from typing import Any

import pytest
from openai.types.chat import ChatCompletionMessageParam
from pydantic import TypeAdapter

from providers.dialects.base import Unexpressible
from providers.dialects.chat import Chat
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

CHAT = Chat()
PICTURE = Image(source=Url(url="https://a.example/i.png"))
USE = ToolUse(id="c1", name="bash", arguments='{"command": "ls"}')


def turn(role: Any, *parts: Part, **more: Any) -> Turn:
    """Return what `role` said."""
    return Turn(role=role, parts=parts, **more)


def asked(*turns: Turn, **more: Any) -> Request:
    """Return a request that came in Anthropic Messages."""
    fields: dict[str, Any] = {"dialect": "messages", "model": "m", "turns": turns or (turn("user", Text(text="hi")),)}
    return Request(**{**fields, **more})


def messages(*turns: Turn) -> list[dict[str, Any]]:
    """Return the messages that are written for turns."""
    written: list[dict[str, Any]] = CHAT.write_request(asked(*turns)).body["messages"]
    return written


# -- what is said otherwise ---------------------------------------------------------------------------------------------------


def test_one_text_becomes_a_bare_string_and_several_stay_apart() -> None:
    """Not every backend takes lists; where one text is all, there need be none."""
    hi, ho = Text(text="hi"), Text(text="ho")
    two = [{"type": "text", "text": "hi"}, {"type": "text", "text": "ho"}]
    told = ToolResult(call_id="c1", parts=(hi,), is_plain=False)
    assert messages(turn("system", hi), turn("user", hi, ho), turn("assistant", hi, USE), turn("tool", told)) == [
        {"role": "system", "content": "hi"},
        {"role": "user", "content": two},
        {
            "role": "assistant",
            "content": "hi",
            "tool_calls": [
                {"id": "c1", "type": "function", "function": {"name": "bash", "arguments": '{"command": "ls"}'}}
            ],
        },
        {"role": "tool", "tool_call_id": "c1", "content": "hi"},
    ]


def test_an_agents_session_is_written_as_the_sdk_takes_it() -> None:
    session = messages(
        turn("system", Text(text="a"), Text(text="b")),
        turn("user", Text(text="look"), PICTURE, Audio(base64="aGk=", format="wav")),
        turn(
            "assistant", Text(text="x"), Refusal(text="no"), USE, USE.model_copy(update={"id": "c2", "kind": "custom"})
        ),
        turn("tool", ToolResult(call_id="c1"), ToolResult(call_id="c2", parts=(Text(text="a"), Text(text="b")))),
        turn("assistant", USE),
        turn("tool", ToolResult(call_id="c1", is_plain=False)),
        turn("user", File(source=Data(media_type="application/pdf", base64="aGk="), filename="a.pdf")),
        turn("developer", Text(text="c")),
        turn("assistant", Refusal(text="no")),
    )
    taken = TypeAdapter(list[ChatCompletionMessageParam])
    taken.validate_python(session, strict=False)
    assert [message["role"] for message in session] == [
        *("system", "user", "assistant", "tool", "tool", "assistant", "tool", "user", "developer", "assistant")
    ]
    assert session[2]["content"] == "x"
    assert session[2]["refusal"] == "no"
    assert session[3]["content"] == session[6]["content"] == ""
    assert session[5]["content"] is None


def test_thoughts_are_joined_and_what_nobody_can_read_is_left_out() -> None:
    said = turn(
        "assistant",
        Reasoning(texts=("a", "b"), signature="s"),
        Reasoning(summaries=("c",), id="rs_1", encrypted="e"),
        Reasoning(redacted="r"),
        Text(text="yes", citations=({"type": "char_location"},)),
        USE.model_copy(update={"item_id": "fc_1"}),
    )
    written = CHAT.write_request(asked(said))
    assert written.body["messages"][0]["reasoning_content"] == "a\n\nb\n\nc"
    assert written.dropped == (
        "messages.0.reasoning.signature",
        "messages.0.reasoning.id",
        "messages.0.reasoning.encrypted",
        "messages.0.reasoning.redacted",
        "messages.0.content.0.citations",
        "messages.0.tool_calls.0.item_id",
    )


def test_a_thought_that_nobody_can_read_is_no_thought() -> None:
    [message] = messages(turn("assistant", Reasoning(encrypted="e"), Text(text="yes")))
    assert message == {"role": "assistant", "content": "yes"}


def test_cache_hints_and_failures_of_tools_are_left_out_by_path() -> None:
    hint = CacheHint()
    told = ToolResult(call_id="c1", parts=(Text(text="a", cache=hint),), is_error=True, cache=hint)
    written = CHAT.write_request(
        asked(
            turn("user", Text(text="a", cache=hint), PICTURE.model_copy(update={"cache": hint})),
            turn("assistant", USE.model_copy(update={"cache": hint})),
            turn("tool", told),
            tools=(Tool(name="f", cache=hint),),
        )
    )
    assert written.dropped == (
        "messages.0.content.0.cache_control",
        "messages.0.content.1.cache_control",
        "messages.1.tool_calls.0.cache_control",
        "messages.2.cache_control",
        "messages.2.is_error",
        "tools.0.cache_control",
    )
    assert "cache_control" not in str(written.body)


def test_thinking_is_told_in_the_words_there_are() -> None:
    def fields(thinking: Thinking) -> tuple[dict[str, Any], tuple[str, ...]]:
        written = CHAT.write_request(asked(thinking=thinking))
        return {name: written.body[name] for name in written.body if name not in ("model", "messages")}, written.dropped

    assert fields(Thinking(is_adaptive=True, effort="high")) == ({"reasoning_effort": "high"}, ("thinking.type",))
    assert fields(Thinking(budget_tokens=9)) == ({"thinking": {"type": "enabled", "budget_tokens": 9}}, ())
    assert fields(Thinking(is_off=True)) == ({"thinking": {"type": "disabled"}}, ())
    assert fields(Thinking(summary="auto")) == ({}, ("thinking.summary",))


def test_a_stream_for_another_dialect_asks_what_it_costs() -> None:
    assert CHAT.write_request(asked(is_streamed=True)).body["stream_options"] == {"include_usage": True}
    own = asked(is_streamed=True, dialect="chat")
    assert "stream_options" not in CHAT.write_request(own).body


def test_an_empty_list_of_tools_offers_none() -> None:
    written = CHAT.write_request(asked(tools=(), tool_choice=ToolChoice(mode="auto")))
    assert written.body.keys() == {"model", "messages"}
    assert written.dropped == ("tool_choice", "tools")


def test_a_schema_without_a_name_gets_one() -> None:
    output = OutputFormat(mode="json_schema", schema_={"type": "object"})
    assert CHAT.write_request(asked(output=output)).body["response_format"] == {
        "type": "json_schema",
        "json_schema": {"name": "output", "schema": {"type": "object"}},
    }


@pytest.mark.parametrize(
    "others",
    [
        {"metadata": {"user_id": "u"}, "service_tier": "auto", "user": "u", "store": False, "prompt_cache_key": "k"},
        {"client_metadata": {"a": "b"}, "include": ["reasoning.encrypted_content"], "truncation": "disabled"},
        {
            "background": False,
            "include": [],
            "context_management": {"edits": [{"type": "clear_thinking", "keep": "all"}]},
        },
    ],
)
def test_fields_that_change_no_answer_are_left_out_and_listed(others: dict[str, Any]) -> None:
    written = CHAT.write_request(asked(others=others))
    assert written.dropped == tuple(others)
    assert written.body.keys() == {"model", "messages"}


# -- what is refused ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("others", "field"),
    [
        ({"container": "c"}, "container"),
        ({"include": ["file_search_call.results"]}, "include"),
        ({"truncation": "auto"}, "truncation"),
        ({"background": True}, "background"),
        ({"previous_response_id": "r"}, "previous_response_id"),
        ({"context_management": {"edits": [{"type": "clear_tool_uses"}]}}, "context_management"),
        ({"context_management": [{"type": "compaction"}]}, "context_management"),
        ({"messages.0.odd": 1}, "messages.0.odd"),
    ],
)
def test_fields_of_another_dialect_are_refused_by_name(others: dict[str, Any], field: str) -> None:
    with pytest.raises(Unexpressible) as refused:
        CHAT.write_request(asked(others=others))
    assert refused.value.field == field


def of_tool(*parts: Any) -> Turn:
    """Return a tool's result."""
    return turn("tool", ToolResult(call_id="c1", parts=parts, is_plain=False))


HI = turn("user", Text(text="hi"))


@pytest.mark.parametrize(
    ("turns", "field"),
    [
        ((of_tool(Text(text="a"), PICTURE),), "messages.0.content.1"),
        ((of_tool(Audio(base64="", format="wav")),), "messages.0.content.0"),
        ((of_tool(Video(source=Url(url="u"))),), "messages.0.content.0"),
        ((of_tool(Text(text="a")), of_tool(File(text="a"))), "messages.1.content.0"),
        ((turn("system", PICTURE),), "messages.0.content.0"),
        ((HI, turn("assistant", Text(text="a"), PICTURE)), "messages.1.content.1"),
        ((turn("user", Refusal(text="a")),), "messages.0.content.0"),
        ((turn("user", USE),), "messages.0.content.0"),
        ((turn("tool", Text(text="a")),), "messages.0"),
        ((turn("user", Image(source=FileId(dialect="responses", id="f"))),), "messages.0.content.0.image_url"),
        ((turn("user", File(source=FileId(dialect="messages", id="f"))),), "messages.0.content.0.file"),
        ((turn("user", File(text="words")),), "messages.0.content.0.file"),
        ((turn("user", File(source=Url(url="u"), context="c")),), "messages.0.content.0.file"),
        ((turn("user", File()),), "messages.0.content.0.file"),
        ((turn("assistant", Hosted(dialect="messages", item={"type": "server_tool_use"})),), "messages.0.content.0"),
        ((turn("assistant", Text(text="a"), Hosted(dialect="chat", item={})),), "messages.0.content.1"),
        ((turn("assistant", USE.model_copy(update={"namespace": "n"})),), "messages.0.tool_calls.0.namespace"),
    ],
)
def test_parts_that_no_message_holds_are_refused_by_their_place(turns: tuple[Turn, ...], field: str) -> None:
    with pytest.raises(Unexpressible) as refused:
        CHAT.write_request(asked(*turns))
    assert refused.value.field == field


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"tools": (HostedTool(dialect="messages", tool={"type": "web_search_20250305"}),)}, "tools.0"),
        ({"tools": (Tool(name="a"), Tool(name="b", namespace="n"))}, "tools.1.namespace"),
        ({"tools": (Tool(name="a"),), "tool_choice": ToolChoice(mode="named")}, "tool_choice"),
    ],
)
def test_tools_that_cannot_be_offered_are_refused(fields: dict[str, Any], field: str) -> None:
    with pytest.raises(Unexpressible) as refused:
        CHAT.write_request(asked(**fields))
    assert refused.value.field == field
