"""Chat Completions: streams as clients get them, chunk by chunk, and as OpenAI's own client puts them together."""

from __future__ import annotations

import json
from typing import Any

import httpx2
import openai
import pytest

from providers.dialects.base import Unexpressible
from providers.dialects.chat import Chat
from providers.dialects.sse import EventSplitter
from schemas.conversation import (
    Delta,
    Image,
    PartBegan,
    PartEnded,
    PartGrew,
    Reasoning,
    Reply,
    ReplyBegan,
    ReplyBroke,
    ReplyEnded,
    Request,
    Text,
    TokenLogprob,
    TokenUsage,
    ToolUse,
    Url,
)
from tests.support.chat_conversations import deltas

CHAT = Chat()
REQUEST = Request(dialect="chat", model="m", turns=(), is_streamed=True)
BEGAN = ReplyBegan(id="chatcmpl-1", model="m", created=7)


def written(told: list[Delta], *, wants_usage: bool = False) -> list[Any]:
    """Return the data of the events that are written, as JSON where they are."""
    writer = CHAT.stream_writer(REQUEST.model_copy(update={"wants_usage": wants_usage}))
    events = EventSplitter().feed(b"".join(writer.write(delta) for delta in told))
    return [event.data if event.data == "[DONE]" else json.loads(event.data) for event in events]


def said(told: list[Delta]) -> list[dict[str, Any]]:
    """Return the deltas of the chunks that are written."""
    return [event["choices"][0]["delta"] for event in written(told) if event != "[DONE]"]


def grew(index: int, field: Any, more: str, **fields: Any) -> PartGrew:
    """Return more of a part."""
    return PartGrew(index=index, field=field, more=more, **fields)


REPLY = Reply(
    dialect="messages",
    id="msg_1",
    model="m",
    parts=(Reasoning(texts=("hm",)), Text(text="look"), ToolUse(id="a", name="f", arguments='{"x": 1}')),
    stop_reason="tool_calls",
    usage=TokenUsage(input_tokens=9, output_tokens=2),
)


def test_each_delta_is_written_when_it_comes() -> None:
    assert said(deltas(REPLY)) == [
        {"role": "assistant", "content": ""},
        {"reasoning_content": "hm"},
        {"content": "look"},
        {"tool_calls": [{"index": 0, "id": "a", "type": "function", "function": {"name": "f", "arguments": ""}}]},
        {"tool_calls": [{"index": 0, "function": {"arguments": '{"x"'}}]},
        {"tool_calls": [{"index": 0, "function": {"arguments": ": 1}"}}]},
        {},
    ]


def test_usage_is_told_in_a_chunk_of_its_own_and_only_if_asked_for() -> None:
    *chunks, last, done = written(deltas(REPLY), wants_usage=True)
    assert done == "[DONE]"
    assert last["choices"] == []
    assert last["usage"]["total_tokens"] == 11
    assert all(one["usage"] is None for one in chunks)
    assert chunks[-1]["choices"][0]["finish_reason"] == "tool_calls"
    assert all("usage" not in one for one in written(deltas(REPLY))[:-1])


def test_thoughts_in_pieces_are_set_apart_as_in_a_whole_answer() -> None:
    thoughts = (Reasoning(texts=("a", "b")), Reasoning(), Reasoning(summaries=("c", "", "d")))
    reply = REPLY.model_copy(update={"parts": thoughts})
    streamed = "".join(delta.get("reasoning_content", "") for delta in said(deltas(reply, 1)))
    whole = CHAT.write_reply(reply, REQUEST)["choices"][0]["message"]["reasoning_content"]
    assert streamed == whole == "a\n\nb\n\nc\n\nd"


def test_of_a_thought_that_is_told_twice_only_the_first_manner_is_written() -> None:
    thought = Reasoning(texts=("in full",), summaries=("short",))
    told = deltas(REPLY.model_copy(update={"parts": (thought,)}), 9)
    assert [delta["reasoning_content"] for delta in said(told) if "reasoning_content" in delta] == ["short"]


