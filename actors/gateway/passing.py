"""An answer on its way to the client, as an ASGI response: what is there goes out, and a client that leaves is noticed."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from http import HTTPStatus
from typing import Final

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from actors.gateway.outlet import Head, Outlet

RETRY_AFTER: Final = {"retry-after": "1"}


def retry_headers(status: int) -> Mapping[str, str]:
    """Return what tells a client to wait before it tries again."""
    return RETRY_AFTER if status in {HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.SERVICE_UNAVAILABLE} else {}


class Passing(Response):
    """See the module. Nothing is sent before the answer's head is known; an answer that is whole by then has its length in it."""

    def __init__(self, outlet: Outlet) -> None:
        """Send what comes out of `outlet`."""
        self._outlet = outlet
        super().__init__()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send it all; return when the client has it, or is gone."""
        del scope
        leaving = asyncio.ensure_future(_left(receive))
        leaving.add_done_callback(lambda _: self._outlet.leave())
        try:
            while True:
                ready = await self._outlet.take()
                if ready.head:
                    length = len(ready.body) if ready.is_last else None
                    await send({"type": "http.response.start", **_start(ready.head, length)})
                elif not self._outlet.has_begun:
                    return  # it left before there was anything; nobody reads a status
                if self._outlet.was_cut:
                    return  # the connection is closed in the middle, so that half an answer does not look whole
                await send({"type": "http.response.body", "body": ready.body, "more_body": not ready.is_last})
                if ready.is_last:
                    return
        finally:
            leaving.cancel()


def _start(head: Head, length: int | None) -> dict[str, object]:
    headers = {**retry_headers(head.status), **head.headers}
    if length is not None:
        headers["content-length"] = str(length)
    return {"status": head.status, "headers": [(n.encode("latin-1"), v.encode("latin-1")) for n, v in headers.items()]}


async def _left(receive: Receive) -> None:
    """Wait until the client is gone."""
    while (await receive())["type"] != "http.disconnect":
        pass
