"""An MCP server for tests, over HTTP with JSON answers: one tool, `echo`, and what it was asked."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

SCHEMA: Final = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}


@dataclass
class McpDouble:
    """See the module. `headers` are those of each request, `echoed` what the tool was called with."""

    headers: list[dict[str, str]] = field(default_factory=list)
    echoed: list[str] = field(default_factory=list)

    @property
    def app(self) -> Starlette:
        """Return the application to serve."""
        return Starlette(routes=[Route("/mcp", self._answer, methods=["POST", "GET", "DELETE"])])

    async def _answer(self, request: Request) -> Response:
        self.headers.append(dict(request.headers))
        if request.method != "POST":
            return Response(status_code=405)
        asked = await request.json()
        if "id" not in asked:
            return Response(status_code=202)
        result = self._result(asked["method"], asked.get("params") or {})
        if result is None:
            refused = {"code": -32601, "message": "no such method"}
            return JSONResponse({"jsonrpc": "2.0", "id": asked["id"], "error": refused})
        return JSONResponse({"jsonrpc": "2.0", "id": asked["id"], "result": result})

    def _result(self, method: str, params: dict[str, Any]) -> dict[str, Any] | None:
        match method:
            case "initialize":
                about = {"name": "double", "version": "1"}
                return {
                    "protocolVersion": params["protocolVersion"],
                    "capabilities": {"tools": {}},
                    "serverInfo": about,
                }
            case "tools/list":
                return {"tools": [{"name": "echo", "description": "Say it again.", "inputSchema": SCHEMA}]}
            case "tools/call":
                self.echoed.append(params["arguments"]["text"])
                return {"content": [{"type": "text", "text": f"echo: {params['arguments']['text']}"}], "isError": False}
            case "ping":
                return {}
            case _:
                return None
