"""What a dialect is: how one API's requests, answers and streams are read into `schemas.conversation` and written from it.

Nothing here talks to anybody. What a dialect cannot say is refused by `Unexpressible`, which names the field; nothing is dropped but
what changes no answer (`Written.dropped` lists it).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

from gym_bus.errors import Permanent
from schemas.conversation import Delta, DialectName, Reply, Request


class Unexpressible(Permanent):
    """A request or an answer says what the other side cannot: a 400. `field` is its path in the body (`messages.3.content`)."""

    def __init__(self, field: str, reason: str) -> None:
        """Say which field, and why not."""
        super().__init__(f"{field}: {reason}")
        self.field = field
        self.reason = reason


class Malformed(Permanent):
    """A backend's answer that is none of its dialect."""


@dataclass(frozen=True, slots=True)
class Written:
    """A request's body, and the fields of the original that were left out because they change no answer (`metadata`, `user`)."""

    body: dict[str, Any]
    dropped: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Problem:
    """Something to tell a client: the HTTP status, a stable code, words for a person, and the field it is about."""

    status: int
    code: str
    message: str
    field: str | None = None


class StreamReader(Protocol):
    """Reads one streamed answer, event by event."""

    def feed(self, event: str | None, data: str) -> list[Delta]:
        """Return what one server-sent event says (`event` is its name, None if it has none); raises `Malformed`."""
        ...

    @property
    def is_ending(self) -> bool:
        """Return whether it is known why the answer ended: a client may have read all that it wants."""
        ...

    def end(self) -> list[Delta]:
        """Return what is to be said when the stream ends; raises `Malformed` if it was cut."""
        ...


class StreamWriter(Protocol):
    """Writes one streamed answer."""

    def write(self, delta: Delta) -> bytes:
        """Return the server-sent events for one delta, perhaps none."""
        ...


class ClientDialect(Protocol):
    """One API as its clients see it. Every method is pure; bodies are parsed JSON."""

    @property
    def name(self) -> DialectName:
        """Return what it is called here."""
        ...

    def read_request(self, body: dict[str, Any]) -> Request:
        """Return what a client asks; raises `Unexpressible` for what is no request of this dialect."""
        ...

    def write_reply(self, reply: Reply, request: Request) -> dict[str, Any]:
        """Return the body to answer `request` with; raises `Unexpressible`."""
        ...

    def stream_writer(self, request: Request) -> StreamWriter:
        """Return a writer for the streamed answer to `request`."""
        ...

    def write_problem(self, problem: Problem) -> dict[str, Any]:
        """Return the body of an error in the dialect's own shape."""
        ...


class Dialect(ClientDialect, Protocol):
    """One API, as its clients and its backends see it."""

    @property
    def path(self) -> str:
        """Return the path that its calls are posted to."""
        ...

    def write_request(self, request: Request) -> Written:
        """Return the body to send; raises `Unexpressible` for what this dialect cannot say."""
        ...

    def read_reply(self, body: dict[str, Any]) -> Reply:
        """Return what a backend answered; raises `Malformed`."""
        ...

    def stream_reader(self, *, is_usage_asked: bool = False) -> StreamReader:
        """Return a reader for one streamed answer; `is_usage_asked` says that the backend was asked to tell what it cost."""
        ...
