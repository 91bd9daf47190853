"""Connections that end for good.

A pool of connections may be closed while a call is under way, such as a command in a machine that is being removed. What that call
opens afterwards nobody would close: httpx lets a transport that was closed go on.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Final

import httpx

LIMITS: Final = httpx.Limits(max_connections=100, max_keepalive_connections=20, keepalive_expiry=30.0)
"""As many as the client has when it makes its own."""
CLOSED: Final = "its connections are closed: the machine was removed, or its provider closed"


class Connections(httpx.AsyncHTTPTransport):
    """A transport that makes no call after `aclose`, and leaves no connection of one that was under way."""

    def __init__(self) -> None:
        super().__init__(limits=LIMITS)
        self._closed = asyncio.Event()

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Make a call; raises `httpx.ConnectError` if it is closed."""
        if self._closed.is_set():
            raise httpx.ConnectError(CLOSED, request=request)
        response = await super().handle_async_request(request)
        if self._closed.is_set():  # meanwhile; a connection that was being opened then is none of the pool's any more
            await response.extensions["network_stream"].aclose()
            await response.aclose()
            raise httpx.ReadError(CLOSED, request=request)
        return response

    async def aclose(self) -> None:
        """Close them all; safe to repeat."""
        self._closed.set()
        await super().aclose()


@asynccontextmanager
async def closed_on_failure(connections: Connections) -> AsyncGenerator[None, None]:
    """Close them if what they were made for does not come about."""
    try:
        yield
    except BaseException:
        await connections.aclose()
        raise
