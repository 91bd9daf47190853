"""What a box asks of the proxy: the head of one HTTP/1.1 request, read with h11, and the answer to it."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from http import HTTPStatus
from typing import Final
from urllib.parse import SplitResult, urlsplit

import h11

from schemas.network import plain_name

READ_BYTES: Final = 16 * 1024
HTTP_PORT: Final = 80
HOP_BY_HOP: Final = frozenset(
    {b"connection", b"keep-alive", b"te", b"trailer", b"transfer-encoding", b"upgrade", b"host", b"expect"}
)


class Refused(Exception):
    """The request is answered with `status` and the reason, and not carried out."""

    def __init__(self, status: HTTPStatus, reason: str) -> None:
        super().__init__(reason)
        self.status = status
        self.reason = reason


@dataclass(frozen=True, slots=True)
class Target:
    """Where a request wants to go; `path` is None if it wants a tunnel there."""

    host: str
    port: int
    path: str | None


async def read_request(reader: asyncio.StreamReader, connection: h11.Connection) -> h11.Request:
    """Return the request; raises `Refused` for what is none, and `ConnectionError` if nobody asks."""
    try:
        while True:
            event = connection.next_event()
            if isinstance(event, h11.Request):
                return event
            if event is not h11.NEED_DATA:
                msg = "nothing was asked"
                raise ConnectionError(msg)
            connection.receive_data(await reader.read(READ_BYTES))
    except h11.RemoteProtocolError as error:
        raise Refused(HTTPStatus(error.error_status_hint), f"this is no request for a proxy: {error}") from error


def target_of(request: h11.Request) -> Target:
    """Return where a request wants to go; raises `Refused` if it does not say so as one does to a proxy."""
    written = request.target.decode("ascii", "replace")
    try:
        return _tunnel(written) if request.method == b"CONNECT" else _page(written)
    except ValueError as error:
        status = HTTPStatus.FORBIDDEN if "never numbered" in str(error) else HTTPStatus.BAD_REQUEST
        raise Refused(status, str(error)) from error


def _tunnel(written: str) -> Target:
    parts = urlsplit(f"//{written}")
    if parts.port is None or parts.path or parts.query:
        msg = f"CONNECT wants name:port, not {written[:80]!r}"
        raise ValueError(msg)
    return Target(_host(parts), parts.port, None)


def _page(written: str) -> Target:
    parts = urlsplit(written)
    if parts.scheme != "http":
        msg = f"want CONNECT, or a whole address that begins with http://, not {written[:80]!r}"
        raise ValueError(msg)
    path = f"{parts.path or '/'}{'?' + parts.query if parts.query else ''}"
    return Target(_host(parts), HTTP_PORT if parts.port is None else parts.port, path)


def _host(parts: SplitResult) -> str:
    if "@" in parts.netloc:
        msg = "an address must not hold a user's name"
        raise ValueError(msg)
    return plain_name(parts.hostname or "")


def refusal(connection: h11.Connection, refused: Refused) -> bytes:
    """Return the bytes of an answer that names the reason; none if there can be no answer any more."""
    body = f"gym-bus: {refused.reason}\n".encode("ascii", "replace")
    headers = [("content-type", "text/plain"), ("content-length", str(len(body))), ("connection", "close")]
    answer = h11.Response(status_code=refused.status, headers=headers, reason=refused.status.phrase.encode())
    try:
        parts = [connection.send(event) for event in (answer, h11.Data(data=body), h11.EndOfMessage())]
    except h11.LocalProtocolError:
        return b""
    return b"".join(part for part in parts if part)


def onward(request: h11.Request, target: Target) -> h11.Request:
    """Return a plain request as its host is asked: its own name instead of whatever was said, one request and no more."""
    named = {
        name.strip() for key, value in request.headers if key == b"connection" for name in value.lower().split(b",")
    }
    dropped = HOP_BY_HOP | named
    kept = [(k, v) for k, v in request.headers if k not in dropped and not k.startswith(b"proxy-")]
    chunked = [(b"transfer-encoding", b"chunked")] if any(k == b"transfer-encoding" for k, _ in request.headers) else []
    if chunked:
        kept = [(key, value) for key, value in kept if key != b"content-length"]
    host = target.host if target.port == HTTP_PORT else f"{target.host}:{target.port}"
    headers = [(b"host", host.encode()), *kept, *chunked, (b"connection", b"close")]
    return h11.Request(method=request.method, target=(target.path or "/").encode(), headers=headers)
