"""Connections that end for good, whatever is under way when they are closed."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any

import anyio
import httpx
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Route

from providers.sandboxes.opensandbox.connections import Connections, closed_on_failure
from tests.support.upstream import served


async def hello(request: Request) -> PlainTextResponse:
    await request.body()
    return PlainTextResponse("hello")


@pytest.fixture
async def address() -> AsyncIterator[str]:
    async with served(Starlette(routes=[Route("/", hello)])) as url:
        yield url


def open_ones(connections: Connections) -> list[Any]:
    return connections._pool.connections


async def test_a_call_is_made_over_them_until_they_are_closed(address: str) -> None:
    connections = Connections()
    client = httpx.AsyncClient(transport=connections)
    assert (await client.get(address)).text == "hello"
    assert len(open_ones(connections)) == 1
    await connections.aclose()
    await connections.aclose()
    with pytest.raises(httpx.ConnectError, match="closed"):
        await client.get(address)
    assert not open_ones(connections)


async def test_a_call_that_connects_while_they_are_closed_leaves_none(
    address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is what a command does whose machine is removed: its connection came about after all were closed, and stayed."""
    connecting, go_on, connect_tcp = asyncio.Event(), asyncio.Event(), anyio.connect_tcp

    async def late(*given: Any, **named: Any) -> Any:
        connecting.set()
        await go_on.wait()
        return await connect_tcp(*given, **named)

    monkeypatch.setattr(anyio, "connect_tcp", late)
    connections = Connections()
    call = asyncio.create_task(httpx.AsyncClient(transport=connections).get(address))
    await connecting.wait()
    await connections.aclose()
    go_on.set()
    await asyncio.wait([call], timeout=10)
    assert isinstance(call.exception(), httpx.ReadError)
    gc.collect()  # what is left open is complained of here


async def test_what_does_not_come_about_leaves_none(address: str) -> None:
    connections = Connections()
    with suppress(ZeroDivisionError):
        async with closed_on_failure(connections):
            await httpx.AsyncClient(transport=connections).get(address)
            raise ZeroDivisionError
    assert not open_ones(connections)
