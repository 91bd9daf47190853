"""Chat Completions: streams as real backends send them, chunk by chunk, cut and broken, and as clients get them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from providers.dialects.base import Malformed
from providers.dialects.chat import Chat
from providers.dialects.folding import fold
from schemas.conversation import (
    Delta,
    PartBegan,
    PartEnded,
    PartGrew,
    Reasoning,
    Refusal,
    ReplyBegan,
    ReplyBroke,
    ReplyEnded,
    Text,
    TokenLogprob,
    TokenUsage,
    ToolUse,
)
from tests.support.chat_conversations import ANNOTATION

CHAT = Chat()
BEGAN = ReplyBegan(id="chatcmpl-1", model="m", created=7)
ROLE: dict[str, Any] = {"role": "assistant", "content": ""}


def chunk(delta: dict[str, Any] | None = None, finish: str | None = None, **more: Any) -> dict[str, Any]:
    """Return one chunk."""
    choice = {"index": 0, "delta": delta or {}, "finish_reason": finish, "logprobs": None, **more}
    head = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 7, "model": "m"}
    return {**head, "choices": [choice]}


def call(index: int, arguments: str | None = None, **more: Any) -> dict[str, Any]:
    """Return a chunk's delta that is about a call."""
    id_ = {"id": more.pop("id"), "type": "function"} if "id" in more else {}
    inner = more if arguments is None else {**more, "arguments": arguments}
    return {"tool_calls": [{"index": index, **id_, "function": inner}]}


def read(*events: Any) -> list[Delta]:
    """Return what a stream of chunks says, with its end."""
    reader = CHAT.stream_reader()
    told = [
        delta for event in events for delta in reader.feed(None, event if isinstance(event, str) else json.dumps(event))
    ]
    return [*told, *reader.feed(None, "[DONE]"), *reader.end()]


def parts(*events: Any) -> tuple[Any, ...]:
    """Return the parts of the answer that a stream of chunks makes."""
    return fold(read(*events), "chat").parts


# -- read ---------------------------------------------------------------------------------------------------------------------


def test_a_text_is_told_as_it_comes() -> None:
    reader = CHAT.stream_reader()
    feed = [
        reader.feed(None, json.dumps(one)) for one in (chunk(ROLE), chunk({"content": "h"}), chunk({"content": "i"}))
    ]
    assert feed == [
        [BEGAN],
        [PartBegan(index=0, part=Text(text="")), PartGrew(index=0, field="text", more="h")],
        [PartGrew(index=0, field="text", more="i")],
    ]
    assert reader.feed(None, json.dumps(chunk({}, "stop"))) == [PartEnded(index=0, part=Text(text="hi"))]
    usage = {"prompt_tokens": 9, "completion_tokens": 2, "total_tokens": 11}
    assert reader.feed(None, json.dumps({**chunk(), "choices": [], "usage": usage})) == []
    assert reader.feed(None, "[DONE]") == [
        ReplyEnded(stop_reason="stop", usage=TokenUsage(input_tokens=9, output_tokens=2))
    ]
    assert reader.end() == []


def test_parallel_calls_may_be_told_by_turns() -> None:
    """Each keeps its own arguments, and its end waits while it may go on."""
    told = read(
        chunk(ROLE),
        chunk(call(0, "", id="a", name="f")),
        chunk(call(0, '{"x":')),
        chunk(call(1, "", id="b", name="g")),
        chunk(call(1, '{"y":')),
        chunk(call(0, " 1}")),
        chunk(call(1, " 2}")),
        chunk({}, "tool_calls"),
    )
    assert [type(delta).__name__ + str(getattr(delta, "index", "")) for delta in told] == [
        *("ReplyBegan", "PartBegan0", "PartGrew0", "PartBegan1", "PartGrew1", "PartGrew0", "PartGrew1"),
        *("PartEnded0", "PartEnded1", "ReplyEnded"),
    ]
    reply = fold(told, "chat")
    assert reply.parts == (
        ToolUse(id="a", name="f", arguments='{"x": 1}'),
        ToolUse(id="b", name="g", arguments='{"y": 2}'),
    )
    assert reply.stop_reason == "tool_calls"


def test_a_call_that_is_whole_ends_when_the_next_begins() -> None:
    """So a dialect that tells one part after the other need not wait for the end."""
    told = read(
        chunk(call(0, '{"x": 1}', id="a", name="f")), chunk(call(1, "", id="b", name="g")), chunk({}, "tool_calls")
    )
    kinds = [type(delta).__name__ + str(getattr(delta, "index", "")) for delta in told]
    assert kinds.index("PartEnded0") < kinds.index("PartBegan1")


