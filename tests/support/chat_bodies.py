"""Bodies of Chat Completions requests, in pieces."""

from __future__ import annotations

from typing import Any

from providers.dialects.chat import Chat
from schemas.conversation import Request

CHAT = Chat()


def user(content: Any = "hi", **more: Any) -> dict[str, Any]:
    """Return a user's message."""
    return {"role": "user", "content": content, **more}


def assistant(content: Any = None, **more: Any) -> dict[str, Any]:
    """Return an assistant's message."""
    return {"role": "assistant", "content": content, **more}


def call(id_: str = "c1", name: str = "bash", arguments: Any = '{"command": "ls"}') -> dict[str, Any]:
    """Return a function call."""
    return {"id": id_, "type": "function", "function": {"name": name, "arguments": arguments}}


def result(id_: str = "c1", content: Any = "a.txt", **more: Any) -> dict[str, Any]:
    """Return a tool's message."""
    return {"role": "tool", "tool_call_id": id_, "content": content, **more}


def body(*messages: dict[str, Any], **more: Any) -> dict[str, Any]:
    """Return a request."""
    return {"model": "m", "messages": list(messages or (user(),)), **more}


def read(*messages: dict[str, Any], **more: Any) -> Request:
    """Return a request, read; one that reads is also written so that it reads the same."""
    request = CHAT.read_request(body(*messages, **more))
    assert CHAT.read_request(CHAT.write_request(request).body) == request
    return request


def text(words: str, **more: Any) -> dict[str, Any]:
    """Return a text part."""
    return {"type": "text", "text": words, **more}


FUNCTION: dict[str, Any] = {
    "type": "function",
    "function": {
        "name": "bash",
        "description": "Run a command",
        "parameters": {"type": "object", "properties": {"command": {"type": "string"}}, "required": ["command"]},
    },
}
