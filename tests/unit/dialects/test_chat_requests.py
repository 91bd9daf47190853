"""Chat Completions: requests as real clients send them, what is unknown in them, and what is refused by the field's name."""

from __future__ import annotations

import copy

import pytest

from providers.dialects.pairs import check_pairs
from schemas.conversation import (
    Audio,
    CacheHint,
    Data,
    File,
    FileId,
    Hosted,
    Image,
    Reasoning,
    Refusal,
    Text,
    Tool,
    ToolChoice,
    ToolResult,
    ToolUse,
    Turn,
    Url,
    Video,
)
from tests.support.chat_bodies import CHAT, FUNCTION, assistant, call, read, result, text, user

# -- as real clients send them ------------------------------------------------------------------------------------------------

# One request of each manner: what a coding agent built on the AI SDK sends (streamed, arguments written again, thoughts sent
# back), and what one built on litellm sends (whole, everything of the last answer echoed).
AGENT = {
    "model": "m",
    "max_tokens": 8192,
    "messages": [
        {"role": "system", "content": "You are an agent."},
        {"role": "user", "content": [{"type": "text", "text": "list"}]},
        {
            "role": "assistant",
            "content": "",
            "reasoning_content": "I look.",
            "tool_calls": [
                {"id": "c1", "type": "function", "function": {"name": "bash", "arguments": '{"command":"ls"}'}}
            ],
        },
        {"role": "tool", "tool_call_id": "c1", "content": "a.txt"},
    ],
    "tools": [FUNCTION],
    "tool_choice": "auto",
    "stream": True,
    "stream_options": {"include_usage": True},
}
ECHOING = {
    "model": "m",
    "messages": [
        {"role": "system", "content": "You are an agent."},
        {"role": "user", "content": "list"},
        {
            "content": None,
            "role": "assistant",
            "tool_calls": [
                {
                    "index": 0,
                    "function": {"arguments": '{"command": "ls"}', "name": "bash"},
                    "id": "c1",
                    "type": "function",
                }
            ],
            "function_call": None,
            "refusal": None,
            "annotations": [],
            "audio": None,
            "provider_specific_fields": {"refusal": None},
        },
        {"role": "tool", "tool_call_id": "c1", "name": "bash", "content": "a.txt"},
    ],
    "tools": [FUNCTION],
    "temperature": 0.0,
    "parallel_tool_calls": True,
}


def test_a_coding_agents_request_reads_whole() -> None:
    request = CHAT.read_request(AGENT)
    system, asked, said, told = request.turns
    assert system == Turn(role="system", parts=(Text(text="You are an agent."),), is_plain=True)
    assert asked == Turn(role="user", parts=(Text(text="list"),))
    use = ToolUse(id="c1", name="bash", arguments='{"command":"ls"}')
    assert said == Turn(role="assistant", parts=(Reasoning(texts=("I look.",)), use), is_plain=True)
    assert told == Turn(role="tool", parts=(ToolResult(call_id="c1", parts=(Text(text="a.txt"),)),))
    assert (request.is_streamed, request.wants_usage, request.max_output_tokens) == (True, True, 8192)
    assert request.tools == (
        Tool(name="bash", description="Run a command", parameters=FUNCTION["function"]["parameters"]),  # type: ignore[index]
    )
    assert request.tool_choice == ToolChoice(mode="auto")
    assert request.others == {}
    check_pairs(request)


def test_a_coding_agents_request_is_written_as_it_came() -> None:
    assert CHAT.write_request(CHAT.read_request(AGENT)).body == AGENT


def test_an_answer_that_is_echoed_with_all_its_empty_fields_says_only_what_it_says() -> None:
    request = CHAT.read_request(ECHOING)
    assert request.turns[2] == Turn(
        role="assistant", parts=(ToolUse(id="c1", name="bash", arguments='{"command": "ls"}'),)
    )
    assert request.others == {"messages.2.provider_specific_fields": {"refusal": None}}


def test_reading_leaves_the_body_as_it_was() -> None:
    before = copy.deepcopy(ECHOING)
    CHAT.write_request(CHAT.read_request(ECHOING))
    assert before == ECHOING


# -- content ------------------------------------------------------------------------------------------------------------------


