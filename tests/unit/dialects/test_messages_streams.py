"""Streams of Anthropic Messages as the API sends them and as others might, and streams written for its clients."""

from __future__ import annotations

import json
from typing import Any

import pytest

from providers.dialects import Malformed, StreamReader, StreamWriter, Unexpressible
from providers.dialects.folding import fold
from providers.dialects.messages import Messages
from providers.dialects.sse import EventSplitter
from schemas.conversation import (
    Delta,
    Hosted,
    PartBegan,
    PartEnded,
    PartGrew,
    Reasoning,
    Refusal,
    Reply,
    ReplyBegan,
    ReplyBroke,
    ReplyEnded,
    Request,
    Text,
    TokenUsage,
    ToolUse,
)

MESSAGES = Messages()
ASKED = Request(dialect="messages", model="m", turns=(), is_streamed=True)
START = {
    "type": "message_start",
    "message": {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "claude-x",
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
        "usage": {
            "input_tokens": 5,
            "cache_read_input_tokens": 20,
            "cache_creation_input_tokens": 0,
            "output_tokens": 1,
        },
    },
}
STOP = {"type": "message_stop"}
BEGAN = ReplyBegan(id="i", model="m")


def begin(index: int, **block: Any) -> dict[str, Any]:
    """Return the event that begins a block."""
    return {"type": "content_block_start", "index": index, "content_block": block}


def grow(index: int, **delta: Any) -> dict[str, Any]:
    """Return the event that adds to a block."""
    return {"type": "content_block_delta", "index": index, "delta": delta}


def end(index: int) -> dict[str, Any]:
    """Return the event that ends a block."""
    return {"type": "content_block_stop", "index": index}


def last(reason: str, **usage: Any) -> dict[str, Any]:
    """Return the event that says why the message ends."""
    delta = {"stop_reason": reason, "stop_sequence": None}
    return {"type": "message_delta", "delta": delta, "usage": usage or {"output_tokens": 9}}


def fed(reader: StreamReader, *events: dict[str, Any]) -> list[Delta]:
    """Return what a reader says to some events."""
    return [delta for event in events for delta in reader.feed(event["type"], json.dumps(event))]


def read(*events: dict[str, Any]) -> list[Delta]:
    """Return what a whole stream says."""
    reader = MESSAGES.stream_reader()
    return [*fed(reader, *events), *reader.end()]


def written(writer: StreamWriter, *deltas: Delta) -> list[dict[str, Any]]:
    """Return the data of the events for some deltas; each has its type as its name."""
    events = EventSplitter().feed(b"".join(writer.write(delta) for delta in deltas))
    data = [json.loads(event.data) for event in events]
    assert [event.name for event in events] == [body["type"] for body in data]
    return data


def test_a_stream_is_read_as_it_comes() -> None:
    """Thinking with its signature, cited words, a call whose arguments stay as the model wrote them, and usage at both ends."""
    citation = {"type": "char_location", "cited_text": "x", "document_index": 0}
    deltas = read(
        START,
        begin(0, type="thinking", thinking="", signature=""),
        {"type": "ping"},
        grow(0, type="thinking_delta", thinking="Well"),
        grow(0, type="thinking_delta", thinking=" then."),
        grow(0, type="signature_delta", signature="c2ln"),
        end(0),
        begin(1, type="redacted_thinking", data="ZA=="),
        end(1),
        begin(2, type="text", text="", citations=[]),
        grow(2, type="text_delta", text="Hi"),
        grow(2, type="citations_delta", citation=citation),
        end(2),
        begin(3, type="tool_use", id="toolu_1", name="Bash", input={}),
        grow(3, type="input_json_delta", partial_json=""),
        grow(3, type="input_json_delta", partial_json='{"command": "l'),
        grow(3, type="input_json_delta", partial_json='s"}'),
        end(3),
        last("tool_use"),
        STOP,
    )
    assert deltas[:4] == [
        ReplyBegan(id="msg_1", model="claude-x", usage=TokenUsage(input_tokens=25, cached_tokens=20, output_tokens=1)),
        PartBegan(index=0, part=Reasoning()),
        PartGrew(index=0, field="reasoning", more="Well"),
        PartGrew(index=0, field="reasoning", more=" then."),
    ]
    reply = fold(deltas, "messages")
    assert reply.parts == (
        Reasoning(texts=("Well then.",), signature="c2ln"),
        Reasoning(redacted="ZA=="),
        Text(text="Hi", citations=(citation,)),
        ToolUse(id="toolu_1", name="Bash", arguments='{"command": "ls"}'),
    )
    assert reply.stop_reason == "tool_calls"
    assert reply.usage == TokenUsage(input_tokens=25, cached_tokens=20, output_tokens=9)


