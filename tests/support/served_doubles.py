"""Servers of every kind that we know, for tests: each speaks its own wire form, and refuses what the real one refuses."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from tests.support.upstream import Upstream

KEY = "sk-very-secret"
PROMPT_IDS = [1, 15, 22, 9]
MODEL = "up"


def problem(status: int, message: str, code: str | int | None = None) -> JSONResponse:
    """Return an error in OpenAI's shape."""
    return JSONResponse({"error": {"message": message, "type": "invalid_request_error", "code": code}}, status)


@dataclass
class Double(Upstream):
    """Keeps where it was asked, besides what; `list_status` is what it answers when asked for its models."""

    paths: list[str] = field(default_factory=list)
    models: list[str] = field(default_factory=lambda: [MODEL])
    key: str = KEY

    @property
    def app(self) -> Starlette:
        """Return the application to serve."""
        return Starlette(routes=[Route("/{path:path}", self._any, methods=["GET", "POST"])])

    async def _any(self, request: Request) -> Response:
        self.paths.append(f"{request.url.path}?{request.url.query}".removesuffix("?"))
        if refused := self.refused(request):
            return refused
        if request.method == "GET":
            return self._listed(request.url.path)
        body = await request.json()
        if refused := self.refused_body(request, body):
            self.bodies.append(body)
            return refused
        return await self._answer(request)

    def _listed(self, path: str) -> Response:
        if path.endswith("/v1/models"):
            return JSONResponse({"object": "list", "data": [{"id": name, "object": "model"} for name in self.models]})
        name = path.rpartition("/")[2]
        return JSONResponse({"id": name}) if name in self.models else problem(404, f"The model `{name}` does not exist")

    def refused(self, request: Request) -> Response | None:
        """Return what an unfit head is answered with."""
        given = request.headers.get("authorization", "").removeprefix("Bearer ") or request.headers.get("x-api-key")
        return None if given == self.key else problem(401, f"Incorrect API key provided: {given}")

    def refused_body(self, request: Request, body: dict[str, Any]) -> Response | None:
        """Return what an unfit request is answered with."""
        if request.url.path != self.dialect.path:
            return JSONResponse({"detail": "Not Found"}, 404)
        if body.get("model") not in self.models:
            return problem(404, f"The model `{body.get('model')}` does not exist.", "model_not_found")
        if "messages" not in body and "input" not in body:
            return problem(400, "Missing required parameter", "missing_required_parameter")
        return None


@dataclass
class Azure(Double):
    """Takes its own header only; a dated version in the path's query, or none at all."""

    api_version: str | None = None

    def refused(self, request: Request) -> Response | None:
        """Return what an unfit head is answered with."""
        if "authorization" in request.headers or request.headers.get("api-key") != self.key:
            text = "Access denied due to invalid subscription key or wrong API endpoint."
            return JSONResponse({"error": {"code": "401", "message": text}}, 401)
        return None

    def _listed(self, path: str) -> Response:
        wanted = "/openai/v1/models" if self.api_version is None else "/openai/models"
        return JSONResponse({"data": [{"id": "gpt-x"}]}) if path == wanted else Response(status_code=404)

    def refused_body(self, request: Request, body: dict[str, Any]) -> Response | None:
        """Return what an unfit request is answered with."""
        path, version = request.url.path, request.query_params.get("api-version")
        last = self.dialect.path.removeprefix("/v1")
        deployment = body.get("model")
        if self.api_version is None:
            is_known = path == f"/openai/v1{last}" and version is None
        elif self.dialect.name == "responses":
            is_known = path == f"/openai{last}" and version == self.api_version
        else:
            head, _, rest = path.removeprefix("/openai/deployments/").partition("/")
            is_known = path.startswith("/openai/deployments/") and f"/{rest}" == last and version == self.api_version
            deployment = head
        if not is_known:
            return JSONResponse({"error": {"code": "404", "message": "Resource not found"}}, 404)
        if deployment not in self.models:
            text = "The API deployment for this resource does not exist."
            return JSONResponse({"error": {"code": "DeploymentNotFound", "message": text}}, 404)
        if "messages" not in body and "input" not in body:
            return problem(400, "Missing required parameter", "missing_required_parameter")
        return None

    async def _stream(self, reply: Any, asked: Any) -> AsyncIterator[bytes]:
        if self.dialect.name == "chat":  # what its filters think of the prompt comes before all else
            verdict = {"id": "", "object": "", "created": 0, "model": "", "choices": [], "prompt_filter_results": []}
            yield f"data: {json.dumps(verdict)}\n\n".encode()
        async for piece in super()._stream(reply, asked):
            yield piece


