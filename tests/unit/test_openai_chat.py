"""A backend's answers and failures, met over a real socket."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from providers.models import ModelCall, ModelError, make_model
from providers.models.failures import retry_after_s
from schemas.config import OpenAIModel
from schemas.values import Message, Sampling, ToolCall
from tools import SHELL

KEY = "sk-very-secret-key-123456"


class Backend:
    """Answers every request with `body`, and remembers what it was asked."""

    def __init__(self) -> None:
        self.status, self.body, self.headers = 200, "", dict[str, str]()
        self.hold = asyncio.Event()
        self.hold.set()
        self.requests: list[tuple[str, dict[str, str], Any]] = []
        self.in_flight = self.peak = 0

    async def __call__(  # noqa: D102
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in head[1:] if line)}
        body = await reader.readexactly(int(headers.get("content-length", 0)))
        self.requests.append((head[0], headers, json.loads(body) if body else None))
        self.in_flight += 1
        self.peak = max(self.peak, self.in_flight)
        await self.hold.wait()
        self.in_flight -= 1
        extra = "".join(f"{name}: {value}\r\n" for name, value in self.headers.items())
        content = self.body.encode()
        writer.write(
            f"HTTP/1.1 {self.status} X\r\ncontent-length: {len(content)}\r\nconnection: close\r\n{extra}\r\n".encode()
            + content
        )
        await writer.drain()
        writer.close()


@pytest.fixture
async def backend() -> AsyncIterator[tuple[Backend, str]]:
    handler = Backend()
    server = await asyncio.start_server(handler, "127.0.0.1", 0)
    yield handler, f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"
    handler.hold.set()
    server.close()
    await server.wait_closed()


CALL = {"id": "c1", "type": "function", "function": {"name": "shell", "arguments": "{}"}}


def completion(message: dict[str, Any] | None = None, finish: str | None = "stop", **usage: Any) -> str:
    choice = {"index": 0, "message": {"role": "assistant", "content": "hi", **(message or {})}, "finish_reason": finish}
    return json.dumps({"id": "x", "object": "chat.completion", "choices": [choice], "usage": usage or None})


def call(**changes: Any) -> ModelCall:
    fields: dict[str, Any] = {
        "call_id": "c",
        "task_id": "t",
        "repeat": 0,
        "turn": 3,
        "tries": 1,
        "messages": (
            Message(role="system", content="s"),
            Message(role="user", content="u"),
            Message(role="assistant", tool_calls=(ToolCall(id="i", name="shell", arguments='{"command": "l'),)),
            Message(role="tool", content="out", tool_call_id="i"),
        ),
        "tools": (SHELL,),
        "sampling": Sampling(temperature=0.5, max_output_tokens=7, seed=1),
    }
    return ModelCall(**{**fields, **changes})


async def ask(url: str, timeout_s: float = 5, key: str | None = KEY, **changes: Any) -> Any:
    config = OpenAIModel(policy_base_url=url, policy_model_name="m", timeout_s=timeout_s, extra_body={"top_k": 4})
    model = make_model(config, key, 4)
    try:
        return await model.complete(call(**changes))
    finally:
        await model.aclose()


async def failure(url: str, **options: Any) -> ModelError:
    with pytest.raises(ModelError) as caught:
        await ask(url, **options)
    assert KEY not in str(caught.value)
    assert caught.value.failure.stage == "model"
    return caught.value


async def test_the_request_says_everything_and_keeps_arguments_raw(
    backend: tuple[Backend, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    handler, url = backend
    for name in ("API_KEY", "ADMIN_KEY", "ORG_ID", "PROJECT_ID", "WEBHOOK_SECRET"):
        monkeypatch.setenv(f"OPENAI_{name}", "from-environment")
    monkeypatch.setenv("OPENAI_BASE_URL", "http://127.0.0.1:1/")
    monkeypatch.setenv("OPENAI_CUSTOM_HEADERS", "X-Custom: from-environment")
    handler.body = completion()
    answer = await ask(url)
    assert (answer.message.content, answer.stop_reason) == ("hi", "stop")
    line, headers, body = handler.requests[0]
    assert line.startswith("POST /v1/chat/completions ")
    assert headers["authorization"] == f"Bearer {KEY}"
    await ask(url, key=None)
    assert not [
        value for _, headers, _ in handler.requests for value in headers.values() if "from-environment" in value
    ]
    assert {name: value for name, value in body.items() if name not in {"messages", "tools"}} == {
        "model": "m",
        "parallel_tool_calls": True,
        "temperature": 0.5,
        "max_tokens": 7,
        "seed": 1,
        "top_k": 4,
    }
    assert body["messages"][2]["tool_calls"][0]["function"]["arguments"] == '{"command": "l'
    assert body["messages"][3] == {"role": "tool", "content": "out", "tool_call_id": "i"}
    assert body["tools"][0]["function"]["name"] == "shell"
    await ask(url, tools=())
    assert "tools" not in handler.requests[-1][2]
    assert "parallel_tool_calls" not in handler.requests[-1][2]


async def test_tool_calls_and_usage_come_back_raw(backend: tuple[Backend, str]) -> None:
    handler, url = backend
    calls = [
        {"id": "a", "type": "function", "function": {"name": "shell", "arguments": '{"command": "l'}},
        {"type": "function", "function": {"name": "shell", "arguments": {"command": "ls"}}},
    ]
    handler.body = completion(
        {"content": None, "tool_calls": calls},
        finish="stop",
        prompt_tokens=9,
        completion_tokens=5,
        prompt_tokens_details={"cached_tokens": 4},
        completion_tokens_details={"reasoning_tokens": 3},
    )
    answer = await ask(url)
    assert answer.stop_reason == "tool_calls"
    assert answer.message.content is None
    assert [(c.id, c.arguments) for c in answer.message.tool_calls] == [
        ("a", '{"command": "l'),
        ("call3x1", '{"command": "ls"}'),
    ]
    assert answer.usage.model_dump() == {
        "input_tokens": 9,
        "output_tokens": 5,
        "cached_tokens": 4,
        "reasoning_tokens": 3,
    }


@pytest.mark.parametrize(
    ("finish", "reason"),
    [
        ("length", "length"),
        ("content_filter", "content_filter"),
        (None, "stop"),
        ("eos", "stop"),
        ("tool_calls", "stop"),
    ],
)
async def test_finish_reasons_are_mapped(backend: tuple[Backend, str], finish: str | None, reason: str) -> None:
    backend[0].body = completion(finish=finish)
    assert (await ask(backend[1])).stop_reason == reason


@pytest.mark.parametrize(
    ("status", "body", "kind", "is_terminal"),
    [
        (401, f"bad key {KEY}", "provider_auth", True),
        (403, "", "provider_auth", True),
        (404, "no such model", "provider_bad_request", True),
        (400, '{"error": {"message": "temperature"}}', "provider_bad_request", True),
        (400, "This model's maximum context length is 8 tokens", "context_overflow", True),
        (400, '{"error": {"code": "context_length_exceeded"}}', "context_overflow", True),
        (422, "unprocessable", "provider_bad_request", True),
        (301, "", "provider_bad_answer", True),
        (408, "", "transport_timeout", False),
        (429, "", "provider_rate_limited", False),
        (500, "<html>oops</html>", "provider_unavailable", False),
        (503, "", "provider_unavailable", False),
        (200, "<html>a login page</html>", "provider_bad_answer", False),
        (200, "", "provider_bad_answer", False),
        (200, '{"choices": []}', "provider_bad_answer", False),
        (200, '{"error": "no choices"}', "provider_bad_answer", False),
        (200, "null", "provider_bad_answer", False),
        (200, completion()[:-5], "provider_bad_answer", False),
        (200, completion({"tool_calls": [CALL, CALL]}), "provider_bad_answer", False),
    ],
)
async def test_failures_have_a_kind(
    backend: tuple[Backend, str], status: int, body: str, kind: str, is_terminal: bool
) -> None:
    handler, url = backend
    handler.status, handler.body, handler.headers = status, body, {"content-type": "application/json"}
    error = await failure(url)
    assert (error.failure.kind, error.failure.terminal) == (kind, is_terminal)
    assert url in error.failure.message
    if "<html>" in body:
        assert "<html>" in error.failure.message
    assert len(handler.requests) == 1, "the SDK must not retry: the caller records every try"


async def test_retry_after_is_honoured_within_bounds(backend: tuple[Backend, str]) -> None:
    handler, url = backend
    handler.status, handler.headers = 429, {"retry-after": "7"}
    assert (await failure(url)).retry_after_s == 7
    for value, seconds in [
        ("99999", 600),
        ("-1", None),
        ("soon", None),
        ("Wed, 21 Oct 2015 07:28:00 GMT", 0),
        ("nan", None),
    ]:
        assert retry_after_s({"retry-after": value}) == seconds
    assert retry_after_s({"retry-after-ms": "250"}) == 0.25
    assert retry_after_s({}) is None


async def test_nobody_there_is_told_with_address_and_cause() -> None:
    """And with no word about certificates, which would mislead where there are none."""
    error = await failure("http://127.0.0.1:1/v1")
    assert (error.failure.kind, error.failure.terminal) == ("transport_unreachable", False)
    assert "127.0.0.1:1" in error.failure.message
    assert "ssl" not in error.failure.message


async def test_no_answer_is_a_timeout(backend: tuple[Backend, str]) -> None:
    backend[0].hold.clear()
    assert (await failure(backend[1], timeout_s=0.1)).failure.kind == "transport_timeout"


async def test_as_many_calls_are_in_flight_as_asked_for(backend: tuple[Backend, str]) -> None:
    """Not the HTTP library's 100, nor less."""
    handler, url = backend
    handler.body = completion()
    handler.hold.clear()
    model = make_model(OpenAIModel(policy_base_url=url, policy_model_name="m"), KEY, 150)
    tasks = [asyncio.ensure_future(model.complete(call())) for _ in range(200)]
    while handler.in_flight < 150:
        await asyncio.sleep(0.005)
    handler.hold.set()
    await asyncio.gather(*tasks)
    assert handler.peak >= 150
    await model.aclose()


@pytest.mark.parametrize("count", [-1, -5, 2**53 + 1, 2**63, 10**30])
async def test_a_count_of_tokens_that_nobody_can_have_counted_is_not_known(
    backend: tuple[Backend, str], count: int
) -> None:
    """Some backends say -1; it is not written down, so that the answer is not set aside for it."""
    handler, url = backend
    handler.body = completion({"role": "assistant", "content": "4"}, prompt_tokens=count, completion_tokens=7)
    answer = await ask(url)
    assert (answer.usage.input_tokens, answer.usage.output_tokens) == (0, 7)


async def test_an_answer_of_many_megabytes_is_no_answer(backend: tuple[Backend, str]) -> None:
    handler, url = backend
    handler.body = completion({"role": "assistant", "content": "x" * 9_000_000})
    assert "more than" in (await failure(url)).failure.message