def test_growth_alone_makes_the_same_answer() -> None:
    """Who forwards growth and never looks at whole parts has lost nothing, also where a call has no arguments."""
    deltas = read(
        START,
        begin(0, type="tool_use", id="a", name="N", input={}),
        end(0),
        begin(1, type="tool_use", id="b", name="N", input={"x": 1}),
        end(1),
        last("tool_use"),
        STOP,
    )
    without_ends = [delta for delta in deltas if not isinstance(delta, PartEnded)]
    assert fold(without_ends, "messages") == fold(deltas, "messages")
    assert [part.arguments for part in fold(deltas, "messages").parts if isinstance(part, ToolUse)] == ["{}", '{"x":1}']


def test_calls_that_grow_at_the_same_time_are_read() -> None:
    deltas = read(
        START,
        begin(0, type="tool_use", id="a", name="N", input={}),
        begin(2, type="tool_use", id="b", name="N", input={}),
        grow(0, type="input_json_delta", partial_json="{"),
        grow(2, type="input_json_delta", partial_json='{"b":'),
        grow(0, type="input_json_delta", partial_json="}"),
        end(0),
        grow(2, type="input_json_delta", partial_json="1}"),
        end(2),
        last("tool_use"),
        STOP,
    )
    parts = fold(deltas, "messages").parts
    assert [part.arguments for part in parts if isinstance(part, ToolUse)] == ["{}", '{"b":1}']


def test_hosted_blocks_are_read_whole() -> None:
    deltas = read(
        START,
        begin(0, type="server_tool_use", id="s", name="web_search", input={}),
        grow(0, type="input_json_delta", partial_json='{"query":'),
        grow(0, type="input_json_delta", partial_json='"x"}'),
        end(0),
        begin(1, type="web_search_tool_result", tool_use_id="s", content=[]),
        end(1),
        begin(2, type="compaction", content=None),
        grow(2, type="compaction_delta", content="all of it"),
        end(2),
        last("compaction"),
        STOP,
    )
    assert fold(deltas, "messages").parts == tuple(
        Hosted(dialect="messages", item=item)
        for item in (
            {"type": "server_tool_use", "id": "s", "name": "web_search", "input": {"query": "x"}},
            {"type": "web_search_tool_result", "tool_use_id": "s", "content": []},
            {"type": "compaction", "content": "all of it"},
        )
    )


def test_what_is_not_known_is_passed_over() -> None:
    reader = MESSAGES.stream_reader()
    assert reader.feed(None, "") == []
    assert reader.feed("ping", '{"type":"ping"}') == []
    assert reader.feed("novelty", '{"type":"novelty"}') == []
    assert reader.feed(None, json.dumps(START)) != []
    fed(reader, begin(0, type="text", text="x"), grow(0, type="novelty_delta", x=1), last("end_turn"), STOP)
    assert reader.feed(None, "[DONE]") == []
    assert reader.end() == []


@pytest.mark.parametrize("count", range(5))
def test_a_cut_stream_is_malformed(count: int) -> None:
    reader = MESSAGES.stream_reader()
    fed(reader, *[START, begin(0, type="text", text=""), end(0), last("end_turn")][:count])
    with pytest.raises(Malformed, match="ended before"):
        reader.end()


@pytest.mark.parametrize(
    "events",
    [
        [begin(0, type="text", text="")],
        [START, START],
        [START, grow(0, type="text_delta", text="x")],
        [START, begin(0, type="text", text=""), begin(0, type="text", text="")],
        [START, begin(0, type="tool_use", id="x", input={})],
        [START, begin(0, type="server_tool_use", input={}), grow(0, type="input_json_delta", partial_json="{"), end(0)],
        [START, last("boredom")],
        [START, STOP],
        [{"type": "message_start"}],
    ],
)
def test_a_stream_that_contradicts_itself_is_malformed(events: list[dict[str, Any]]) -> None:
    with pytest.raises(Malformed):
        read(*events)