def test_several_calls_may_come_in_one_chunk_and_with_one_index() -> None:
    """Some backends give every call whole, some leave the index out or give it to all."""
    two = [{"id": id_, "type": "function", "function": {"name": "f", "arguments": "{}"}} for id_ in ("a", "b")]
    expected = tuple(ToolUse(id=id_, name="f", arguments="{}") for id_ in ("a", "b"))
    assert parts(chunk({"tool_calls": two}, "tool_calls")) == expected
    zero = [{"index": 0, **one} for one in two]
    assert parts(chunk({"tool_calls": zero[:1]}), chunk({"tool_calls": zero[1:]}), chunk({}, "stop")) == expected


def test_an_id_or_name_may_come_late_or_again() -> None:
    late = parts(chunk(call(0, "{", id="a")), chunk(call(0, "}", name="f")), chunk({}, "tool_calls"))
    again = parts(chunk(call(0, "{", id="a", name="f")), chunk(call(0, "}", id="a", name="f")), chunk({}, "tool_calls"))
    assert late == again == (ToolUse(id="a", name="f", arguments="{}"),)


def test_custom_calls_grow_in_their_own_words() -> None:
    begun = {"index": 0, "id": "a", "type": "custom", "custom": {"name": "p", "input": ""}}
    grown = {"index": 0, "custom": {"input": "*** Begin"}}
    told = parts(chunk({"tool_calls": [begun]}), chunk({"tool_calls": [grown]}), chunk({}, "tool_calls"))
    assert told == (ToolUse(id="a", name="p", arguments="*** Begin", kind="custom"),)


def test_thoughts_words_and_calls_are_parts_in_the_order_they_came() -> None:
    told = parts(
        chunk({"role": "assistant", "content": None, "reasoning_content": "h"}),
        chunk({"reasoning": "m", "reasoning_content": "m"}),
        chunk({"reasoning": "."}),
        chunk({"content": "I look."}),
        chunk(call(0, "{}", id="a", name="f")),
        chunk({"content": ""}, "tool_calls"),
    )
    assert told == (Reasoning(texts=("hm.",)), Text(text="I look."), ToolUse(id="a", name="f", arguments="{}"))


def test_a_refusal_and_annotations_are_read() -> None:
    assert parts(chunk({"refusal": "N"}), chunk({"refusal": "o."}), chunk({}, "stop")) == (Refusal(text="No."),)
    cited = parts(chunk({"content": "x"}), chunk({"annotations": [ANNOTATION, {"type": "odd"}]}), chunk({}, "stop"))
    assert cited == (Text(text="x", citations=(ANNOTATION,)),)


def test_probabilities_come_with_the_words_and_none_is_lost() -> None:
    def of(token: str) -> dict[str, Any]:
        return {"content": [{"token": token, "logprob": -1.0, "bytes": None, "top_logprobs": []}], "refusal": None}

    told = read(
        chunk(ROLE, logprobs={"content": []}),
        chunk({"content": "a"}, logprobs=of("a")),
        chunk({"content": ""}, logprobs=of("<x>")),
        chunk({"content": "b"}, logprobs=of("b")),
        chunk({"content": ""}, "stop", logprobs=of("<end>")),
    )
    grown = [[one.token for one in delta.logprobs] for delta in told if isinstance(delta, PartGrew)]
    assert grown == [["a"], ["<x>", "b"], ["<end>"]]
    assert fold(told, "chat").logprobs == tuple(
        TokenLogprob(token=one, logprob=-1) for one in ("a", "<x>", "b", "<end>")
    )


@pytest.mark.parametrize("where", ["own", "last", "every"])
def test_usage_is_read_wherever_it_comes(where: str) -> None:
    """OpenAI and vLLM tell it in a chunk of its own, DeepSeek in the last one, vLLM also in each, so far."""
    usage = {"prompt_tokens": 9, "completion_tokens": 1, "total_tokens": 10}
    so_far = {"usage": {**usage, "completion_tokens": 0}} if where == "every" else {"usage": None}
    events = [{**chunk({"content": "x"}), **so_far}, chunk({}, "stop")]
    if where == "own":
        events.append({**chunk(), "choices": [], "usage": usage})
    else:
        events[-1]["usage"] = usage
    assert fold(read(*events), "chat").usage == TokenUsage(input_tokens=9, output_tokens=1)


def test_a_stop_sequence_is_read() -> None:
    [*_, ended] = read(chunk({"content": "x"}), chunk({}, "stop", stop_reason="END"))
    assert ended == ReplyEnded(stop_reason="stop_sequence", stop_sequence="END")


def test_what_is_no_chunk_says_nothing() -> None:
    """A filter's verdict on the prompt, pings under names of their own, fields that nobody knows, a second end."""
    reader = CHAT.stream_reader()
    azure = {"id": "", "model": "", "created": 0, "object": "", "choices": [], "prompt_filter_results": []}
    assert reader.feed(None, json.dumps(azure)) == []
    assert reader.feed("ping", "still here") == []
    assert reader.feed("ping", '{"type": "ping"}') == []
    assert reader.feed(None, "") == []
    assert reader.feed(None, json.dumps({**chunk({"content": "x", "odd": 1}, odd=2), "odd": 3}))[0] == BEGAN
    assert len(reader.feed(None, json.dumps(chunk({}, "stop")))) == 1
    assert reader.feed(None, json.dumps(chunk({"content": ""}, "stop"))) == []
    assert len(reader.feed(None, "[DONE]")) == 1
    assert reader.feed(None, json.dumps(chunk({"content": "x"}))) == []


