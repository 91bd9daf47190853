"""Tools of MCP servers over HTTP, which somebody else runs: called by the official client, one connection a call."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from importlib import import_module
from typing import Any, Final

import httpx2

from gym_bus.errors import Permanent
from schemas.environment import RemoteTool
from tools.task_tools import Ran

CONNECTED_WITHIN_S: Final = 30.0
REFUSALS: Final = range(-32602, -32599)
"""Codes for a call that was not begun. An internal error, which the client also makes of a broken answer, may be one that was."""


async def call_remote(tool: RemoteTool, arguments: Mapping[str, Any]) -> Ran:
    """Return what the server says of a call; raises `Permanent` if it was never asked, anything else if it may have been."""
    try:
        client_of, transport_of = import_module("mcp").Client, import_module("mcp.client.streamable_http")
        mcp_error = import_module("mcp.shared.exceptions").MCPError
    except ImportError as error:
        msg = f"{tool.url}: tools of MCP servers need the package mcp: pip install 'gym-bus[mcp]'"
        raise Permanent(msg) from error
    timeout = httpx2.Timeout(None, connect=CONNECTED_WITHIN_S)
    was_called, answer = False, None
    try:
        async with (
            httpx2.AsyncClient(headers=tool.headers, timeout=timeout) as http,
            client_of(transport_of.streamable_http_client(tool.url, http_client=http), mode="legacy") as client,
        ):
            was_called = True
            try:
                answer = _ran(await client.call_tool(tool.tool, dict(arguments)))
            except mcp_error as error:
                if error.error.code not in REFUSALS:
                    raise
                answer = Ran(f"The server refused the call: {error.error.message}"[:2000], is_error=True)
    except Exception as error:
        if answer is not None:  # only the goodbye failed
            return answer
        if was_called:
            raise
        msg = f"{tool.url} could not be reached: {_innermost(error)}"
        raise Permanent(msg) from error
    return answer


def _ran(result: Any) -> Ran:
    said = "\n".join(_words(result.content or ()))
    if not said and getattr(result, "structured_content", None) is not None:
        said = json.dumps(result.structured_content, ensure_ascii=False)
    return Ran(said, is_error=bool(result.is_error))


def _words(content: Iterable[Any]) -> Iterable[str]:
    for part in content:
        yield part.text if part.type == "text" else f"[{part.type}]"


def _innermost(error: BaseException) -> str:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return f"{type(error).__name__}: {error}"[:500]
