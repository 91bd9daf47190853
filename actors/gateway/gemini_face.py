"""The Gemini API over HTTP: what is asked, of which model, is said by the address and not by the body."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from http import HTTPStatus
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from actors.gateway.conversations import TooMuch

STREAMED: Final[Mapping[str, bool]] = {"generateContent": False, "streamGenerateContent": True}
COUNTED: Final = "countTokens"
VERBS: Final = (*STREAMED, COUNTED)
SPOKEN: Final = ("systemInstruction", "contents", "tools")

MakeCall = Callable[[Request, Mapping[str, Any]], Awaitable[Response]]
ModelName = Callable[[Request], Awaitable[str]]
Count = Callable[[Request, Callable[[dict[str, Any]], Any]], Awaitable[tuple[int, Mapping[str, str]]]]


class GeminiFace:
    """See the module."""

    def __init__(self, call: MakeCall, model_name: ModelName, count: Count) -> None:
        """Make calls with `call`, which is told what their address says; `count` estimates the tokens of what a body says."""
        self._call = call
        self._model_name = model_name
        self._count = count

    async def asked(self, request: Request) -> Response:
        """Answer what is posted at `/v1beta/models/<model>:<verb>`."""
        verb = request.path_params["verb"]
        if verb == COUNTED:
            tokens, headers = await self._count(request, _said)
            return JSONResponse({"totalTokens": tokens}, headers=dict(headers))
        if verb not in STREAMED:
            raise TooMuch(HTTPStatus.NOT_FOUND, f"no {verb[:80]!r} here; served are {', '.join(VERBS)}")
        if STREAMED[verb] and request.query_params.get("alt") != "sse":
            raise TooMuch(HTTPStatus.BAD_REQUEST, "alt: streams are server-sent events here: ask with ?alt=sse")
        return await self._call(request, {"model": request.path_params["model"], "stream": STREAMED[verb]})

    async def models(self, request: Request) -> Response:
        """List the one model that the session has."""
        return JSONResponse({"models": [_model(await self._model_name(request))]})

    async def model(self, request: Request) -> Response:
        """Describe the session's model, whatever name it is asked by: all names mean this one."""
        if (verb := request.path_params["model"].rpartition(":")[2]) in VERBS:
            raise TooMuch(HTTPStatus.METHOD_NOT_ALLOWED, f"{verb} is asked by POST")
        return JSONResponse(_model(await self._model_name(request)))


def _said(body: dict[str, Any]) -> Any:
    """Return what a body whose tokens are counted says; it may hold the whole request that is meant."""
    whole = body.get("generateContentRequest")
    return [(whole if isinstance(whole, dict) else body).get(name) for name in SPOKEN]


def _model(name: str) -> dict[str, Any]:
    return {"name": f"models/{name}", "displayName": name, "supportedGenerationMethods": list(VERBS)}
