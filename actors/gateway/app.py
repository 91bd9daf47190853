"""The gateway's HTTP face: routes, tokens, bounds. What a call does is in `exchange`.

Every path exists twice: with the session's token in a header, and behind `/a/<token>` for clients that can only be given a base URL.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from http import HTTPStatus
from typing import Any, Final

import structlog
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Mount, Route, Router
from starlette.types import Receive, Scope, Send

from actors.gateway.conversations import KEPT, Conversations, Known, TooMuch
from actors.gateway.exchange import Exchange
from actors.gateway.gemini_face import GeminiFace
from actors.gateway.grants import Grant, Refused, SessionOver, read
from actors.gateway.passing import Passing, retry_headers
from actors.gateway.sessions import OpenSession, Sessions
from actors.gateway.tool_answers import ToolAnswers
from actors.gateway.tool_calls import ToolCalls
from actors.gateway.tool_faces import ToolFaces
from gym_bus.clock import Clock
from gym_bus.errors import BusUnavailable, Fenced, GymBusError
from gym_bus.event_log import EventLog, Held
from gym_bus.nesting import GIVEN_MAX_LEVELS, is_deeper
from gym_bus.runtime.presence import Presence
from providers.dialects import ClientDialect, Dialect, Problem
from providers.dialects.catalog import CLIENTS, DIALECTS
from providers.dialects.json_text import strictly
from providers.models.backends import Backend
from schemas.events import SessionRequested

log = structlog.get_logger(__name__)

BODY_MAX_BYTES: Final = 32 * 1024 * 1024
HEADERS_MAX_BYTES: Final = 32 * 1024
BODY_WITHIN_S: Final = 120.0
MESSAGES_MAX: Final = 20_000
PARSED_ASIDE_BYTES: Final = 256 * 1024
"""What is larger is parsed in a thread: heartbeats and other calls' streams go on meanwhile."""
CHARACTERS_A_TOKEN: Final = 4
BELOW_GEMINI: Final = re.compile(r"(?:/a/[^/]*)?/v1beta(?P<rest>/.*|)", re.DOTALL)
MODELS: Final = re.compile(r"/models(?:/.+)?")
SURROGATE: Final = re.compile(rb"\\u[dD][89a-fA-F]")