@pytest.mark.parametrize("data", ["{", "[]", "3", "[" * 200_000])
def test_an_event_that_is_no_object_is_malformed(data: str) -> None:
    with pytest.raises(Malformed):
        MESSAGES.stream_reader().feed("message_start", data)


def test_an_error_in_mid_stream_breaks_the_answer() -> None:
    body = {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}
    reader = MESSAGES.stream_reader()
    deltas = fed(reader, START, begin(0, type="text", text=""), body)
    assert deltas[-1] == ReplyBroke(message="Overloaded", code="overloaded_error", body=body)
    assert reader.end() == []
    assert written(MESSAGES.stream_writer(ASKED), deltas[-1]) == [body]


def test_each_delta_is_written_when_it_comes() -> None:
    """An answer of the kind that Chat Completions streams: nothing of the usage is known before the end."""
    writer = MESSAGES.stream_writer(ASKED)
    zeros = {"input_tokens": 0, "cache_creation_input_tokens": 0, "cache_read_input_tokens": 0, "output_tokens": 0}
    assert written(writer, BEGAN)[0]["message"]["usage"] == zeros
    steps: list[tuple[Delta, list[dict[str, Any]]]] = [
        (PartBegan(index=0, part=Reasoning()), []),
        (
            PartGrew(index=0, field="reasoning", more="Hm"),
            [begin(0, type="thinking", thinking="", signature=""), grow(0, type="thinking_delta", thinking="Hm")],
        ),
        (PartEnded(index=0, part=Reasoning(texts=("Hm",))), [end(0)]),
        (PartBegan(index=1, part=Text(text="")), [begin(1, type="text", text="")]),
        (PartGrew(index=1, field="text", more="Hi"), [grow(1, type="text_delta", text="Hi")]),
        (
            PartBegan(index=2, part=ToolUse(id="c", name="N", arguments="")),
            [begin(2, type="tool_use", id="c", name="N", input={})],
        ),
        (
            PartGrew(index=2, field="arguments", more='{"a": '),
            [grow(2, type="input_json_delta", partial_json='{"a": ')],
        ),
        (PartEnded(index=1, part=Text(text="Hi")), [end(1)]),
        (PartGrew(index=2, field="arguments", more="1}"), [grow(2, type="input_json_delta", partial_json="1}")]),
        (PartEnded(index=2, part=ToolUse(id="c", name="N", arguments='{"a": 1}')), [end(2)]),
        (
            ReplyEnded(stop_reason="tool_calls", usage=TokenUsage(input_tokens=7, output_tokens=3, cached_tokens=2)),
            [last("tool_use", **zeros | {"input_tokens": 5, "cache_read_input_tokens": 2, "output_tokens": 3}), STOP],
        ),
        (PartGrew(index=2, field="text", more="after the end"), []),
    ]
    for delta, events in steps:
        assert written(writer, delta) == events


def test_parts_that_nobody_ended_end_with_the_answer() -> None:
    deltas: list[Delta] = [
        BEGAN,
        PartBegan(index=0, part=Reasoning()),
        PartGrew(index=0, field="summary", more="a"),
        PartGrew(index=0, field="summary", more="b", nth=1),
        PartGrew(index=0, field="signature", more="c2"),
        PartGrew(index=0, field="signature", more="ln"),
        PartBegan(index=1, part=ToolUse(id="c", name="N", arguments="")),
        PartGrew(index=1, field="arguments", more="{}"),
        ReplyEnded(stop_reason="tool_calls"),
    ]
    reply = fold(read(*written(MESSAGES.stream_writer(ASKED), *deltas)), "messages")
    assert reply.parts == (
        Reasoning(texts=("a\n\nb",), signature="c2ln"),
        ToolUse(id="c", name="N", arguments="{}"),
    )