def test_what_proves_or_hides_a_thought_is_not_written() -> None:
    told: list[Delta] = [
        BEGAN,
        PartBegan(index=0, part=Reasoning()),
        grew(0, "signature", "s"),
        grew(0, "encrypted", "e"),
    ]
    assert len(said([*told, PartEnded(index=0, part=Reasoning(redacted="r"))])) == 1


def test_only_what_is_missing_is_written_at_a_parts_end() -> None:
    told: list[Delta] = [
        PartBegan(index=3, part=Text(text="a")),
        grew(3, "text", "b"),
        PartEnded(index=3, part=Text(text="abc")),
    ]
    assert said(told) == [{"content": "a"}, {"content": "b"}, {"content": "c"}]


def test_interleaved_calls_are_written_under_their_own_indices() -> None:
    uses = [ToolUse(id=id_, name="f", arguments="") for id_ in ("a", "b")]
    told: list[Delta] = [PartBegan(index=5 + n, part=use) for n, use in enumerate(uses)]
    told += [grew(6, "arguments", "{"), grew(5, "arguments", "["), grew(6, "arguments", "}")]
    pieces = [(entry["index"], entry["function"]["arguments"]) for one in said(told)[2:] for entry in one["tool_calls"]]
    assert pieces == [(1, "{"), (0, "["), (1, "}")]


def test_probabilities_are_written_beside_what_they_are_of() -> None:
    tokens = (TokenLogprob(token="x", logprob=-1),)
    told = [
        grew(n, field, "x", logprobs=tokens) for n, field in enumerate(("reasoning", "text", "arguments", "refusal"))
    ]
    sides = [
        {side for side, listed in event["choices"][0]["logprobs"].items() if listed}
        for event in written([*told])
        if event != "[DONE]"
    ]
    assert sides == [{"content"}, {"content"}, {"content"}, {"refusal"}]


def test_an_error_in_mid_stream_is_written_so_that_it_reads_as_one() -> None:
    broke = ReplyBroke(message="no room", code="busy", body={"any": 1})
    *_, event = written([BEGAN, grew(0, "text", "x"), broke])
    assert event == {"error": {"message": "no room", "type": "server_error", "param": None, "code": "busy"}}
    [again] = CHAT.stream_reader().feed(None, json.dumps(event))
    assert isinstance(again, ReplyBroke)
    assert (again.message, again.code) == ("no room", "busy")


def test_what_no_chunk_says_is_refused() -> None:
    writer = CHAT.stream_writer(REQUEST)
    for told in (PartBegan(index=0, part=Image(source=Url(url="u"))), ReplyEnded(stop_reason="pause")):
        with pytest.raises(Unexpressible):
            writer.write(told)


# -- OpenAI's own client ------------------------------------------------------------------------------------------------------


def client_of(body: bytes) -> openai.OpenAI:
    """Return OpenAI's client before a server that answers with `body`."""

    def answer(request: httpx2.Request) -> httpx2.Response:
        return httpx2.Response(200, headers={"content-type": "text/event-stream"}, content=body)

    http = httpx2.Client(transport=httpx2.MockTransport(answer))
    return openai.OpenAI(api_key="k", base_url="http://test.invalid/v1", http_client=http, max_retries=0)


def test_openais_client_puts_the_stream_together() -> None:
    writer = CHAT.stream_writer(REQUEST.model_copy(update={"wants_usage": True}))
    body = b"".join(writer.write(delta) for delta in deltas(REPLY))
    with client_of(body) as client, client.chat.completions.stream(model="m", messages=[]) as stream:
        completion = stream.get_final_completion()
    [choice] = completion.choices
    assert choice.finish_reason == "tool_calls"
    assert choice.message.content == "look"
    assert choice.message.tool_calls is not None
    assert choice.message.tool_calls[0].function.arguments == '{"x": 1}'
    assert completion.usage is not None
    assert completion.usage.prompt_tokens == 9


def test_openais_client_hears_of_an_error_in_mid_stream() -> None:
    writer = CHAT.stream_writer(REQUEST)
    body = b"".join(map(writer.write, [BEGAN, grew(0, "text", "x"), ReplyBroke(message="no room", code="busy")]))
    with client_of(body) as client:
        stream = client.chat.completions.create(model="m", messages=[], stream=True)
        with pytest.raises(openai.APIError, match="no room"):
            list(stream)
