"""A container engine asked over its unix socket, without a client library; answers may be read while they come. Blocking."""

from __future__ import annotations

import http.client
import json
import socket
from collections.abc import Generator
from contextlib import contextmanager
from typing import IO, Final

ANSWER_MAX_BYTES: Final = 4 * 1024 * 1024
SHOWN: Final = 300


class UnixConnection(http.client.HTTPConnection):
    """A connection to a path instead of an address."""

    def __init__(self, path: str, timeout_s: float) -> None:
        """Prepare it; no single read or write may take longer than `timeout_s`."""
        super().__init__("localhost", timeout=timeout_s)
        self._path = path

    def connect(self) -> None:
        """Connect; raises `OSError`."""
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)


@contextmanager
def asked(
    path: str, method: str, question: str, timeout_s: float, body: IO[bytes] | None = None, size: int = 0
) -> Generator[http.client.HTTPResponse]:
    """Give the engine's answer, whose body is still coming; raises `OSError`, `http.client.HTTPException`."""
    connection = UnixConnection(path, timeout_s)
    try:
        headers = {"Content-Type": "application/x-tar", "Content-Length": str(size)} if body else {}
        connection.request(method, question, body=body, headers=headers)
        yield connection.getresponse()
    finally:
        connection.close()


def words_of(body: bytes) -> str:
    """Return what an engine says in an answer that is an error."""
    try:
        return str(json.loads(body)["message"])[:SHOWN]
    except (ValueError, KeyError, TypeError):
        return body.decode(errors="replace").strip()[:SHOWN]