@dataclass
class Vllm(Double):
    """Gives token ids and log-probabilities when it is asked for them, one token for a character of the answer's text."""

    def refused_body(self, request: Request, body: dict[str, Any]) -> Response | None:
        """Return what an unfit request is answered with."""
        if refused := super().refused_body(request, body):
            return refused
        if any(message["role"] == "developer" for message in body["messages"]):
            return problem(400, "Unexpected message role.")
        if "tool_choice" in body and not body.get("tools"):
            return problem(400, "When using `tool_choice`, `tools` must be set.")
        if body.get("top_logprobs") and not body.get("logprobs"):
            return problem(400, "when using `top_logprobs`, `logprobs` must be set to true.")
        return None

    async def _answer(self, request: Request) -> Response:
        response = await super()._answer(request)
        body = self.bodies[-1]
        if isinstance(response, StreamingResponse):
            return StreamingResponse(_with_ids_streamed(response.body_iterator, body), media_type="text/event-stream")
        if response.status_code != 200:
            return response
        answer = json.loads(bytes(response.body))
        [choice] = answer["choices"]
        choice["logprobs"] = None
        _add_ids(choice, choice["message"].get("content") or "", body)
        if body.get("return_token_ids"):
            answer["prompt_token_ids"] = PROMPT_IDS
        return JSONResponse(answer)


def _add_ids(choice: dict[str, Any], text: str, body: dict[str, Any]) -> None:
    if body.get("return_token_ids"):
        choice["token_ids"] = [ord(character) for character in text]
    if body.get("logprobs"):
        content = [{"token": c, "logprob": -0.5, "bytes": list(c.encode()), "top_logprobs": []} for c in text]
        choice["logprobs"] = {"content": content}


async def _with_ids_streamed(pieces: Any, body: dict[str, Any]) -> AsyncIterator[bytes]:
    is_first = True
    async for piece in pieces:
        for event in bytes(piece).split(b"\n\n"):
            if not event.startswith(b"data: {"):
                yield event + b"\n\n" if event else b""
                continue
            chunk = json.loads(event[6:])
            if is_first and body.get("return_token_ids"):
                chunk["prompt_token_ids"] = PROMPT_IDS
            is_first = False
            for choice in chunk["choices"]:
                if text := choice["delta"].get("content"):
                    _add_ids(choice, text, body)
            yield f"data: {json.dumps(chunk)}\n\n".encode()


@dataclass
class Litellm(Double):
    """Says in a header what a whole answer cost; of a streamed one it cannot know yet."""

    cost: str = "0.00042"

    def refused(self, request: Request) -> Response | None:
        """Return what an unfit head is answered with."""
        is_known = request.headers.get("authorization") == f"Bearer {self.key}"
        return None if is_known else problem(401, "Authentication Error, No api key passed in.")

    async def _answer(self, request: Request) -> Response:
        response = await super()._answer(request)
        response.headers["x-litellm-call-id"] = "b980db26"
        response.headers["x-litellm-model-id"] = "cb41bc03"
        is_streamed = isinstance(response, StreamingResponse)
        response.headers["x-litellm-response-cost"] = "0.0" if is_streamed else self.cost
        return response


@dataclass
class Switchyard(Double):
    """Refuses calls that do not say whose they are; keeps whose they were."""

    sessions: list[str] = field(default_factory=list)

    def refused_body(self, request: Request, body: dict[str, Any]) -> Response | None:
        """Return what an unfit request is answered with."""
        session = request.headers.get("x-switchyard-session-id", "").strip()
        if not session:
            return problem(400, "invalid x-switchyard-session-id header: value must not be empty")
        self.sessions.append(session)
        return super().refused_body(request, body)
