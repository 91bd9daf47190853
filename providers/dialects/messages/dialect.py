"""Anthropic Messages as one dialect among others: every method is another module's work."""

from __future__ import annotations

from typing import Any, Final

from providers.dialects.base import Problem, StreamReader, StreamWriter, Written
from providers.dialects.messages.problems import problem_body
from providers.dialects.messages.reply import read_reply, write_reply
from providers.dialects.messages.request_in import read_request
from providers.dialects.messages.request_out import write_request
from providers.dialects.messages.stream_in import MessageStreamReader
from providers.dialects.messages.stream_out import MessageStreamWriter
from schemas.conversation import DialectName, Reply, Request

PATH: Final = "/v1/messages"


class Messages:
    """Reads and writes Anthropic Messages; see `providers.dialects.Dialect` for what each method promises."""

    name: DialectName = "messages"
    path: str = PATH

    def read_request(self, body: dict[str, Any]) -> Request:
        """Return what a client asks; a body without `max_tokens`, as for counting tokens, is read too."""
        return read_request(body)

    def write_request(self, request: Request) -> Written:
        """Return the body to send. Where no `max_output_tokens` is asked for, `max_tokens` is 32000: the API demands one."""
        return write_request(request)

    def read_reply(self, body: dict[str, Any]) -> Reply:
        """Return what a backend answered; raises `Malformed`."""
        return read_reply(body)

    def write_reply(self, reply: Reply, request: Request) -> dict[str, Any]:  # noqa: ARG002 - an answer repeats no request
        """Return the message object that tells `reply`."""
        return write_reply(reply)

    def stream_reader(self, *, is_usage_asked: bool = False) -> StreamReader:  # noqa: ARG002  it always is
        """Return a reader for one streamed message."""
        return MessageStreamReader()

    def stream_writer(self, request: Request) -> StreamWriter:  # noqa: ARG002 - an answer repeats no request
        """Return a writer for one streamed message; its `write` raises `Unexpressible` as `write_reply` does."""
        return MessageStreamWriter()

    def write_problem(self, problem: Problem) -> dict[str, Any]:
        """Return the body of an error, of the type that its status has at Anthropic."""
        return problem_body(problem)
