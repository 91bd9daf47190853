"""Requests as Codex, Pi, Copilot and the OpenAI SDK send them, and what is refused by the name of its field."""

from __future__ import annotations

from typing import Any

import pytest

from providers.dialects.base import Problem, Unexpressible
from providers.dialects.responses import Responses
from schemas.conversation import (
    Data,
    File,
    Hosted,
    HostedTool,
    Image,
    Reasoning,
    Refusal,
    Text,
    Thinking,
    Tool,
    ToolChoice,
    ToolResult,
    ToolUse,
    Turn,
    Url,
)

RESPONSES = Responses()


def said(role: str, text: str) -> dict[str, Any]:
    kind = "output_text" if role == "assistant" else "input_text"
    return {"type": "message", "role": role, "content": [{"type": kind, "text": text}]}


CODEX: dict[str, Any] = {
    "model": "m",
    "input": [
        said("developer", "You are Codex."),
        said("user", "<environment_context/>") | {"internal_chat_message_metadata_passthrough": {"turn_id": "t1"}},
        said("user", "Create hello.txt"),
        {"type": "reasoning", "id": "rs_1", "summary": [], "content": None, "encrypted_content": "gAAA"},
        said("assistant", "I will.") | {"id": "msg_1", "phase": "commentary"},
        {"type": "function_call", "id": "fc_1", "name": "exec_command", "arguments": '{"cmd": "ls"}', "call_id": "c1"},
        {
            "type": "function_call",
            "name": "gymbus_echo",
            "namespace": "mcp__gymbus",
            "arguments": '{"text": "x"}',
            "call_id": "c2",
        },
        {
            "type": "custom_tool_call",
            "status": "completed",
            "call_id": "c3",
            "name": "apply_patch",
            "input": "*** Begin",
        },
        {"type": "function_call_output", "call_id": "c2", "output": [{"type": "input_text", "text": "echo:x"}]},
        {"type": "function_call_output", "call_id": "c1", "output": ""},
        {"type": "custom_tool_call_output", "call_id": "c3", "output": "Done"},
    ],
    "tools": [
        {
            "type": "function",
            "name": "exec_command",
            "description": "Runs a command.",
            "strict": False,
            "parameters": {"type": "object", "properties": {"cmd": {"type": "string"}}},
        },
        {
            "type": "namespace",
            "name": "mcp__gymbus",
            "description": "Tools of gymbus.",
            "tools": [{"type": "function", "name": "gymbus_echo", "strict": False, "parameters": {"type": "object"}}],
        },
        {
            "type": "custom",
            "name": "apply_patch",
            "format": {"type": "grammar", "syntax": "lark", "definition": "s: X"},
        },
        {"type": "web_search", "external_web_access": False},
    ],
    "tool_choice": "auto",
    "parallel_tool_calls": True,
    "reasoning": {"effort": "medium", "summary": "auto"},
    "store": False,
    "stream": True,
    "include": ["reasoning.encrypted_content"],
    "prompt_cache_key": "thread-1",
    "client_metadata": {"x": "y"},
    "text": {"verbosity": "low"},
}


