"""The dialect itself: which function speaks for which verb of `Dialect`.

`limit_field` is how a request bounds its answer: OpenAI's own newer models refuse `max_tokens`, and several other backends know
no other name.
"""

from __future__ import annotations

from typing import Any, Literal

from providers.dialects.base import Problem, StreamReader, StreamWriter, Written
from providers.dialects.chat.problem import write_problem
from providers.dialects.chat.reply_reading import read_reply
from providers.dialects.chat.reply_writing import write_reply
from providers.dialects.chat.request_reading import read_request
from providers.dialects.chat.request_writing import write_request
from providers.dialects.chat.stream_reading import ChatStreamReader
from providers.dialects.chat.stream_writing import ChatStreamWriter
from schemas.conversation import DialectName, Reply, Request


class Chat:
    """See the module."""

    name: DialectName = "chat"
    path: str = "/v1/chat/completions"

    def __init__(self, limit_field: Literal["max_tokens", "max_completion_tokens"] = "max_tokens") -> None:
        """Bound answers by `limit_field` in requests that are written; both are read."""
        self._limit_field = limit_field

    def read_request(self, body: dict[str, Any]) -> Request:
        """Return what a client asks; raises `Unexpressible` for what is no request of this dialect."""
        return read_request(body)

    def write_request(self, request: Request) -> Written:
        """Return the body to send; raises `Unexpressible` for what this dialect cannot say."""
        return write_request(request, self._limit_field)

    def read_reply(self, body: dict[str, Any]) -> Reply:
        """Return what a backend answered; raises `Malformed`."""
        return read_reply(body)

    def write_reply(self, reply: Reply, request: Request) -> dict[str, Any]:  # noqa: ARG002  it shows in no answer
        """Return the body to answer `request` with; raises `Unexpressible`."""
        return write_reply(reply)

    def stream_reader(self, *, is_usage_asked: bool = False) -> StreamReader:
        """Return a reader for one streamed answer."""
        return ChatStreamReader(is_usage_asked=is_usage_asked)

    def stream_writer(self, request: Request) -> StreamWriter:
        """Return a writer for the streamed answer to `request`."""
        return ChatStreamWriter(request)

    def write_problem(self, problem: Problem) -> dict[str, Any]:
        """Return the body of an error as OpenAI's API words it."""
        return write_problem(problem)