def test_a_thought_that_only_another_provider_can_read_makes_no_block() -> None:
    secret = Reasoning(encrypted="e", id="rs_1")
    events = written(
        MESSAGES.stream_writer(ASKED),
        BEGAN,
        PartBegan(index=0, part=Reasoning(id="rs_1")),
        PartEnded(index=0, part=secret),
        PartBegan(index=1, part=Text(text="Hi")),
        PartEnded(index=1, part=Text(text="Hi")),
    )
    assert events[1:] == [begin(0, type="text", text=""), grow(0, type="text_delta", text="Hi"), end(0)]


def test_a_refusal_is_text_and_a_stop_reason() -> None:
    events = written(
        MESSAGES.stream_writer(ASKED),
        BEGAN,
        PartBegan(index=0, part=Refusal(text="")),
        PartGrew(index=0, field="refusal", more="No."),
        PartEnded(index=0, part=Refusal(text="No.")),
        ReplyEnded(stop_reason="stop"),
    )
    assert grow(0, type="text_delta", text="No.") in events
    assert events[-2]["delta"]["stop_reason"] == "refusal"


CUT = ToolUse(id="c", name="N", arguments='{"command": "rm -rf /tm')


def test_a_call_that_was_cut_off_is_left_so_where_the_message_says_that_it_was() -> None:
    writer = MESSAGES.stream_writer(ASKED)
    assert end(0) not in written(writer, BEGAN, PartBegan(index=0, part=CUT), PartEnded(index=0, part=CUT))
    events = written(writer, ReplyEnded(stop_reason="length"))
    assert [event["type"] for event in events] == ["content_block_stop", "message_delta", "message_stop"]
    assert events[1]["delta"]["stop_reason"] == "max_tokens"


@pytest.mark.parametrize("arguments", ["", " \n"])
def test_a_call_without_arguments_is_ended_with_an_empty_object(arguments: str) -> None:
    call, bare = CUT.replaced(arguments=arguments), CUT.replaced(arguments="")
    for deltas in (
        [PartBegan(index=0, part=bare), PartEnded(index=0, part=call)],
        [
            PartBegan(index=0, part=bare),
            PartGrew(index=0, field="arguments", more=arguments),
            PartEnded(index=0, part=call),
        ],
    ):
        events = written(MESSAGES.stream_writer(ASKED), BEGAN, *deltas, ReplyEnded(stop_reason="tool_calls"))
        told = [event["delta"]["partial_json"] for event in events if event["type"] == "content_block_delta"]
        assert json.loads("".join(told) or "{}") == {}
        assert end(0) in events


@pytest.mark.parametrize("arguments", [CUT.arguments, "[]"])
def test_a_call_that_is_no_object_is_never_ended_as_one_to_be_run(arguments: str) -> None:
    call = CUT.replaced(arguments=arguments)
    writer = MESSAGES.stream_writer(ASKED)
    written(writer, BEGAN, PartBegan(index=0, part=call), PartEnded(index=0, part=call))
    with pytest.raises(Unexpressible, match=r"parts\.0\.arguments"):
        writer.write(ReplyEnded(stop_reason="tool_calls"))
    assert written(writer, ReplyBroke(message="odd call"))[0]["error"] == {"type": "api_error", "message": "odd call"}
    assert writer.write(ReplyEnded(stop_reason="tool_calls")) == b""


@pytest.mark.parametrize(
    "part",
    [
        ToolUse(id="c", name="N", arguments="x", kind="custom"),
        ToolUse(id="c", name="N", arguments="{}", namespace="s"),
        Hosted(dialect="responses", item={"type": "compaction"}),
    ],
)
def test_what_no_message_holds_is_refused(part: Any) -> None:
    with pytest.raises(Unexpressible):
        MESSAGES.stream_writer(ASKED).write(PartBegan(index=0, part=part))


def test_a_thought_of_which_nothing_is_known_makes_no_block() -> None:
    nothing = [PartBegan(index=0, part=Reasoning()), PartEnded(index=0, part=Reasoning())]
    events = written(MESSAGES.stream_writer(ASKED), BEGAN, *nothing, ReplyEnded(stop_reason="stop"))
    assert [event["type"] for event in events] == ["message_start", "message_delta", "message_stop"]
    reply = Reply(dialect="responses", id="r", model="m", parts=(Reasoning(), Text(text="x")), stop_reason="stop")
    assert MESSAGES.write_reply(reply, ASKED)["content"] == [{"type": "text", "text": "x"}]