def test_codex_is_understood() -> None:
    request = RESPONSES.read_request(CODEX)
    assert [turn.role for turn in request.turns] == ["developer", "user", "user", "assistant", "tool"]
    assert request.turns[3].parts == (
        Reasoning(encrypted="gAAA", id="rs_1"),
        Text(text="I will."),
        ToolUse(id="c1", name="exec_command", arguments='{"cmd": "ls"}', item_id="fc_1"),
        ToolUse(id="c2", name="gymbus_echo", arguments='{"text": "x"}', namespace="mcp__gymbus"),
        ToolUse(id="c3", name="apply_patch", arguments="*** Begin", kind="custom"),
    )
    assert request.turns[4].parts == (
        ToolResult(call_id="c2", parts=(Text(text="echo:x"),), is_plain=False),
        ToolResult(call_id="c1", parts=(Text(text=""),)),
        ToolResult(call_id="c3", parts=(Text(text="Done"),), kind="custom"),
    )
    assert [(tool.name, tool.namespace) for tool in request.tools or () if isinstance(tool, Tool)] == [
        ("exec_command", None),
        ("gymbus_echo", "mcp__gymbus"),
        ("apply_patch", None),
    ]
    assert request.tools is not None
    assert request.tools[3] == HostedTool(
        dialect="responses", tool={"type": "web_search", "external_web_access": False}
    )
    assert request.thinking == Thinking(effort="medium", summary="auto")
    assert (request.is_streamed, request.wants_usage, request.verbosity) == (True, True, "low")
    assert request.others == {
        "store": False,
        "include": ["reasoning.encrypted_content"],
        "prompt_cache_key": "thread-1",
        "client_metadata": {"x": "y"},
        "tools.namespaces": {"mcp__gymbus": "Tools of gymbus."},
    }


def test_codex_is_written_as_it_was_but_for_what_says_nothing() -> None:
    body = RESPONSES.write_request(RESPONSES.read_request(CODEX)).body
    want = CODEX | {"input": [dict(item) for item in CODEX["input"]]}
    del want["input"][1]["internal_chat_message_metadata_passthrough"]
    del want["input"][3]["content"]
    del want["input"][4]["id"]
    del want["input"][4]["phase"]
    want["input"][4]["content"] = [{"type": "output_text", "text": "I will.", "annotations": []}]
    del want["input"][7]["status"]
    assert body == want


def test_the_shortest_request_is_understood() -> None:
    request = RESPONSES.read_request({"model": "m", "instructions": "Be brief.", "input": "Hi"})
    assert request.turns == (
        Turn(role="system", parts=(Text(text="Be brief."),), is_plain=True),
        Turn(role="user", parts=(Text(text="Hi"),), is_plain=True),
    )
    assert RESPONSES.write_request(request).body == {
        "model": "m",
        "instructions": "Be brief.",
        "input": [{"type": "message", "role": "user", "content": "Hi"}],
    }


def test_easy_messages_are_understood() -> None:
    items = [
        {"role": "system", "content": "S"},
        {"role": "user", "content": "U"},
        {"role": "assistant", "content": "A"},
        {"role": "assistant", "content": [{"type": "output_text", "text": "B"}, {"type": "refusal", "refusal": "C"}]},
        {"role": "user", "content": [{"type": "input_text", "text": "V"}]},
    ]
    assert RESPONSES.read_request({"model": "m", "input": items}).turns == (
        Turn(role="system", parts=(Text(text="S"),), is_plain=True),
        Turn(role="user", parts=(Text(text="U"),), is_plain=True),
        Turn(role="assistant", parts=(Text(text="A"), Text(text="B"), Refusal(text="C"))),
        Turn(role="user", parts=(Text(text="V"),)),
    )


def test_what_an_assistant_says_is_one_turn_thoughts_before_words_before_calls() -> None:
    items = [
        {"type": "function_call", "call_id": "c1", "name": "f", "arguments": "{}"},
        {"role": "assistant", "content": "A"},
        {"type": "reasoning", "summary": [{"type": "summary_text", "text": "T"}]},
        {"type": "function_call_output", "call_id": "c1", "output": "1"},
    ]
    turn = RESPONSES.read_request({"model": "m", "input": items}).turns[0]
    assert turn == Turn(
        role="assistant",
        parts=(Reasoning(summaries=("T",)), Text(text="A"), ToolUse(id="c1", name="f", arguments="{}")),
        is_plain=True,
    )


