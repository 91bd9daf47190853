"""The Gemini API as one dialect of clients: every method is another module's work.

A body does not say which model is asked, nor whether the answer is streamed: that is in its address. Whoever takes a request puts
both into the body, as `model` and `stream`.
"""

from __future__ import annotations

from typing import Any

from providers.dialects.base import Problem, StreamWriter
from providers.dialects.gemini.problems import write_problem
from providers.dialects.gemini.reply_writing import write_reply
from providers.dialects.gemini.request_reading import read_request
from providers.dialects.gemini.stream_writing import GeminiStreamWriter
from schemas.conversation import DialectName, Reply, Request


class Gemini:
    """See the module, and `providers.dialects.ClientDialect` for what each method promises."""

    name: DialectName = "gemini"

    def read_request(self, body: dict[str, Any]) -> Request:
        """Return what a client asks; raises `Unexpressible` for what is no request of this dialect."""
        return read_request(body)

    def write_reply(self, reply: Reply, request: Request) -> dict[str, Any]:
        """Return the `GenerateContentResponse` that tells `reply`; raises `Unexpressible`."""
        return write_reply(reply, request)

    def stream_writer(self, request: Request) -> StreamWriter:
        """Return a writer for the streamed answer to `request`."""
        return GeminiStreamWriter(request)

    def write_problem(self, problem: Problem) -> dict[str, Any]:
        """Return the body of an error as Google's APIs word it."""
        return write_problem(problem)