def test_every_kind_of_content_is_read() -> None:
    request = read(
        user(
            [
                text("look"),
                {"type": "image_url", "image_url": {"url": "https://a.example/i.png", "detail": "low"}},
                {"type": "image_url", "image_url": {"url": "data:image/png;base64,aGk="}},
                {"type": "input_audio", "input_audio": {"data": "aGk=", "format": "wav"}},
                {"type": "video_url", "video_url": {"url": "data:video/mp4;base64,aGk="}},
                {"type": "file", "file": {"file_data": "data:application/pdf;base64,aGk=", "filename": "a.pdf"}},
                {"type": "file", "file": {"file_data": "aGk=", "filename": "a.pdf"}},
                {"type": "file", "file": {"file_id": "file-1"}},
                {"type": "audio_url", "audio_url": {"url": "https://a.example/s.wav"}},
            ]
        )
    )
    assert request.turns[0].parts == (
        Text(text="look"),
        Image(source=Url(url="https://a.example/i.png"), detail="low"),
        Image(source=Data(media_type="image/png", base64="aGk=")),
        Audio(base64="aGk=", format="wav"),
        Video(source=Data(media_type="video/mp4", base64="aGk=")),
        File(source=Data(media_type="application/pdf", base64="aGk="), filename="a.pdf"),
        File(source=Data(media_type=None, base64="aGk="), filename="a.pdf"),
        File(source=FileId(dialect="chat", id="file-1")),
        Hosted(dialect="chat", item={"type": "audio_url", "audio_url": {"url": "https://a.example/s.wav"}}),
    )


def test_data_urls_of_another_form_stay_urls() -> None:
    url = "data:text/plain;charset=utf-8;base64,aGk="
    request = read(user([{"type": "image_url", "image_url": {"url": url}}]))
    assert request.turns[0].parts == (Image(source=Url(url=url)),)


@pytest.mark.parametrize(("content", "is_plain"), [("", True), (None, False)])
def test_calls_without_words_have_no_text(content: str | None, is_plain: bool) -> None:
    said = read(user(), assistant(content, tool_calls=[call()]), result()).turns[1]
    assert [type(part) for part in said.parts] == [ToolUse]
    assert said.is_plain is is_plain


def test_absent_content_is_as_null() -> None:
    message = {"role": "assistant", "tool_calls": [call()]}
    assert read(user(), message, result()) == read(user(), assistant(None, tool_calls=[call()]), result())


@pytest.mark.parametrize(
    "fields",
    [
        {"reasoning_content": "hm"},
        {"reasoning": "hm"},
        {"reasoning_content": "hm", "reasoning": "hm"},
        {"reasoning_content": "", "reasoning": "hm"},
    ],
)
def test_thoughts_are_read_under_both_names_and_written_under_one(fields: dict[str, str]) -> None:
    request = read(user(), assistant("yes", **fields))
    assert request.turns[1].parts == (Reasoning(texts=("hm",)), Text(text="yes"))
    assert CHAT.write_request(request).body["messages"][1] == assistant("yes", reasoning_content="hm")
    assert request.others == {}


def test_a_second_thought_under_the_other_name_is_kept() -> None:
    request = read(user(), assistant("yes", reasoning_content="hm", reasoning="no"))
    assert request.others == {"messages.1.reasoning": "no"}


def test_thinking_that_is_written_into_the_words_stays_words() -> None:
    said = "<think>hm</think>yes"
    assert read(user(), assistant(said)).turns[1].parts == (Text(text=said),)


def test_a_refusal_is_told_from_words() -> None:
    request = read(
        user(), assistant(None, refusal="No."), user(), assistant([{"type": "refusal", "refusal": "No."}, text("x")])
    )
    assert request.turns[1].parts == (Refusal(text="No."),)
    assert request.turns[3].parts == (Refusal(text="No."), Text(text="x"))
    assert CHAT.write_request(request).body["messages"][1] == assistant(None, refusal="No.")


def test_system_and_developer_messages_stand_where_they_are() -> None:
    request = read(
        {"role": "developer", "content": "a"}, user(), {"role": "system", "content": [text("b")]}, user(name="ann")
    )
    assert [turn.role for turn in request.turns] == ["developer", "user", "system", "user"]
    assert request.turns[3].name == "ann"


