"""The tools of a task over HTTP: as an MCP server (streamable HTTP, an answer in one piece), and plainly, a POST a call.

Nothing is remembered between requests. What the server side of MCP needs here is five methods on one path, inside the gateway's own
bounds on heads and bodies and its own tokens in the path, with a list of tools that differs from token to token: that is less code
than the official SDK's session handling would take to switch off.
"""

from __future__ import annotations

import hashlib
import json
import math
import secrets
from collections.abc import Awaitable, Callable
from http import HTTPStatus
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from actors.gateway.grants import Grant, Refused
from actors.gateway.sessions import OpenSession
from actors.gateway.tool_calls import ToolCalls, Wanted
from gym_bus.errors import GymBusError
from schemas.environment import TaskTool
from tools.task_answers import Told

VERSIONS: Final = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25")
NO_METHOD: Final = -32601
BAD_PARAMETERS: Final = -32602
BAD_REQUEST: Final = -32600
CLIENT_ID_MAX: Final = 200
SESSION_HEADER: Final = "mcp-session-id"
CALL_HEADER: Final = "x-gym-bus-call"
"""By which a client that may send a call twice says that it is the same one."""

Open = Callable[[Request], Awaitable[tuple[Grant, OpenSession, ToolCalls]]]
ReadBody = Callable[[Request], Awaitable[dict[str, Any]]]


class ToolFaces:
    """See the module."""

    def __init__(self, open_: Open, read_body: ReadBody) -> None:
        """Find the session of a request with `open_`, which raises `Refused`, and its body with `read_body`."""
        self._open = open_
        self._read_body = read_body

    # -- MCP -------------------------------------------------------------------------------------------------------------------

    async def mcp(self, request: Request) -> Response:
        """Answer a message of an MCP client; there is no stream to listen to, and no session to end."""
        if request.method != "POST":
            return Response(status_code=HTTPStatus.METHOD_NOT_ALLOWED, headers={"allow": "POST"})
        try:
            grant, session, calls = await self._open(request)
            name = request.path_params["grant"]
            if not any(made.name == name and made.kind == "mcp" for made in session.request.task.grants):
                return JSONResponse({"error": f"no MCP grant is called {name!r:.80}"}, HTTPStatus.NOT_FOUND)
            asked = await self._read_body(request)
            return await self._answered(request, asked, grant, session, calls)
        except GymBusError as error:
            return _refusal(error)

    async def _answered(  # noqa: PLR0911  one return a method
        self, request: Request, asked: dict[str, Any], grant: Grant, session: OpenSession, calls: ToolCalls
    ) -> Response:
        method, parameters = asked.get("method"), asked.get("params") or {}
        if "id" not in asked or not isinstance(method, str):
            is_told = isinstance(method, str) or "result" in asked or "error" in asked
            return Response(status_code=HTTPStatus.ACCEPTED if is_told else HTTPStatus.BAD_REQUEST)
        if not _is_id(asked["id"]):
            refused = {**asked, "id": None}
            return _failed(refused, BAD_REQUEST, "`id` must be a string or a number", HTTPStatus.BAD_REQUEST)
        if not isinstance(parameters, dict):
            return _failed(asked, BAD_REQUEST, "`params` must be an object")
        match method:
            case "initialize":
                return _result(asked, _about(parameters), {SESSION_HEADER: secrets.token_urlsafe(18)})
            case "ping":
                return _result(asked, {})
            case "tools/list":
                return _result(asked, {"tools": [_listed(tool) for tool in session.request.task.tools]})
            case "tools/call":
                name, arguments = parameters.get("name"), parameters.get("arguments") or {}
                known = any(tool.name == name for tool in session.request.task.tools)
                if not (known and isinstance(arguments, dict)):
                    return _failed(asked, BAD_PARAMETERS, f"no tool is called {name!r:.80}, or its arguments are none")
                client = request.headers.get(SESSION_HEADER)
                client_id = _short(f"{client}/{json.dumps(asked['id'])}") if client else None
                wanted = Wanted(
                    tool=str(name), arguments=arguments, grant=request.path_params["grant"], client_id=client_id
                )
                said = await calls.call(wanted, grant.activation, grant.launch)
                return _result(asked, _content(said))
            case _:
                return _failed(asked, NO_METHOD, f"no such method: {method:.80}")

    # -- plain HTTP ------------------------------------------------------------------------------------------------------------

    async def listed(self, request: Request) -> Response:
        """List the tools."""
        try:
            _, session, _ = await self._open(request)
        except GymBusError as error:
            return _refusal(error)
        return JSONResponse({"tools": [_listed(tool) for tool in session.request.task.tools]})

    async def called(self, request: Request) -> Response:
        """Answer a call: the body is its arguments, the answer its words and whether it is an error."""
        try:
            grant, session, calls = await self._open(request)
            name, known = request.path_params["name"], [tool.name for tool in session.request.task.tools]
            if name not in known:
                words = f"There is no tool {name!r:.80}. There are: {', '.join(known) or 'none'}."
                return JSONResponse({"text": words, "is_error": True}, HTTPStatus.NOT_FOUND)
            wanted = Wanted(
                tool=name,
                arguments=await self._read_body(request),
                client_id=_short(request.headers.get(CALL_HEADER) or "") or None,
            )
            said = await calls.call(wanted, grant.activation, grant.launch)
        except GymBusError as error:
            return _refusal(error)
        return JSONResponse({"text": said.text, "is_error": said.is_error})


def _about(parameters: dict[str, Any]) -> dict[str, Any]:
    wanted = parameters.get("protocolVersion")
    return {
        "protocolVersion": wanted if wanted in VERSIONS else VERSIONS[-1],
        "capabilities": {"tools": {"listChanged": False}},
        "serverInfo": {"name": "gym-bus", "version": "1"},
    }


def _listed(tool: TaskTool) -> dict[str, Any]:
    return {"name": tool.name, "description": tool.description, "inputSchema": tool.parameters}


def _content(said: Told) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": said.text}], "isError": said.is_error}


def _result(asked: dict[str, Any], result: dict[str, Any], headers: dict[str, str] | None = None) -> Response:
    return JSONResponse({"jsonrpc": "2.0", "id": asked["id"], "result": result}, headers=headers)


def _failed(asked: dict[str, Any], code: int, message: str, status: int = HTTPStatus.OK) -> Response:
    return JSONResponse({"jsonrpc": "2.0", "id": asked["id"], "error": {"code": code, "message": message}}, status)


def _is_id(value: Any) -> bool:
    """Say whether a message may be called so: null, and what JSON has no word for, may not."""
    if isinstance(value, float):
        return math.isfinite(value)
    return isinstance(value, int | str) and not isinstance(value, bool)


def _short(mark: str) -> str:
    """Return a client's mark of a call as it is recorded: no two that differ become one."""
    if len(mark) <= CLIENT_ID_MAX:
        return mark
    return hashlib.sha256(mark.encode(errors="surrogatepass")).hexdigest()


def _refusal(error: GymBusError) -> Response:
    """Return what a request is told that is not dealt with; what another gateway has may be asked for again."""
    status = HTTPStatus.UNAUTHORIZED if isinstance(error, Refused) else getattr(error, "status", None)
    if status is None:
        return JSONResponse({"error": str(error)}, HTTPStatus.SERVICE_UNAVAILABLE, headers={"retry-after": "1"})
    return JSONResponse({"error": str(error)}, status)
