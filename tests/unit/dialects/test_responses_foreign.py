"""What other dialects say as a request of this one: what is kept, what is left out and listed, what is refused by name."""

from __future__ import annotations

from typing import Any

import pytest

from providers.dialects.base import Unexpressible
from providers.dialects.responses import Responses
from schemas.conversation import (
    CacheHint,
    File,
    FileId,
    Hosted,
    HostedTool,
    Image,
    OutputFormat,
    Part,
    Reasoning,
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

RESPONSES = Responses()
HI = Turn(role="user", parts=(Text(text="Hi"),), is_plain=True)


def chat(*turns: Turn, **fields: Any) -> Request:
    return Request(dialect="chat", model="m", turns=turns or (HI,), **fields)


def user(*parts: Part) -> Turn:
    return Turn(role="user", parts=parts)


def assistant(*parts: Part, **fields: Any) -> Turn:
    return Turn(role="assistant", parts=parts, **fields)


def test_a_chat_becomes_instructions_and_items() -> None:
    call = ToolUse(id="c", name="f", arguments='{"cut', kind="custom")
    result = ToolResult(call_id="c", parts=(Text(text="no"),), is_error=True)
    written = RESPONSES.write_request(
        chat(
            Turn(role="system", parts=(Text(text="S"),), is_plain=True),
            HI,
            assistant(Reasoning(texts=("T",)), Text(text="A"), call, is_plain=True),
            Turn(role="tool", parts=(result,)),
            Turn(role="system", parts=(Text(text="S2"),), is_plain=True),
            tools=(Tool(name="f", parameters={"type": "object"}),),
            tool_choice=ToolChoice(mode="required"),
            max_output_tokens=100,
            is_streamed=True,
            wants_usage=True,
        )
    )
    thought = written.body["input"][1]
    assert thought.pop("id").startswith("rs_")
    assert written.body == {
        "model": "m",
        "instructions": "S",
        "input": [
            {"type": "message", "role": "user", "content": "Hi"},
            {"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": "T"}]},
            {"type": "message", "role": "assistant", "content": "A"},
            {"type": "custom_tool_call", "call_id": "c", "name": "f", "input": '{"cut'},
            {"type": "custom_tool_call_output", "call_id": "c", "output": "no"},
            {"type": "message", "role": "system", "content": "S2"},
        ],
        "tools": [{"type": "function", "name": "f", "parameters": {"type": "object"}, "strict": False}],
        "tool_choice": "required",
        "max_output_tokens": 100,
        "stream": True,
    }
    assert written.dropped == ("turns.3.parts.0.is_error",)


def test_what_changes_no_answer_is_left_out_and_listed() -> None:
    request = Request(
        dialect="messages",
        model="m",
        turns=(
            user(Text(text="x", cache=CacheHint())),
            assistant(
                Reasoning(texts=("T",), signature="sig"),
                Reasoning(redacted="r"),
                Text(text="A", citations=({"type": "char_location"},)),
            ),
        ),
        tools=(Tool(name="f", cache=CacheHint(ttl="1h")),),
        thinking=Thinking(effort="high", is_adaptive=True),
        presence_penalty=0,
        others={"metadata": {"user_id": "u"}, "service_tier": "auto"},
    )
    written = RESPONSES.write_request(request)
    assert [item["type"] for item in written.body["input"]] == ["message", "reasoning", "message"]
    assert written.body["input"][2]["content"] == [{"type": "output_text", "text": "A", "annotations": []}]
    assert written.body["reasoning"] == {"effort": "high"}
    assert "metadata" not in written.body
    assert written.dropped == (
        "presence_penalty",
        "turns.0.parts.0.cache",
        "turns.1.parts.0.signature",
        "turns.1.parts.1.redacted",
        "turns.1.parts.2.citations",
        "thinking.is_adaptive",
        "tools.0.cache",
        "metadata",
        "service_tier",
    )


def test_thinking_that_is_off_is_an_effort_of_none() -> None:
    assert RESPONSES.write_request(chat(thinking=Thinking(is_off=True))).body["reasoning"] == {"effort": "none"}


def test_a_document_of_plain_text_is_sent_as_data() -> None:
    content = RESPONSES.write_request(chat(user(File(text="é", filename="a.txt")))).body["input"][0]["content"]
    assert content == [{"type": "input_file", "file_data": "data:text/plain;base64,w6k=", "filename": "a.txt"}]


def test_an_assistants_words_in_parts_have_an_id_and_a_status_that_strict_servers_want() -> None:
    written = [RESPONSES.write_request(chat(HI, assistant(Text(text="A")))).body["input"][1] for _ in range(2)]
    assert written[0] == written[1]
    assert written[0]["id"].startswith("msg_")
    assert written[0]["status"] == "completed"


CALL = ToolUse(id="c", name="f", arguments="{}")


@pytest.mark.parametrize(
    ("request_", "field"),
    [
        (chat(top_k=1), "top_k"),
        (chat(seed=0), "seed"),
        (chat(stop=("x",)), "stop"),
        (Request(dialect="messages", model="m", turns=(HI,), stop=("x",)), "stop_sequences"),
        (chat(presence_penalty=0.5), "presence_penalty"),
        (chat(frequency_penalty=-1), "frequency_penalty"),
        (chat(thinking=Thinking(budget_tokens=1024)), "thinking.budget_tokens"),
        (chat(thinking=Thinking(is_off=True, effort="high")), "thinking.effort"),
        (chat(output=OutputFormat(mode="json_schema", schema_={})), "output.name"),
        (chat(others={"logit_bias": {"1": 5}}), "logit_bias"),
        (chat(tools=(HostedTool(dialect="messages", tool={}),)), "tools.0"),
        (chat(Turn(role="user", parts=(Text(text="x"),), name="ann")), "turns.0.name"),
        (chat(user(Video(source=Url(url="u")))), "turns.0.parts.0"),
        (chat(user(Image(source=FileId(dialect="messages", id="f")))), "turns.0.parts.0.source"),
        (chat(user(File(text="x", context="c"))), "turns.0.parts.0.context"),
        (chat(user(File(text="x", has_citations=True))), "turns.0.parts.0.has_citations"),
        (chat(user(File())), "turns.0.parts.0"),
        (chat(HI, assistant(Image(source=Url(url="u")))), "turns.1.parts.0"),
        (chat(user(Text(text="x"), Hosted(dialect="chat", item={}))), "turns.0.parts.1"),
        (chat(HI, assistant(CALL)), "the last turn"),
        (chat(user(Reasoning(texts=("x",)))), "turns.0.parts.0"),
    ],
)
def test_what_cannot_be_said_is_refused_by_name(request_: Request, field: str) -> None:
    with pytest.raises(Unexpressible) as refused:
        RESPONSES.write_request(request_)
    assert refused.value.field == field