def test_cache_hints_are_read_where_clients_put_them() -> None:
    hint = {"type": "ephemeral"}
    request = read(
        {"role": "system", "content": "a", "cache_control": hint},
        user([text("b", cache_control={**hint, "ttl": "1h"}), text("c", cache_control={"type": "odd"})]),
        assistant(None, tool_calls=[{**call(), "cache_control": hint}]),
        result(cache_control=hint),
        tools=[{**FUNCTION, "cache_control": hint}],
    )
    system, asked, said, told = request.turns
    assert system.parts == (Text(text="a", cache=CacheHint()),)
    assert asked.parts == (Text(text="b", cache=CacheHint(ttl="1h")), Text(text="c"))
    assert said.parts[0].cache == told.parts[0].cache == CacheHint()  # type: ignore[union-attr]
    assert request.tools is not None
    assert request.tools[0].cache == CacheHint()  # type: ignore[union-attr]
    assert request.others == {"messages.1.content.1.cache_control": {"type": "odd"}}


def test_annotations_that_are_echoed_are_their_texts() -> None:
    annotation = {"type": "url_citation", "url_citation": {"url": "https://a.example"}}
    request = read(user(), assistant("yes", annotations=[annotation]))
    assert request.turns[1].parts == (Text(text="yes", citations=(annotation,)),)
    strange = read(user(), assistant("yes", annotations=[{"type": "odd"}]))
    assert strange.others == {"messages.1.annotations": [{"type": "odd"}]}


# -- turns --------------------------------------------------------------------------------------------------------------------


def test_results_of_parallel_calls_are_one_turn() -> None:
    request = read(user(), assistant(None, tool_calls=[call("a"), call("b")]), result("a"), result("b", ""), user())
    assert [turn.role for turn in request.turns] == ["user", "assistant", "tool", "user"]
    assert request.turns[2].parts == (
        ToolResult(call_id="a", parts=(Text(text="a.txt"),)),
        ToolResult(call_id="b"),
    )


def test_an_assistants_messages_in_a_row_are_one_turn() -> None:
    first = assistant("I look.", reasoning_content="hm", tool_calls=[{**call("a"), "x": 1}])
    second = assistant(None, tool_calls=[{**call("b"), "x": 2}], y=3)
    request = read(user(), first, second, result("a"), result("b", z=4))
    assert [turn.role for turn in request.turns] == ["user", "assistant", "tool"]
    said = request.turns[1]
    assert [type(part) for part in said.parts] == [Reasoning, Text, ToolUse, ToolUse]
    assert said.is_plain
    assert request.others == {
        "messages.1.tool_calls.0.x": 1,
        "messages.1.tool_calls.1.x": 2,
        "messages.1.y": 3,
        "messages.3.z": 4,
    }
    check_pairs(request)


def test_assistants_of_different_names_are_different_turns() -> None:
    assert len(read(user(), assistant("a", name="ann"), assistant("b", name="bob")).turns) == 3


def test_a_custom_call_and_its_result_are_custom() -> None:
    custom = {"id": "c1", "type": "custom", "custom": {"name": "apply_patch", "input": "*** Begin"}}
    request = read(user(), assistant(None, tool_calls=[custom]), result())
    assert request.turns[1].parts == (ToolUse(id="c1", name="apply_patch", arguments="*** Begin", kind="custom"),)
    assert request.turns[2].parts == (ToolResult(call_id="c1", parts=(Text(text="a.txt"),), kind="custom"),)


@pytest.mark.parametrize("arguments", ["", '{"a":', "no json", '{"b":1, "a" : 2}'])
def test_arguments_are_never_repaired(arguments: str) -> None:
    request = read(user(), assistant(None, tool_calls=[call(arguments=arguments)]), result())
    written = CHAT.write_request(request).body["messages"][1]["tool_calls"][0]["function"]["arguments"]
    assert request.turns[1].parts[0].arguments == written == arguments  # type: ignore[union-attr]


def test_a_tools_name_in_its_result_is_kept_if_it_says_something_else() -> None:
    assert read(user(), assistant(None, tool_calls=[call()]), result(name="bash")).others == {}
    assert read(user(), assistant(None, tool_calls=[call()]), result(name="sh")).others == {"messages.2.name": "sh"}


def test_a_tools_result_may_hold_pictures_where_the_backend_takes_them() -> None:
    picture = {"type": "image_url", "image_url": {"url": "https://a.example/i.png"}}
    told = read(user(), assistant(None, tool_calls=[call()]), result(content=[picture])).turns[2].parts[0]
    assert told == ToolResult(call_id="c1", parts=(Image(source=Url(url="https://a.example/i.png")),), is_plain=False)