def test_a_stream_that_just_ends_after_its_finish_reason_is_whole() -> None:
    reader = CHAT.stream_reader()
    reader.feed(None, json.dumps(chunk({"content": "x"}, "length")))
    assert reader.end() == [ReplyEnded(stop_reason="length")]
    assert reader.end() == []


@pytest.mark.parametrize("is_done", [True, False])
@pytest.mark.parametrize(
    "events", [[], [chunk(ROLE)], [chunk({"content": "x"})], [chunk(call(0, "{}", id="a", name="f"))]]
)
def test_a_stream_without_a_finish_reason_was_cut(events: list[dict[str, Any]], is_done: bool) -> None:
    reader = CHAT.stream_reader()
    for event in events:
        reader.feed(None, json.dumps(event))
    with pytest.raises(Malformed, match="cut"):
        reader.feed(None, "[DONE]") if is_done else reader.end()


@pytest.mark.parametrize(
    ("event", "data", "message", "code"),
    [
        (None, '{"error": {"message": "no room", "type": "server_error", "code": 502}}', "no room", "502"),
        (None, '{"error": {"message": "no room", "type": "server_error", "code": null}}', "no room", "server_error"),
        (None, '{"object": "error", "message": "no room", "code": 400}', "no room", "400"),
        (None, json.dumps({**chunk({}, "error"), "error": {"message": "no room", "code": "busy"}}), "no room", "busy"),
        (None, '{"error": "no room"}', "no room", None),
        (None, '{"error": {"detail": 1, "at": 2}}', "the backend failed and told of detail, at", None),
        (None, '{"error": {"code": {"odd": 1}}}', "the backend failed and told of code", None),
        (None, '{"error": [1]}', "the backend failed and said no more", None),
        ("error", '{"message": "no room"}', "no room", None),
        ("error", "no room", "no room", None),
    ],
)
def test_an_error_in_mid_stream_is_told(event: str | None, data: str, message: str, code: str | None) -> None:
    reader = CHAT.stream_reader()
    reader.feed(None, json.dumps(chunk({"content": "x"})))
    [broke] = reader.feed(event, data)
    assert isinstance(broke, ReplyBroke)
    assert (broke.message, broke.code) == (message, code)
    assert reader.feed(None, "[DONE]") == reader.end() == []


@pytest.mark.parametrize(
    "events",
    [
        ["{no json"],
        ["[" * 100_000],
        ["[1]"],
        [{"choices": 5}],
        [{"choices": [5]}],
        [{**chunk({"content": "x"}), "id": None}],
        [{**chunk({"content": "x"}), "choices": [chunk()["choices"][0]] * 2}],
        [chunk({"content": "x"}, index=1)],
        [chunk({"content": 5})],
        [chunk({"function_call": {"name": "f"}})],
        [chunk({}, "abort")],
        [chunk({"content": "x"}, "stop"), chunk({"content": "y"})],
        [chunk(call(0, "{}", name="f")), chunk({}, "tool_calls")],
        [chunk(call(0, "{}", id="a", name="f")), chunk(call(0, "", name="g"))],
        [chunk(call(0, "{}", id="a", name="f")), chunk(call(1, "", id="b", name="f")), chunk(call(0, "{}"))],
        [chunk({"content": "x"}, logprobs={"content": [{"token": "x", "logprob": "?"}]})],
        [chunk({"content": "x"}, logprobs={"content": [{"token": "x", "logprob": -1e999}]})],
    ],
)
def test_what_is_no_stream_of_this_dialect_is_malformed(events: list[Any]) -> None:
    with pytest.raises(Malformed):
        read(*events)


@pytest.mark.parametrize(("is_usage_asked", "tail", "is_whole"), [
    (False, [], True),
    (True, [], False),
    (True, [{"id": "i", "model": "m", "choices": [], "usage": {"prompt_tokens": 1}}], True),
    (True, ["[DONE]"], True),
])  # fmt: skip
def test_a_stream_without_a_done_is_whole_if_it_says_all_that_it_was_asked(
    is_usage_asked: bool, tail: list[Any], is_whole: bool
) -> None:
    reader = CHAT.stream_reader(is_usage_asked=is_usage_asked)
    choice = {"index": 0, "delta": {"content": "x"}, "finish_reason": "stop"}
    for event in [{"id": "i", "model": "m", "choices": [choice]}, *tail]:
        reader.feed(None, event if isinstance(event, str) else json.dumps(event))
    if is_whole:
        reader.end()
    else:
        with pytest.raises(Malformed, match="it was cut"):
            reader.end()
