"""The dialect itself: the conversions of this folder under one name."""

from __future__ import annotations

from typing import Any

from pydantic import ValidationError

from providers.dialects.base import Malformed, Problem, Unexpressible, Written
from providers.dialects.responses.names import NAME
from providers.dialects.responses.problems import write_problem
from providers.dialects.responses.reply_reading import read_reply
from providers.dialects.responses.reply_writing import write_reply
from providers.dialects.responses.request_reading import read_request
from providers.dialects.responses.request_writing import write_request
from providers.dialects.responses.stream_reading import ResponsesStreamReader
from providers.dialects.responses.stream_writing import ResponsesStreamWriter
from schemas.conversation import DialectName, Reply, Request


class Responses:
    """OpenAI Responses, as Codex and the OpenAI SDK speak it."""

    name: DialectName = NAME
    path: str = "/v1/responses"

    def read_request(self, body: dict[str, Any]) -> Request:
        """Return what a client asks; raises `Unexpressible` for what is no request of this dialect."""
        try:
            return read_request(body)
        except ValidationError as error:  # a number that is none: infinite, or beyond all bounds
            first = error.errors(include_url=False, include_input=False, include_context=False)[0]
            raise Unexpressible(".".join(map(str, first["loc"])), first["msg"]) from None

    def write_request(self, request: Request) -> Written:
        """Return the body to send; raises `Unexpressible` for what this dialect cannot say."""
        return write_request(request)

    def read_reply(self, body: dict[str, Any]) -> Reply:
        """Return what a backend answered; raises `Malformed`."""
        try:
            return read_reply(body)
        except (Unexpressible, OverflowError, ValueError) as error:
            raise Malformed(f"no answer of the Responses API: {error}") from error

    def write_reply(self, reply: Reply, request: Request) -> dict[str, Any]:
        """Return the body to answer `request` with; raises `Unexpressible`."""
        return write_reply(reply, request)

    def stream_reader(self, *, is_usage_asked: bool = False) -> ResponsesStreamReader:  # noqa: ARG002  it always is
        """Return a reader for one streamed answer."""
        return ResponsesStreamReader()

    def stream_writer(self, request: Request) -> ResponsesStreamWriter:
        """Return a writer for the streamed answer to `request`."""
        return ResponsesStreamWriter(request)

    def write_problem(self, problem: Problem) -> dict[str, Any]:
        """Return the body of an error in the dialect's own shape."""
        return write_problem(problem)
