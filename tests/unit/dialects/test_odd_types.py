"""Whatever stands where something else should is refused by its field, or is an answer that is none."""

from __future__ import annotations

import contextlib
import copy
import json
from collections.abc import Iterator
from typing import Any, Final

import pytest

from providers.dialects import Malformed, Unexpressible
from providers.dialects.catalog import CLIENTS, DIALECTS
from schemas.conversation import DialectName
from tests.unit.dialects.test_chat_odd_bodies import CHUNK, REPLY
from tests.unit.dialects.test_chat_odd_bodies import REQUEST as CHAT_REQUEST

ODD: Final[tuple[Any, ...]] = (None, True, 5, -1, 1.5, 10**400, "x", [], [1], ["x"], [[]], [{}], {}, {"a": 1})
TOOL: Final = {"name": "look", "description": "Looks.", "parameters": {"type": "object"}}
REQUESTS: Final[dict[DialectName, dict[str, Any]]] = {
    "chat": CHAT_REQUEST,
    "messages": {
        "model": "m",
        "max_tokens": 5,
        "system": [{"type": "text", "text": "Be.", "cache_control": {"type": "ephemeral", "ttl": "5m"}}],
        "messages": [
            {
                "role": "user",
                "content": [
                    {"type": "text", "text": "hi", "citations": [{"type": "t"}]},
                    {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "aG"}},
                    {
                        "type": "document",
                        "source": {"type": "text", "media_type": "text/plain", "data": "aG"},
                        "citations": {"enabled": True},
                    },
                ],
            },
            {
                "role": "assistant",
                "content": [
                    {"type": "thinking", "thinking": "hm", "signature": "s"},
                    {"type": "tool_use", "id": "c0", "name": "look", "input": {"at": 1}},
                ],
            },
            {
                "role": "user",
                "content": [{"type": "tool_result", "tool_use_id": "c0", "content": [{"type": "text", "text": "so"}]}],
            },
        ],
        "tools": [{"name": "look", "type": "custom", "input_schema": {"type": "object"}, "strict": True}],
        "tool_choice": {"type": "tool", "name": "look", "disable_parallel_tool_use": True},
        "thinking": {"type": "enabled", "budget_tokens": 9, "display": "omitted"},
        "output_config": {"effort": "low", "format": {"type": "json_schema", "schema": {"type": "object"}}},
        "stop_sequences": ["a"],
        "context_management": {"edits": [{"type": "t", "keep": "all"}]},
        "stream": False,
        "top_k": 3,
    },
    "responses": {
        "model": "m",
        "instructions": "Be.",
        "input": [
            {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "hi"}]},
            {"type": "message", "role": "user", "content": [{"type": "input_image", "image_url": "data:;base64,aG"}]},
            {"type": "reasoning", "id": "r", "summary": [{"type": "summary_text", "text": "hm"}]},
            {"type": "function_call", "call_id": "c0", "name": "look", "arguments": "{}"},
            {"type": "function_call_output", "call_id": "c0", "output": [{"type": "input_text", "text": "so"}]},
        ],
        "tools": [
            {"type": "function", **TOOL, "strict": True},
            {"type": "custom", "name": "say", "format": {"type": "text"}},
            {"type": "namespace", "name": "n", "description": "d", "tools": [{"type": "function", **TOOL}]},
        ],
        "tool_choice": {"type": "function", "name": "look"},
        "text": {"format": {"type": "json_schema", "name": "n", "schema": {}}, "verbosity": "low"},
        "reasoning": {"effort": "low", "summary": "auto"},
        "include": ["message.output_text.logprobs"],
        "stream": True,
    },
    "gemini": {
        "model": "m",
        "stream": True,
        "systemInstruction": {"parts": [{"text": "Be."}]},
        "contents": [
            {"role": "user", "parts": [{"text": "hi"}, {"inlineData": {"mimeType": "image/png", "data": "aG"}}]},
            {"role": "model", "parts": [{"functionCall": {"id": "c", "name": "look", "args": {}}}]},
            {
                "role": "user",
                "parts": [{"functionResponse": {"id": "c", "name": "look", "response": {"output": "so"}}}],
            },
        ],
        "tools": [{"functionDeclarations": [{**TOOL, "behavior": "BLOCKING"}]}],
        "toolConfig": {"functionCallingConfig": {"mode": "ANY", "allowedFunctionNames": ["look"]}},
        "generationConfig": {
            "maxOutputTokens": 5,
            "topK": 2,
            "thinkingConfig": {"thinkingLevel": "low", "includeThoughts": True},
            "responseMimeType": "application/json",
            "responseSchema": {"type": "OBJECT", "properties": {"a": {"type": "STRING", "minLength": "1"}}},
        },
        "safetySettings": [{"category": "c", "threshold": "OFF"}],
    },
}
LOGPROB: Final = {"token": "a", "logprob": -1.0, "top_logprobs": [{"token": "a", "logprob": -1.0}]}
WORDS: Final = {"type": "output_text", "text": "a", "annotations": [{"type": "url_citation"}], "logprobs": [LOGPROB]}
RESPONSE: Final = {
    "id": "i",
    "object": "response",
    "model": "m",
    "created_at": 1,
    "status": "completed",
    "incomplete_details": None,
    "output": [
        {"type": "reasoning", "id": "r", "summary": [{"type": "summary_text", "text": "hm"}]},
        {"type": "message", "role": "assistant", "content": [WORDS, {"type": "refusal", "refusal": "no"}]},
        {"type": "function_call", "call_id": "c0", "name": "look", "arguments": "{}"},
    ],
    "usage": {"input_tokens": 1, "output_tokens": 2, "input_tokens_details": {"cached_tokens": 1}},
}
MESSAGE: Final = {
    "id": "i",
    "type": "message",
    "role": "assistant",
    "model": "m",
    "content": [
        {"type": "thinking", "thinking": "hm", "signature": "s"},
        {"type": "text", "text": "a"},
        {"type": "tool_use", "id": "c0", "name": "look", "input": {"at": 1}},
        {"type": "server_tool_use", "id": "s0", "name": "web", "input": {"at": 1}},
    ],
    "stop_reason": "tool_use",
    "stop_sequence": None,
    "usage": {"input_tokens": 1, "output_tokens": 2, "output_tokens_details": {"thinking_tokens": 1}},
}
REPLIES: Final[dict[DialectName, dict[str, Any]]] = {"chat": REPLY, "messages": MESSAGE, "responses": RESPONSE}
AT: Final = {"output_index": 0, "content_index": 0, "summary_index": 0, "item_id": "x", "delta": "a"}
CALL_BEGUN: Final = {"type": "function_call", "id": "x", "call_id": "c1", "name": "look"}
STREAMS: Final[dict[DialectName, list[dict[str, Any]]]] = {
    "chat": [{**CHUNK, "choices": [{**CHUNK["choices"][0], "finish_reason": None}]}, CHUNK],
    "messages": [
        {"type": "message_start", "message": {**MESSAGE, "content": []}},
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "a"}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "citations_delta", "citation": {"type": "t"}}},
        {"type": "content_block_stop", "index": 0},
        {"type": "content_block_start", "index": 1, "content_block": MESSAGE["content"][2]},  # type: ignore[index]
        {"type": "content_block_delta", "index": 1, "delta": {"type": "input_json_delta", "partial_json": "{}"}},
        {"type": "content_block_stop", "index": 1},
        {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 1}},
        {"type": "message_stop"},
    ],
    "responses": [
        {"type": "response.created", "response": RESPONSE},
        {"type": "response.output_item.added", "output_index": 0, "item": {"type": "reasoning", "id": "r", "summary": []}},
        {"type": "response.reasoning_summary_text.delta", **AT},
        {"type": "response.reasoning_text.delta", **AT},
        {"type": "response.content_part.added", **AT, "output_index": 1, "part": WORDS},
        {"type": "response.output_text.delta", **AT, "output_index": 1, "logprobs": [LOGPROB]},
        {"type": "response.output_item.added", "output_index": 2, "item": CALL_BEGUN},
        {"type": "response.function_call_arguments.delta", **AT, "output_index": 2},
        {"type": "response.output_item.done", "output_index": 2, "item": {**CALL_BEGUN, "arguments": "a"}},
        {"type": "response.completed", "response": RESPONSE},
    ],
}  # fmt: skip


