"""One call through the gateway: read, recorded, asked, answered, recorded.

It runs in a task of the gateway's own, so that a client that leaves in the middle stops the backend and not the recording. The end of a
streamed answer is held back until the answer is in the log.
"""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any, Final, TypeVar

import structlog

from actors.budget import sentence
from actors.gateway.conversation import Answered, Conversation, OpenCall, OverBudget, Times
from actors.gateway.grants import Grant
from actors.gateway.outlet import Outlet
from actors.gateway.relay import Relay
from gym_bus import boundary
from gym_bus.clock import Clock
from gym_bus.errors import BusUnavailable, TooDeep
from gym_bus.event_log import Held
from gym_bus.runtime.presence import host_of
from providers.dialects import ClientDialect, Malformed, Problem, Unexpressible, Written
from providers.dialects.pairs import check_pairs, goes_on_elsewhere
from providers.dialects.sound import check_says_something, sound, sound_text
from providers.dialects.unfolding import unfold
from providers.models.backends import Backend, Incoming, object_of
from providers.models.backoff import backoff_s
from providers.models.base import ModelError
from providers.models.failures import answer_failure, failure_of
from providers.models.recorded_answer import reply_of
from providers.models.token_reading import TokenReading
from schemas.conversation import Reply, ReplyBroke, Request
from schemas.events import ModelCallCompleted
from schemas.values import Failure

log = structlog.get_logger(__name__)

T = TypeVar("T")

UNREADABLE: Final = (ValueError, TypeError, AttributeError, LookupError, ArithmeticError, RecursionError)
"""What code raises that is given another shape than it knows."""

STATUS_OF: Final[Mapping[str, int]] = {
    "provider_auth": HTTPStatus.UNAUTHORIZED,
    "provider_rate_limited": HTTPStatus.TOO_MANY_REQUESTS,
    "provider_bad_request": HTTPStatus.BAD_REQUEST,
    "context_overflow": HTTPStatus.BAD_REQUEST,
    "replay_diverged": HTTPStatus.BAD_REQUEST,  # which clients do not try again
    "provider_unavailable": HTTPStatus.SERVICE_UNAVAILABLE,
    "transport_timeout": HTTPStatus.GATEWAY_TIMEOUT,
}
JSON_HEADERS: Final = {"content-type": "application/json"}
INVOCATION_HEADERS: Final = (
    "x-gym-bus-invocation",
    "thread-id",
    "session-id",
    "x-claude-code-session-id",
    "x-session-id",
)
"""Ours, then those by which agents tell their own threads apart: Codex, Claude Code, OpenCode, Kilo, Terminus."""
INVOCATION_MAX: Final = 128
ENDS_WITHIN_S: Final = 2.0
"""How long an answer whose client has left is waited for when only its accounts are missing."""
ASKED_WITHIN_S: Final = 30.0
"""How long a call waits for the log before anything is asked of the backend."""
BUDGET_EXHAUSTED: Final = "budget_exhausted"
STREAM_HEADERS: Final = {"content-type": "text/event-stream; charset=utf-8", "cache-control": "no-cache"}


@dataclass(frozen=True, slots=True)
class _Whole:
    """An answer that is whole, and what of it the client has not got yet."""

    reply: Reply
    held: bytes