class Gateway:
    """See the module."""

    def __init__(
        self,
        event_log: EventLog,
        clock: Clock,
        key: bytes,
        backend_for: Callable[[SessionRequested, str], Backend],
        presence: Presence,
    ) -> None:
        """Record in `event_log`; take tokens that `key` has signed; call what `backend_for` returns for a session.

        A session that another gateway has is left to it while it lives, as far as `presence` knows.
        """
        self._clock = clock
        self._key = key
        self._backend_for = backend_for
        self._sessions = Sessions(event_log, clock)
        self._conversations = Conversations(event_log, clock, presence)
        self._answers = ToolAnswers(event_log)
        self._made_tool_calls = partial(ToolCalls, event_log, clock, presence=presence, answers=self._answers)
        self._tool_calls: OrderedDict[str, ToolCalls] = OrderedDict()
        self._under_way: set[Exchange] = set()
        self._working: set[asyncio.Task[None]] = set()
        self._group: asyncio.TaskGroup | None = None
        faces = ToolFaces(self._tools_of, partial(_body_of, parsed=_parsed))
        inner = [
            *(self._route(dialect) for dialect in DIALECTS.values()),
            Route("/v1/messages/count_tokens", _guarded(DIALECTS["messages"], self._count_tokens), methods=["POST"]),
            Route("/v1/models", _guarded(DIALECTS["chat"], self._models), methods=["GET"]),
            *self._gemini_routes(),
            Route("/mcp/{grant}", faces.mcp, methods=["GET", "POST", "DELETE"]),
            Route("/tools", faces.listed, methods=["GET"]),
            Route("/tools/{name}", faces.called, methods=["POST"]),
        ]
        self.app = Router(  # without Starlette's own error pages, which every piece of an answer would pass through
            routes=[
                Route("/healthz", _healthy, methods=["GET"]),
                *inner,
                Mount("/a/{token}", app=Router(routes=inner, default=_unknown)),
            ],
            default=_unknown,
        )

    async def run(self) -> None:
        """Let calls go on after their clients have left, until cancelled."""
        async with self._answers.hearing(), asyncio.TaskGroup() as group:
            self._group = group
            await asyncio.Event().wait()

    async def stop(self, within_s: float) -> None:
        """End what is under way, and let it be recorded that it was."""
        for exchange in list(self._under_way):
            exchange.stop("the gateway was stopped")
        if self._working:
            await asyncio.wait(self._working, timeout=within_s)

    # -- calls ---------------------------------------------------------------------------------------------------------------

    def _route(self, dialect: Dialect) -> Route:
        async def call(request: Request) -> Response:
            return await self._call(dialect, request)

        return Route(dialect.path, _guarded(dialect, call), methods=["POST"])

    def _gemini_routes(self) -> list[BaseRoute]:
        dialect = CLIENTS["gemini"]
        face = GeminiFace(partial(self._call, dialect), self._model_name, self._estimated)
        return [
            Route("/v1beta/models/{model:path}:{verb}", _guarded(dialect, face.asked), methods=["POST"]),
            Route("/v1beta/models", _guarded(dialect, face.models), methods=["GET"]),
            Route("/v1beta/models/{model:path}", _guarded(dialect, face.model), methods=["GET"]),
            Mount("/v1beta", app=_unknown),
        ]

    async def _call(self, dialect: ClientDialect, request: Request, about: Mapping[str, Any] | None = None) -> Response:
        """Make a call; what its address says, `about`, is put into its body."""
        grant = self._grant(request)
        session = await self._open_session(grant)
        known = self._conversations.begin(grant, session)
        try:
            body = await _body_of(request)
            backend = self._backend_for(session.request, grant.session)
            body |= _unsaid(body, about or {})
            exchange = Exchange(dialect, backend, known.conversation, self._clock, body, dict(request.headers), grant)
            self._start(exchange, known)
        except BaseException:
            self._conversations.end(known)
            raise
        return Passing(exchange.outlet)

    async def _open_session(self, grant: Grant) -> OpenSession:
        try:
            return await self._sessions.find(grant)
        except SessionOver:
            self._conversations.drop(grant)
            self._tool_calls.pop(grant.session, None)
            raise

    def _grant(self, request: Request) -> Grant:
        """Return what a request's token is for; of several that clients send, one must be good. Raises `Refused`."""
        bearer = request.headers.get("authorization", "")
        given = [
            request.path_params.get("token"),
            request.headers.get("x-api-key"),
            request.headers.get("x-goog-api-key"),
            bearer[7:].strip() if bearer.lower().startswith("bearer ") else None,
        ]
        refused = Refused(
            "no token: give the session's as Bearer, as x-api-key, as x-goog-api-key, or in the path (/a/<token>/v1/…)"
        )
        for token in filter(None, given):
            try:
                return read(self._key, token)
            except Refused as error:
                refused = error
        raise refused

    def _start(self, exchange: Exchange, known: Known) -> None:
        if self._group is None:
            msg = "the gateway takes calls only while it runs"
            raise RuntimeError(msg)

        async def work() -> None:
            try:
                await exchange.run()
            except (Fenced, Held) as error:
                log.info("conversation_elsewhere", conversation=known.name, reason=str(error))
            except BusUnavailable as error:
                log.warning("call_not_asked", conversation=known.name, reason=str(error))
            except Exception as error:
                log.exception("call_broke", conversation=known.name, reason=str(error))
            finally:
                self._under_way.discard(exchange)
                self._conversations.end(known)

        self._under_way.add(exchange)

        task = self._group.create_task(work())
        self._working.add(task)
        task.add_done_callback(self._working.discard)

    async def _tools_of(self, request: Request) -> tuple[Grant, OpenSession, ToolCalls]:
        """Return the session that a request's token is for, and its calls of the task's tools; raises `Refused`."""
        grant = self._grant(request)
        session = await self._open_session(grant)
        calls = self._tool_calls.get(grant.session)
        if calls is None:
            if len(self._tool_calls) >= KEPT:
                self._tool_calls.popitem(last=False)
            calls = self._tool_calls[grant.session] = self._made_tool_calls(grant=grant, session=session)
        self._tool_calls.move_to_end(grant.session)
        return grant, session, calls

    # -- what else clients ask for ---------------------------------------------------------------------------------------------

    async def _models(self, request: Request) -> Response:
        """List the one model that the session has."""
        name = await self._model_name(request)
        model = {
            "id": name,
            "object": "model",
            "created": 0,
            "owned_by": "gym-bus",
            "type": "model",
            "display_name": name,
        }
        return JSONResponse({"object": "list", "data": [model], "has_more": False, "first_id": name, "last_id": name})

    async def _model_name(self, request: Request) -> str:
        asked = (await self._sessions.find(self._grant(request))).request
        return str(getattr(asked.model, "policy_model_name", asked.model.type))

    async def _count_tokens(self, request: Request) -> Response:
        """Answer with an estimate, and say that it is one."""
        said = ("system", "messages", "tools")
        tokens, headers = await self._estimated(request, lambda body: [body.get(name) for name in said])
        return JSONResponse({"input_tokens": tokens}, headers=dict(headers))

    async def _estimated(
        self, request: Request, said: Callable[[dict[str, Any]], Any]
    ) -> tuple[int, Mapping[str, str]]:
        """Return how many tokens what a body says may be, four characters each, and the header that says so."""
        await self._sessions.find(self._grant(request))
        text = json.dumps(said(await _body_of(request)), ensure_ascii=False)
        headers = {"x-gym-bus-estimate": f"{CHARACTERS_A_TOKEN} characters a token"}
        return max(1, len(text) // CHARACTERS_A_TOKEN), headers


def _unsaid(body: dict[str, Any], about: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return what an address says; raises `TooMuch` for a body that says something else, but for its model's name."""
    for name in about.keys() & body.keys() - {"model"}:
        raise TooMuch(HTTPStatus.BAD_REQUEST, f"{name}: is said by the address here, and no field of the body")
    return about


def _guarded(
    dialect: ClientDialect, handle: Callable[[Request], Awaitable[Response]]
) -> Callable[[Request], Awaitable[Response]]:
    """Return an endpoint that tells what goes wrong in the shape of `dialect`."""

    async def endpoint(request: Request) -> Response:
        try:
            return await handle(request)
        except Refused as error:
            problem = Problem(HTTPStatus.UNAUTHORIZED, "authentication_error", str(error))
        except TooMuch as error:
            is_rate = error.status == HTTPStatus.TOO_MANY_REQUESTS
            problem = Problem(error.status, "rate_limit_error" if is_rate else "invalid_request_error", str(error))
        except GymBusError as error:
            log.warning("gateway_call_failed", reason=str(error))
            problem = Problem(HTTPStatus.SERVICE_UNAVAILABLE, "overloaded_error", str(error))
        return JSONResponse(dialect.write_problem(problem), problem.status, headers=retry_headers(problem.status))

    return endpoint


def _asked(content: bytes) -> Any:
    """Return the JSON of a question to a model; raises `ValueError` for a number that is none, `TooMuch` for too many levels."""
    msg = f"the body has more than {GIVEN_MAX_LEVELS} levels of arrays and objects inside one another"
    try:
        body = _parsed(content, strictly)
    except RecursionError as error:
        raise TooMuch(HTTPStatus.BAD_REQUEST, msg) from error
    if is_deeper(content, GIVEN_MAX_LEVELS):
        raise TooMuch(HTTPStatus.BAD_REQUEST, msg)
    return body


def _parsed(content: bytes, load: Callable[[str], Any] = json.loads) -> Any:
    """Return the JSON of `content`; half of a surrogate pair, as clients leave that cut text in the middle, becomes U+FFFD."""
    body = load(content.decode())
    if SURROGATE.search(content):
        text = json.dumps(body, ensure_ascii=False)
        body = json.loads(text.encode("utf-16", "surrogatepass").decode("utf-16", "replace"))
    return body


async def _body_of(request: Request, parsed: Callable[[bytes], Any] = _asked) -> dict[str, Any]:
    """Return the request's JSON object, read by `parsed`; raises `TooMuch` for one that is too large or none."""
    if sum(len(name) + len(value) for name, value in request.headers.raw) > HEADERS_MAX_BYTES:
        raise TooMuch(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, f"headers of more than {HEADERS_MAX_BYTES:,} bytes")
    pieces, size = [], 0
    try:
        async with asyncio.timeout(BODY_WITHIN_S):
            async for chunk in request.stream():
                size += len(chunk)
                if size > BODY_MAX_BYTES:
                    raise TooMuch(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"a body of more than {BODY_MAX_BYTES:,} bytes")
                pieces.append(chunk)
    except TimeoutError as error:
        msg = f"the request was not whole after {BODY_WITHIN_S:g} s"
        raise TooMuch(HTTPStatus.REQUEST_TIMEOUT, msg) from error
    except ClientDisconnect as error:
        raise TooMuch(HTTPStatus.BAD_REQUEST, "the client left before its request was whole") from error
    content = b"".join(pieces)
    try:
        body = await asyncio.to_thread(parsed, content) if size > PARSED_ASIDE_BYTES else parsed(content)
    except (ValueError, RecursionError) as error:
        raise TooMuch(HTTPStatus.BAD_REQUEST, f"the body is no JSON: {error!s:.200}") from error
    if not isinstance(body, dict):
        raise TooMuch(HTTPStatus.BAD_REQUEST, "the body is no JSON object")
    for key in ("messages", "input", "contents"):
        if isinstance(said := body.get(key), list) and len(said) > MESSAGES_MAX:
            raise TooMuch(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"{len(said):,} {key}, and {MESSAGES_MAX:,} is the most")
    return body


async def _healthy(_: Request) -> Response:
    return JSONResponse({"status": "ok"})


async def _unknown(scope: Scope, receive: Receive, send: Send) -> None:
    """Answer what is asked at a path that is not served; a token in it is not repeated."""
    served = ", ".join((*(dialect.path for dialect in DIALECTS.values()), "/v1/models", "/v1beta/models"))
    problem = Problem(HTTPStatus.NOT_FOUND, "not_found", f"no such path here; served are {served} and /healthz")
    found = BELOW_GEMINI.match(scope["path"])
    if found and MODELS.fullmatch(found["rest"]):
        problem = Problem(
            HTTPStatus.METHOD_NOT_ALLOWED, "not_found", f"no {scope['method'][:20]!r} here: GET a model, POST a verb"
        )
    said = CLIENTS["gemini" if found else "chat"].write_problem(problem)
    allowed = {"allow": "GET, HEAD, POST"} if problem.status == HTTPStatus.METHOD_NOT_ALLOWED else None
    await JSONResponse(said, problem.status, headers=allowed)(scope, receive, send)
