"""Chat Completions: whatever stands at any place of a body, it is read or refused, and what was read is written as it was meant."""

from __future__ import annotations

import contextlib
import copy
import json
from collections.abc import Iterator
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from providers.dialects.base import Malformed, Unexpressible
from providers.dialects.chat import Chat
from schemas.conversation import Reply, Request
from tests.support.chat_bodies import FUNCTION, assistant, body, call, result, text, user
from tests.support.chat_conversations import ANNOTATION

CHAT = Chat()
HINT = {"type": "ephemeral", "ttl": "5m"}
REQUEST = body(
    {"role": "system", "content": "s", "cache_control": HINT},
    user([text("a", cache_control=HINT), {"type": "image_url", "image_url": {"url": "u", "detail": "low"}}], name="n"),
    user([{"type": "file", "file": {"file_data": "aGk=", "filename": "f"}}, {"type": "odd", "odd": {}}]),
    assistant("b", reasoning="hm", refusal="no", annotations=[ANNOTATION], tool_calls=[call("a"), call("b")]),
    assistant([text("c")], reasoning_content="hm"),
    result("a", name="bash"),
    result("b", [text("d")]),
    tools=[FUNCTION, {"type": "custom", "custom": {"name": "p", "format": {"type": "grammar", "grammar": {"a": "b"}}}}],
    tool_choice={"type": "function", "function": {"name": "f"}},
    response_format={"type": "json_schema", "json_schema": {"name": "n", "schema": {}, "strict": True}},
    thinking={"type": "enabled", "budget_tokens": 5},
    reasoning_effort="low",
    stream=True,
    stream_options={"include_usage": True, "odd": 1},
    stop=["a"],
    max_tokens=5,
    temperature=0.5,
    n=1,
)
TOKEN = {"token": "a", "logprob": -1, "bytes": None, "top_logprobs": [{"token": "b", "logprob": -2}]}
USAGE = {
    "prompt_tokens": 5,
    "completion_tokens": 2,
    "total_tokens": 7,
    "prompt_tokens_details": {"cached_tokens": 1, "cache_write_tokens": 2},
    "completion_tokens_details": {"reasoning_tokens": 1},
}
REPLY = {
    "id": "i",
    "model": "m",
    "created": 3,
    "choices": [
        {
            "index": 0,
            "message": assistant("b", reasoning="hm", refusal="no", annotations=[ANNOTATION], tool_calls=[call("a")]),
            "finish_reason": "stop",
            "stop_reason": "END",
            "logprobs": {"content": [TOKEN], "refusal": [TOKEN]},
        }
    ],
    "usage": USAGE,
}
CHUNK = {
    "id": "i",
    "model": "m",
    "created": 3,
    "choices": [
        {
            "index": 0,
            "delta": {
                "reasoning": "h",
                "content": "a",
                "refusal": "n",
                "annotations": [ANNOTATION],
                "tool_calls": [{"index": 0, **call("a")}],
            },
            "finish_reason": "stop",
            "logprobs": {"content": [TOKEN]},
        }
    ],
    "usage": USAGE,
}
scalars = st.one_of(st.none(), st.booleans(), st.integers(), st.just(10**400), st.floats(), st.text(max_size=3))
odd = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner, max_size=2)
)
words = st.sampled_from(
    ["function", "custom", "text", "refusal", "tool", "assistant", "", "data:;base64,", "grammar", "a.b", "~1"]
)
anything = odd | words
thorough = settings(derandomize=True, max_examples=60, deadline=None)


def _paths(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    yield path
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for name, inner in items:
        yield from _paths(inner, (*path, name))


@st.composite
def changed(draw: st.DrawFn, whole: dict[str, Any]) -> dict[str, Any]:
    """Return a body in which something else stands in one or two places, or something more, or something is gone."""
    made: dict[str, Any] = copy.deepcopy(whole)
    for _ in range(draw(st.integers(1, 2))):
        *way, last = draw(st.sampled_from([path for path in _paths(made) if path]))
        node: Any = made
        for step in way:
            node = node[step]
        match draw(st.sampled_from(["instead", "more", "gone"])):
            case "instead":
                node[last] = draw(anything)
            case "more" if isinstance(node, dict):
                node[draw(st.text(max_size=3) | words)] = draw(anything)
            case _:
                del node[last]
    return made


def _is_same(one: Request | Reply, other: Request | Reply) -> bool:
    """Return whether two are the same, by their JSON: NaN is no equal of itself."""
    return json.dumps(one.model_dump(), sort_keys=True) == json.dumps(other.model_dump(), sort_keys=True)


@given(changed(REQUEST))
@thorough
def test_any_request_is_read_or_refused_by_a_field(asked: dict[str, Any]) -> None:
    with contextlib.suppress(Unexpressible):
        request = CHAT.read_request(asked)
        written = CHAT.write_request(request)
        again = CHAT.read_request(written.body)
        assert written.dropped or _is_same(CHAT.read_request(CHAT.write_request(again).body), again)


@given(changed(REPLY))
@thorough
def test_any_answer_is_read_or_malformed(answer: dict[str, Any]) -> None:
    with contextlib.suppress(Malformed):
        reply = CHAT.read_reply(answer)
        again = CHAT.read_reply(CHAT.write_reply(reply, CHAT.read_request(REQUEST)))
        assert _is_same(CHAT.read_reply(CHAT.write_reply(again, CHAT.read_request(REQUEST))), again)


@given(st.lists(changed(CHUNK), max_size=3))
@thorough
def test_any_chunk_is_read_or_malformed(events: list[dict[str, Any]]) -> None:
    reader = CHAT.stream_reader()
    with contextlib.suppress(Malformed):
        for event in events:
            reader.feed(None, json.dumps(event))
        reader.end()