@dataclass(eq=False)
class Exchange:
    """See the module. The client speaks `client` and asks with the token for `grant`; what it gets comes out of `outlet`."""

    client: ClientDialect
    backend: Backend
    conversation: Conversation
    clock: Clock
    body: dict[str, Any]
    headers: Mapping[str, str]
    grant: Grant
    outlet: Outlet = field(default_factory=Outlet)
    _relay: Relay | None = None
    _incoming: Incoming | None = None
    _tokens: TokenReading | None = None
    _began: float = 0.0
    _made: int = 0
    _is_usage_asked: bool = False
    _was_read: bool = False
    _is_recording: bool = False
    _stopped_by: str | None = None
    _on_stopped: Callable[[], object] | None = None

    async def run(self) -> None:
        """Do all of it. Raises `Fenced` if the conversation is another process's by now, and what the log raises."""
        try:
            await self._run()
        except Unexpressible as error:
            await self._refuse(Problem(HTTPStatus.BAD_REQUEST, "invalid_request_error", str(error), error.field))
        except OverBudget as error:
            await self._refuse(Problem(HTTPStatus.BAD_REQUEST, BUDGET_EXHAUSTED, sentence(error.exhausted)))
        except Held as error:
            problem = Problem(HTTPStatus.SERVICE_UNAVAILABLE, "overloaded_error", _held(error.owner))
            await self._refuse(problem, retry_after_s=error.free_in_s)
            raise
        except Exception:  # whatever it was, the client is told; the gateway deals with it
            lost = "this gateway could not record the call, or another one has the session by now"
            await self._refuse(Problem(HTTPStatus.SERVICE_UNAVAILABLE, "overloaded_error", lost))
            raise
        finally:
            await self.outlet.end()

    async def _run(self) -> None:
        request, written = self._read()
        body = self.backend.adapted(written.body)
        if self._hides_usage(request):
            body["stream_options"] = {**(body.get("stream_options") or {}), "include_usage": True}
        self._is_usage_asked = _asks_usage(body)
        if recorded := await self._from_log(self.conversation.recall(request, self.grant)):
            await self._give(recorded, request)
            return
        while True:
            call = await self._asked(request, written.dropped)
            self._made += 1
            self._began, self._relay, self._incoming, self._is_recording = self.clock.monotonic(), None, None, False
            self._tokens = None
            boundary.reach("model", "effect_started")
            try:
                retry_in_s = await self._until_left(self._try(call, request, body), call)
            except UNREADABLE as error:
                retry_in_s = await self._failed(call, self._unreadable(error), None, "")
            if retry_in_s is None:
                return
            await self._pause(retry_in_s)
            if self._stopped_by:
                await self._say_stopped()
                return
            if self.outlet.has_left:
                return

    def _read(self) -> tuple[Request, Written]:
        """Return what the client asks, and how the backend is asked; raises `Unexpressible`, whatever is wrong with the body."""
        try:
            request = self.client.read_request(self.body)
            is_native = self.client.name == self.backend.dialect.name
            if not (is_native and goes_on_elsewhere(request)):
                check_pairs(request)
            return request, Written(self.body) if is_native else self.backend.dialect.write_request(request)
        except UNREADABLE as error:
            reason = f"cannot be read: {type(error).__name__}: {error!s:.200}"
            log.warning("body_unreadable", dialect=self.client.name, reason=reason)
            raise Unexpressible("body", reason) from error

    def stop(self, reason: str) -> None:
        """End the call because of `reason`, and tell its client; what is being recorded is recorded."""
        self._stopped_by = reason
        if self._on_stopped:
            self._on_stopped()

    async def _say_stopped(self) -> None:
        problem = Problem(HTTPStatus.SERVICE_UNAVAILABLE, "overloaded_error", f"{self._stopped_by}: ask again")
        await self._refuse(problem)

    def _interrupt_with(self, end: Callable[[], object] | None) -> None:
        """Have `end` called when the client leaves or the call is stopped; at once if that is so already."""
        self.outlet.on_left = self._on_stopped = end
        if end and (self.outlet.has_left or self._stopped_by):
            end()

    async def _give(self, recorded: ModelCallCompleted, request: Request) -> None:
        """Answer with what is recorded, streamed or in one piece as it is asked for now."""
        reply = reply_of(
            recorded, self.backend.dialect.name, else_id=f"recorded-{recorded.request_id}", else_model=request.model
        )
        if not request.is_streamed:
            content = json.dumps(self.client.write_reply(reply, request), ensure_ascii=False).encode(errors="replace")
            self.outlet.begin(HTTPStatus.OK, dict(JSON_HEADERS))
            await self.outlet.put(content)
            return
        writer = self.client.stream_writer(request)
        self.outlet.begin(HTTPStatus.OK, dict(STREAM_HEADERS))
        await self.outlet.put(b"".join(writer.write(delta) for delta in unfold(reply)))

    async def _asked(self, request: Request, dropped: Sequence[str]) -> OpenCall:
        asking = self.conversation.ask(request, self.backend.target, dropped, self._invocation(), self.grant)
        return await self._from_log(asking)

    async def _from_log(self, work: Coroutine[Any, Any, T]) -> T:
        """Await what the log has to say before a backend is asked; not longer than the client, nor than is bearable."""
        asking = asyncio.ensure_future(work)
        self._interrupt_with(asking.cancel)
        try:
            async with asyncio.timeout(ASKED_WITHIN_S):
                return await asking
        except asyncio.CancelledError as error:
            own = asyncio.current_task()
            if own and own.cancelling():
                asking.cancel()
                raise
            msg = f"nothing was asked: {self._stopped_by or 'the client left'}"
            raise BusUnavailable(msg) from error
        except TimeoutError as error:
            msg = f"the log did not answer for {ASKED_WITHIN_S:g} s: nothing was asked"
            raise BusUnavailable(msg) from error
        except TooDeep as error:
            raise Unexpressible("body", f"cannot be recorded: {error}") from error
        except (ValueError, RecursionError) as error:  # of writing it down: nothing has been stored, or asked
            raise Unexpressible("body", f"cannot be recorded: {type(error).__name__}: {error!s:.200}") from error
        finally:
            self._interrupt_with(None)

    async def _pause(self, seconds: float) -> None:
        """Wait before the next try, or until the client leaves."""
        leaving: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._interrupt_with(leaving.cancel)
        try:
            await asyncio.wait({leaving}, timeout=seconds)
        finally:
            self._interrupt_with(None)

    async def _until_left(self, trying: Coroutine[Any, Any, float | None], call: OpenCall) -> float | None:
        """Make one try; when the client leaves, end it and state so. What is being recorded is recorded: half an append is none."""
        working = asyncio.ensure_future(trying)

        def left() -> None:
            if self._is_recording:
                return
            if self._relay and self._relay.is_ending:  # it may have read all that it wants: the rest is the record's
                self._was_read = True
                asyncio.get_running_loop().call_later(
                    ENDS_WITHIN_S, lambda: None if self._is_recording else working.cancel()
                )
                return
            working.cancel()

        self._interrupt_with(left)
        try:
            return await working
        except asyncio.CancelledError:
            own = asyncio.current_task()
            if not (self.outlet.has_left or self._stopped_by) or (own and own.cancelling()):
                working.cancel()
                raise
            reason = self._stopped_by or "the client left"
            failure = Failure(kind="cancelled", message=reason, stage="model", terminal=True)
            await self.conversation.fail(call, failure, self._times(), parts=self._said())
            if self._stopped_by:
                await self._say_stopped()
            return None
        finally:
            self._interrupt_with(None)

    async def _try(self, call: OpenCall, request: Request, body: dict[str, Any]) -> float | None:
        """Ask once and answer the client; or state the failure, and return the wait before the next try if there is one."""
        status, said = None, ""
        try:
            async with self.backend.open(body, call.id, self.headers) as incoming:
                status, self._incoming = incoming.status, incoming
                kind = self.backend.logprob_kind
                self._tokens = TokenReading(kind) if kind else None
                if status != HTTPStatus.OK:
                    said = (await incoming.body()).decode(errors="replace")
                    raise failure_of(status, incoming.headers, said, self.backend.url)
                whole = await (self._streamed if request.is_streamed else self._at_once)(request, incoming)
        except (Malformed, Unexpressible) as error:  # no answer at all, or one that the client's dialect cannot say
            return await self._failed(call, answer_failure(str(error), self.backend.url), status, said)
        except ModelError as error:
            return await self._failed(call, error, status, said)
        boundary.reach("model", "effect_done")
        self._is_recording = True  # the backend's deadline is over, and no client cuts this short
        await self.conversation.complete(call, self._answered(whole.reply))
        boundary.reach("model", "result_appended")
        self.outlet.begin(HTTPStatus.OK, dict(STREAM_HEADERS if request.is_streamed else JSON_HEADERS))
        await self.outlet.put(whole.held)
        return None

    def _unreadable(self, error: Exception) -> ModelError:
        """Return what stands for an answer of which nobody had thought: it is the backend's, and closes its call like others."""
        reason = f"cannot be read: {type(error).__name__}: {error!s:.200}"
        log.warning("answer_unreadable", dialect=self.backend.dialect.name, reason=reason, exc_info=error)
        return answer_failure(reason, self.backend.url)

    async def _failed(self, call: OpenCall, problem: ModelError, status: int | None, said: str) -> float | None:
        clean = sound_text(self.backend.without_key(problem.failure.message))
        failure, said = problem.failure.model_copy(update={"message": clean}), self.backend.without_key(said)
        may_retry = not failure.terminal and self._made < self.backend.max_tries and not self.outlet.has_begun
        retry_in_s = backoff_s(self._made, call.id, problem.retry_after_s) if may_retry else None
        self._is_recording = True
        await self.conversation.fail(
            call, failure, self._times(), retry_in_s=retry_in_s, status=status, body=said, parts=self._said()
        )
        if retry_in_s is None:
            code = STATUS_OF.get(failure.kind, HTTPStatus.BAD_GATEWAY)
            await self._refuse(Problem(code, failure.kind, failure.message))
        return retry_in_s

    async def _at_once(self, request: Request, incoming: Incoming) -> _Whole:
        """Read an answer that comes in one piece; the client gets nothing of it before it is recorded."""
        content = await incoming.body()
        answer = object_of(content)
        reply = sound(self.backend.dialect.read_reply(answer))
        check_says_something(reply)
        if self._tokens:
            self._tokens.feed(answer)
        if self.client.name != self.backend.dialect.name:
            content = json.dumps(self.client.write_reply(reply, request), ensure_ascii=False).encode(errors="replace")
        return _Whole(reply, content)

    async def _streamed(self, request: Request, incoming: Incoming) -> _Whole:
        """Pass an answer on as it comes, but for its end."""
        is_native = self.client.name == self.backend.dialect.name
        writer = None if is_native else self.client.stream_writer(request)
        hides_usage = self._hides_usage(request)
        relay = self._relay = Relay(
            self.backend.dialect,
            writer,
            self.clock,
            self._tokens,
            hides_usage=hides_usage,
            is_usage_asked=self._is_usage_asked,
        )
        async for chunk in incoming.chunks:
            for ready in relay.feed(chunk):
                if ready is None:  # the first word leaves before the rest is read, and so do those of others
                    await asyncio.sleep(0)
                    continue
                self.outlet.begin(HTTPStatus.OK, dict(STREAM_HEADERS))
                await self.outlet.put(ready)
            if relay.is_whole:  # some servers keep the connection open, some break it off
                break
        held = relay.end()
        return _Whole(relay.reply(), held)

    async def _refuse(self, problem: Problem, retry_after_s: float | None = None) -> None:
        """Tell the client of an error: as its answer, or in mid-stream."""
        if self.outlet.has_begun:
            writer = self.client.stream_writer(self.client.read_request(self.body))
            await self.outlet.put(writer.write(ReplyBroke(message=problem.message, code=problem.code)))
            return
        waits = {"retry-after": str(math.ceil(retry_after_s))} if retry_after_s else {}
        self.outlet.begin(problem.status, {**JSON_HEADERS, **waits})
        await self.outlet.put(json.dumps(self.client.write_problem(problem)).encode())

    def _invocation(self) -> str | None:
        """Return what the client says of itself, by the first header that says anything."""
        found = ((name, self.headers.get(name)) for name in INVOCATION_HEADERS)
        return next((f"{name}:{value[:INVOCATION_MAX]}" for name, value in found if value), None)

    def _hides_usage(self, request: Request) -> bool:
        """Say whether the log wants to know what a stream cost and its client, of the same dialect, did not ask."""
        is_chat = self.client.name == self.backend.dialect.name == "chat"
        return is_chat and request.is_streamed and not request.wants_usage

    def _answered(self, reply: Reply) -> Answered:
        return Answered(
            reply,
            self._times(),
            self._tokens.evidence() if self._tokens else None,
            self._incoming.cost_usd if self._incoming else None,
            is_unread=self.outlet.has_left and not self._was_read,
            was_shown=self.outlet.has_begun,
        )

    def _said(self) -> tuple[Any, ...]:
        return self._relay.said() if self._relay else ()

    def _times(self) -> Times:
        first = self._relay.first_at if self._relay else None
        queue_s = self._incoming.queue_s if self._incoming else None
        return Times(self.clock.monotonic() - self._began, None if first is None else first - self._began, queue_s)


def _asks_usage(body: Mapping[str, Any]) -> bool:
    """Say whether a backend is asked to tell what a stream of Chat Completions cost."""
    options = body.get("stream_options")
    return isinstance(options, dict) and options.get("include_usage") is True


def _held(owner: str) -> str:
    return f"the gateway {host_of(owner)} has this session and is alive: ask there; if it dies, this one takes over within its lease"