def _paths(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    if path:
        yield path
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for name, inner in items:
        yield from _paths(inner, (*path, name))


def _changed(whole: Any) -> Iterator[Any]:
    """Yield a body again and again, each time with something else in one place."""
    for path in list(_paths(whole)):
        for odd in ODD:
            made = copy.deepcopy(whole)
            node = made
            for step in path[:-1]:
                node = node[step]
            node[path[-1]] = odd
            yield made


@pytest.mark.parametrize("name", CLIENTS)
def test_a_request_is_read_or_refused_by_a_field(name: DialectName) -> None:
    """Whatever stands in it, and whichever backend it goes to."""
    for body in _changed(REQUESTS[name]):
        with contextlib.suppress(Unexpressible):
            request = CLIENTS[name].read_request(body)
            for backend in DIALECTS.values():
                with contextlib.suppress(Unexpressible):
                    backend.write_request(request)


@pytest.mark.parametrize("name", REPLIES)
def test_an_answer_is_read_or_malformed(name: DialectName) -> None:
    """Whatever stands in it, and whoever it is for."""
    for body in _changed(REPLIES[name]):
        with contextlib.suppress(Malformed):
            reply = DIALECTS[name].read_reply(body)
            for client in CLIENTS.values():
                with contextlib.suppress(Unexpressible):
                    client.write_reply(reply, client.read_request(REQUESTS[client.name]))


@pytest.mark.parametrize("name", STREAMS)
def test_a_stream_is_read_or_malformed(name: DialectName) -> None:
    """Whatever stands in one of its events, and whoever it is for."""
    for events in _changed(STREAMS[name]):
        reader = DIALECTS[name].stream_reader()
        writers = [client.stream_writer(client.read_request(REQUESTS[client.name])) for client in CLIENTS.values()]
        with contextlib.suppress(Malformed, Unexpressible):
            for event in events:
                for delta in reader.feed(None, json.dumps(event)):
                    for writer in writers:
                        with contextlib.suppress(Unexpressible):
                            writer.write(delta)
            reader.end()