def test_pictures_and_documents_are_understood() -> None:
    content = [
        {"type": "input_image", "image_url": "data:image/png;base64,QUJD", "detail": "high"},
        {"type": "input_image", "image_url": "https://a.example/b.png"},
        {"type": "input_file", "file_data": "QUJD", "filename": "a.pdf"},
        {"type": "input_file", "file_url": "https://a.example/b.pdf"},
    ]
    turn = RESPONSES.read_request({"model": "m", "input": [{"role": "user", "content": content}]}).turns[0]
    assert turn.parts == (
        Image(source=Data(media_type="image/png", base64="QUJD"), detail="high"),
        Image(source=Url(url="https://a.example/b.png")),
        File(source=Data(media_type=None, base64="QUJD"), filename="a.pdf"),
        File(source=Url(url="https://a.example/b.pdf")),
    )


@pytest.mark.parametrize(
    ("item", "role"),
    [
        ({"type": "web_search_call", "id": "ws_1", "status": "completed"}, "assistant"),
        ({"type": "local_shell_call_output", "id": "c", "output": "x"}, "tool"),
        ({"type": "additional_tools", "role": "developer", "tools": []}, "developer"),
        ({"type": "compaction", "encrypted_content": "x"}, "assistant"),
        ({"type": "mcp_approval_response", "approval_request_id": "a", "approve": True}, "user"),
        ({"id": "msg_1"}, "assistant"),
        ({"role": "user", "content": [{"type": "input_video", "video_url": "u"}]}, "user"),
        ({"type": "function_call_output", "call_id": "c", "output": [{"type": "computer_screenshot"}]}, "tool"),
    ],
)
def test_an_item_of_another_type_is_kept_whole(item: dict[str, Any], role: str) -> None:
    request = RESPONSES.read_request({"model": "m", "input": [item]})
    assert request.turns == (Turn(role=role, parts=(Hosted(dialect="responses", item=item),)),)  # type: ignore[arg-type]
    assert RESPONSES.write_request(request).body["input"] == [item]


def test_what_is_not_known_is_kept_by_its_path() -> None:
    body = {
        "model": "m",
        "input": [{"role": "user", "content": [{"type": "input_text", "text": "x", "odd": 1}], "id": "msg_1"}],
        "tools": [{"type": "function", "name": "f", "defer_loading": True}],
        "text": {"format": {"type": "grammar", "definition": "x"}, "odd": 2},
        "reasoning": {"effort": "extreme"},
        "tool_choice": {"type": "allowed_tools", "mode": "auto", "tools": []},
        "background": True,
        "conversation": "conv_1",
        "prompt": {"id": "pmpt_1"},
        "top_k": 5,
        "truncation": None,
    }
    assert RESPONSES.read_request(body).others == {
        "input.0.content.0.odd": 1,
        "tools.0.defer_loading": True,
        "text.format": {"type": "grammar", "definition": "x"},
        "text.odd": 2,
        "reasoning.effort": "extreme",
        "tool_choice": {"type": "allowed_tools", "mode": "auto", "tools": []},
        "background": True,
        "conversation": "conv_1",
        "prompt": {"id": "pmpt_1"},
        "top_k": 5,
    }


def test_log_probabilities_are_asked_for_by_what_is_included() -> None:
    include = ["message.output_text.logprobs", "reasoning.encrypted_content"]
    request = RESPONSES.read_request({"model": "m", "input": "x", "include": include, "top_logprobs": 3})
    assert (request.logprobs, request.top_logprobs) == (True, 3)
    assert request.others == {"include": ["reasoning.encrypted_content"]}
    assert sorted(RESPONSES.write_request(request).body["include"]) == include


def test_absent_tools_stay_absent_and_empty_ones_empty() -> None:
    assert RESPONSES.read_request({"model": "m", "input": "x"}).tools is None
    request = RESPONSES.read_request({"model": "m", "input": "x", "tools": [], "tool_choice": "auto"})
    assert request.tools == ()
    written = RESPONSES.write_request(request)
    assert written.body["tools"] == []
    assert "tool_choice" not in written.body
    assert written.dropped == ("tool_choice",)


