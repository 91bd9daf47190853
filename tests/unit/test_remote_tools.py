"""Tools of MCP servers that somebody else runs, by the official client."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from gym_bus.errors import Permanent
from schemas.environment import RemoteTool
from tests.support.mcp_double import McpDouble
from tests.support.upstream import served
from tools.remote import call_remote

pytest.importorskip("mcp")


def tool(url: str, name: str = "echo") -> RemoteTool:
    return RemoteTool(url=f"{url}/mcp", tool=name, headers={"x-run": "r1"})


class Double(McpDouble):
    """Says of its calls what `says` says."""

    says: Callable[[dict[str, Any]], dict[str, Any] | None] = staticmethod(lambda _: None)

    def _result(self, method: str, params: dict[str, Any]) -> dict[str, Any] | None:
        return self.says(params) if method == "tools/call" else super()._result(method, params)


async def test_a_call_says_what_the_server_says() -> None:
    """With the headers that the task names."""
    double = McpDouble()
    async with served(double.app) as url:
        ran = await call_remote(tool(url), {"text": "one"})
    assert (ran.text, ran.is_error, ran.record) == ("echo: one", False, None)
    assert double.echoed == ["one"]
    assert {headers.get("x-run") for headers in double.headers} == {"r1"}


async def test_an_error_of_the_tool_is_its_answer() -> None:
    double = Double()
    double.says = lambda _: {  # type: ignore[method-assign]
        "content": [{"type": "text", "text": "no"}, {"type": "image", "data": "", "mimeType": "image/png"}],
        "isError": True,
    }
    async with served(double.app) as url:
        ran = await call_remote(tool(url), {})
    assert (ran.text, ran.is_error) == ("no\n[image]", True)


async def test_a_refusal_is_an_answer() -> None:
    async with served(Double().app) as url:
        ran = await call_remote(tool(url), {})
    assert (ran.text, ran.is_error) == ("The server refused the call: no such method", True)


async def test_a_server_that_is_not_there_was_never_asked() -> None:
    with pytest.raises(Permanent, match="could not be reached"):
        await call_remote(tool("http://127.0.0.1:9"), {})


async def test_a_server_that_dies_in_the_middle_may_have_done_it() -> None:
    """Whatever is raised, it does not say that nothing was done."""
    double = McpDouble()

    async def dies(request: Request) -> Response:
        body = await request.body()
        if b"tools/call" in body:
            return JSONResponse({}, 500)
        return await double._answer(request)

    async with served(Starlette(routes=[Route("/mcp", dies, methods=["POST", "GET", "DELETE"])])) as url:
        with pytest.raises(Exception) as caught:  # noqa: PT011
            await call_remote(tool(url), {"text": "x"})
    assert not isinstance(caught.value, Permanent)


async def test_a_call_can_be_cut_short() -> None:
    async def hangs(request: Request) -> Response:
        if b"tools/call" in await request.body():
            await asyncio.sleep(30)
        return await McpDouble()._answer(request)

    async with served(Starlette(routes=[Route("/mcp", hangs, methods=["POST", "GET", "DELETE"])])) as url:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(1):
                await call_remote(tool(url), {"text": "x"})
