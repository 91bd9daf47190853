"""Chat Completions: what is written and read again is the same, request, answer and stream; OpenAI's own types take what is written."""

from __future__ import annotations

import json

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from openai.types.chat import ChatCompletion, ChatCompletionChunk

from providers.dialects.chat import Chat
from providers.dialects.folding import fold
from providers.dialects.sse import EventSplitter
from schemas.conversation import Delta, PartBegan, PartEnded, PartGrew, Reply, Request, ToolUse
from tests.support.chat_conversations import deltas, replies, requests

CHAT = Chat()
PLAIN = Request(dialect="chat", model="m", turns=(), is_streamed=True)
WITH_USAGE = PLAIN.model_copy(update={"wants_usage": True})
thorough = settings(derandomize=True, max_examples=30, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def read_stream(body: bytes) -> list[Delta]:
    """Return what a stream says."""
    reader = CHAT.stream_reader()
    read = [delta for event in EventSplitter().feed(body) for delta in reader.feed(event.name, event.data)]
    return [*read, *reader.end()]


def write_stream(told: list[Delta], request: Request = WITH_USAGE) -> bytes:
    """Return a whole stream."""
    writer = CHAT.stream_writer(request)
    return b"".join(writer.write(delta) for delta in told)


def chunks(body: bytes) -> list[dict[str, object]]:
    """Return the chunks of a stream, its end left out."""
    events = EventSplitter().feed(body)
    return [json.loads(event.data) for event in events if event.data != "[DONE]"]


@given(requests(), st.sampled_from(["max_tokens", "max_completion_tokens"]))
@thorough
def test_a_request_that_is_written_reads_the_same(request: Request, limit: str) -> None:
    written = Chat(limit).write_request(request)  # type: ignore[arg-type]
    assert CHAT.read_request(json.loads(json.dumps(written.body))) == request
    assert written.dropped == ()


@given(requests())
@thorough
def test_writing_changes_nothing_of_the_request(request: Request) -> None:
    """What is put back into a body is not put into the conversation that it was written from."""
    before = request.model_dump_json()
    CHAT.write_request(request)
    assert request.model_dump_json() == before


@given(replies())
@thorough
def test_an_answer_that_is_written_reads_the_same(reply: Reply) -> None:
    assert CHAT.read_reply(CHAT.write_reply(reply, PLAIN)) == reply


@given(replies(is_streamed=True), st.integers(1, 5), st.booleans())
@thorough
def test_a_stream_that_is_written_reads_the_same(reply: Reply, size: int, mixed: bool) -> None:
    told = deltas(reply, size, are_calls_mixed=mixed)
    assert fold(told, "chat") == reply  # or the example is none
    assert fold(read_stream(write_stream(told)), "chat") == reply


@given(replies(is_streamed=True))
@thorough
def test_a_stream_says_what_the_whole_answer_says(reply: Reply) -> None:
    whole = CHAT.read_reply(CHAT.write_reply(reply, PLAIN))
    assert fold(read_stream(write_stream(deltas(reply))), "chat") == whole


@given(replies(is_streamed=True))
@thorough
def test_parts_that_come_only_when_whole_are_written_as_well(reply: Reply) -> None:
    """Some backends tell a part in one piece, at its beginning or at its end."""
    late: list[Delta] = [delta for delta in deltas(reply) if not isinstance(delta, PartGrew)]
    only_ends: list[Delta] = [delta for delta in late if not isinstance(delta, PartBegan)]
    without = reply.model_copy(update={"logprobs": None})
    assert fold(read_stream(write_stream(late)), "chat") == without
    assert fold(read_stream(write_stream(only_ends)), "chat") == without


@given(replies(is_streamed=True), st.booleans())
@thorough
def test_every_part_that_is_read_begins_grows_and_ends(reply: Reply, mixed: bool) -> None:
    """A reader tells of each part in order, grows only what is open, and ends all, so that any writer can follow."""
    open_parts: set[int] = set()
    begun = -1
    for delta in read_stream(write_stream(deltas(reply, are_calls_mixed=mixed))):
        match delta:
            case PartBegan():
                begun += 1
                assert delta.index == begun
                open_parts.add(begun)
            case PartGrew():
                assert delta.index in open_parts
            case PartEnded():
                open_parts.remove(delta.index)
            case _:
                pass
    assert not open_parts


@given(replies())
@thorough
def test_the_sdk_takes_an_answer(reply: Reply) -> None:
    body = CHAT.write_reply(reply.model_copy(update={"others": {}}), PLAIN)
    completion = ChatCompletion.model_validate(body, strict=True)
    assert completion.model_dump(exclude_unset=True, mode="json") == json.loads(json.dumps(body))


@given(replies(is_streamed=True), st.booleans())
@thorough
def test_the_sdk_takes_each_chunk(reply: Reply, mixed: bool) -> None:
    """It has no type for custom calls in a stream, so these are left out."""
    parts = tuple(part for part in reply.parts if not isinstance(part, ToolUse) or part.kind == "function")
    said = reply.model_copy(update={"parts": parts, "logprobs": reply.logprobs if parts else None})
    for chunk in chunks(write_stream(deltas(said, are_calls_mixed=mixed))):
        ChatCompletionChunk.model_validate(chunk, strict=True)