def test_a_named_choice_is_understood() -> None:
    tools = [{"type": "custom", "name": "p"}]
    request = RESPONSES.read_request(
        {"model": "m", "input": "x", "tools": tools, "tool_choice": {"type": "custom", "name": "p"}}
    )
    assert request.tool_choice == ToolChoice(mode="named", name="p", kind="custom")
    assert RESPONSES.write_request(request).body["tool_choice"] == {"type": "custom", "name": "p"}


IMAGE = {"type": "input_image", "detail": "auto"}
CALL = {"type": "function_call", "call_id": "c", "name": "f"}


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"model": None}, "model"),
        ({"input": 5}, "input"),
        ({"input": ["x"]}, "input.0"),
        ({"input": [{}]}, "input.0.type"),
        ({"input": [{"role": "tool", "content": "x"}]}, "input.0.role"),
        ({"input": [{"role": "user"}]}, "input.0.content"),
        ({"input": [{"role": "user", "content": [{"type": "input_text"}]}]}, "input.0.content.0.text"),
        ({"input": [{"role": "user", "content": [IMAGE]}]}, "input.0.content.0"),
        ({"input": [CALL]}, "input.0.arguments"),
        ({"input": [CALL | {"arguments": {}}]}, "input.0.arguments"),
        ({"input": [{"type": "function_call_output", "call_id": "c"}]}, "input.0.output"),
        ({"instructions": ["x"]}, "instructions"),
        ({"tools": {}}, "tools"),
        ({"tools": [{"name": "f"}]}, "tools.0.type"),
        ({"tools": [{"type": "function", "function": {"name": "f"}}]}, "tools.0.name"),
        ({"tools": [{"type": "namespace", "name": "n", "tools": [{"type": "function"}]}]}, "tools.0.tools.0.name"),
        ({"tools": [{"type": "namespace", "name": "n", "tools": [{"type": ["function"]}]}]}, "tools.0.tools.0.type"),
        ({"text": {"format": {"type": "json_schema", "schema": {}}}}, "text.format.name"),
        ({"text": {"format": {"type": "json_schema", "name": "a"}}}, "text.format.schema"),
        ({"temperature": "hot"}, "temperature"),
        ({"temperature": float("nan")}, "temperature"),
        ({"temperature": 10**400}, "temperature"),
        ({"stream": "yes"}, "stream"),
    ],
)
def test_a_wrong_field_is_named(change: dict[str, Any], field: str) -> None:
    with pytest.raises(Unexpressible) as refused:
        RESPONSES.read_request({"model": "m", "input": "x"} | change)
    assert refused.value.field == field


def test_a_field_deeper_down_that_is_not_known_is_not_written() -> None:
    request = RESPONSES.read_request(
        {"model": "m", "input": [{"role": "user", "content": [{"type": "input_text", "text": "x", "odd": 1}]}]}
    )
    with pytest.raises(Unexpressible) as refused:
        RESPONSES.write_request(request)
    assert refused.value.field == "input.0.content.0.odd"


def test_a_call_without_a_result_is_refused_unless_its_result_may_lie_elsewhere() -> None:
    call = {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"}
    request = RESPONSES.read_request({"model": "m", "input": [call]})
    with pytest.raises(Unexpressible):
        RESPONSES.write_request(request)
    output = {"type": "function_call_output", "call_id": "c", "output": "x"}
    goes_on = {"model": "m", "previous_response_id": "resp_1", "input": [output]}
    assert RESPONSES.write_request(RESPONSES.read_request(goes_on)).body == goes_on


@pytest.mark.parametrize(
    ("status", "type_"),
    [(400, "invalid_request_error"), (401, "authentication_error"), (429, "rate_limit_error"), (502, "server_error")],
)
def test_a_problem_has_the_shape_of_openai(status: int, type_: str) -> None:
    assert RESPONSES.write_problem(Problem(status, "c", "m", "input.0")) == {
        "error": {"message": "m", "type": type_, "param": "input.0", "code": "c"}
    }
