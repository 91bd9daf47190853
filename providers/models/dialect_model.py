"""A model for native agents behind any dialect: Responses and Messages by the conversions that the gateway uses."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from http import HTTPStatus
from itertools import groupby
from typing import Final

from providers.dialects import Malformed, Unexpressible
from providers.models.backends import object_of
from providers.models.base import ModelAnswer, ModelCall, ModelError, Target, counted
from providers.models.failures import answer_failure, failed, failure_of
from providers.models.http_backend import HttpBackend
from providers.models.token_reading import TokenReading
from schemas.conversation import Part, Reply, Request, Text, TokenUsage, Tool, ToolResult, ToolUse, Turn
from schemas.events.model import StopReason
from schemas.values import Message, ToolCall, Usage

STOPS: Final[dict[str, StopReason]] = {
    "stop": "stop",
    "stop_sequence": "stop",
    "pause": "stop",
    "tool_calls": "tool_calls",
    "length": "length",
    "content_filter": "content_filter",
    "refusal": "content_filter",
}


class DialectModel:
    """One model of one backend. Thoughts are not carried from call to call: a plain conversation has no place for them."""

    def __init__(self, backend: HttpBackend) -> None:
        """Ask `backend`."""
        self._backend = backend

    async def target(self, call: ModelCall) -> Target:
        """Return where `call` will go."""
        return self._view(call).target

    async def complete(self, call: ModelCall) -> ModelAnswer:
        """Ask once; raise `ModelError` for every failure, within the configured `timeout_s`."""
        backend = self._view(call)
        try:
            return await self._ask(backend, call)
        except ModelError as error:
            clean = backend.without_key(error.failure.message)
            raise ModelError(error.failure.model_copy(update={"message": clean}), error.retry_after_s) from error

    def _view(self, call: ModelCall) -> HttpBackend:
        return self._backend.for_session(call.session or f"{call.task_id}/{call.repeat}")

    async def _ask(self, backend: HttpBackend, call: ModelCall) -> ModelAnswer:
        dialect = backend.dialect
        try:
            body = backend.adapted(dialect.write_request(request_of(call)).body)
        except Unexpressible as error:
            raise failed("provider_bad_request", f"{dialect.name} cannot say this: {error}", terminal=True) from error
        async with backend.open(body, call.call_id, {}) as incoming:
            content = await incoming.body()
        if incoming.status != HTTPStatus.OK:
            raise failure_of(incoming.status, incoming.headers, content.decode(errors="replace"), backend.url)
        try:
            said = object_of(content)
            reply = dialect.read_reply(said)
        except Malformed as error:
            raise answer_failure(str(error), backend.url) from error
        answer = replace(answer_of(reply), cost_usd=incoming.cost_usd, queue_s=incoming.queue_s)
        if backend.logprob_kind is None:
            return answer
        reading = TokenReading(backend.logprob_kind)
        reading.feed(said)
        return replace(answer, tokens=reading.evidence())

    async def aclose(self) -> None:
        """Give back connections."""
        await self._backend.aclose()


def request_of(call: ModelCall) -> Request:
    """Return a native agent's call in the form that all dialects are written from."""
    sampling = call.sampling
    tools = tuple(Tool(name=t.name, description=t.description, parameters=t.parameters) for t in call.tools)
    return Request(
        dialect="chat",
        model="",
        turns=_turns(call.messages),
        tools=tools or None,
        parallel_tool_calls=call.parallel_tool_calls if tools else None,
        max_output_tokens=sampling.max_output_tokens,
        temperature=sampling.temperature,
        top_p=sampling.top_p,
        seed=sampling.seed,
    )


def _turns(messages: Sequence[Message]) -> tuple[Turn, ...]:
    turns: list[Turn] = []
    for are_results, run in groupby(messages, key=lambda message: message.role == "tool"):
        if are_results:
            turns.append(Turn(role="tool", parts=tuple(_result(message) for message in run)))
        else:
            turns += [_turn(message) for message in run]
    return tuple(turns)


def _result(message: Message) -> ToolResult:
    return ToolResult(call_id=message.tool_call_id or "", parts=(Text(text=message.content or ""),))


def _turn(message: Message) -> Turn:
    words: tuple[Part, ...] = (Text(text=message.content),) if message.content else ()
    calls = tuple(ToolUse(id=c.id, name=c.name, arguments=c.arguments) for c in message.tool_calls)
    return Turn(role=message.role, parts=(*words, *calls), is_plain=not calls)


def answer_of(reply: Reply) -> ModelAnswer:
    """Return an answer as a native agent's plain message."""
    words = [part.text for part in reply.parts if isinstance(part, Text)]
    calls = tuple(ToolCall(id=p.id, name=p.name, arguments=p.arguments) for p in reply.parts if isinstance(p, ToolUse))
    stop_reason = STOPS[reply.stop_reason]
    if calls and stop_reason == "stop":  # several backends say so
        stop_reason = "tool_calls"
    elif not calls and stop_reason == "tool_calls":
        stop_reason = "stop"
    return ModelAnswer(
        Message(role="assistant", content="".join(words) if words else None, tool_calls=calls),
        stop_reason,
        usage_of(reply),
        reply_id=reply.id,
        served_model=reply.model,
    )


def usage_of(reply: Reply) -> Usage:
    """Return the tokens of an answer; what is not known is 0."""
    usage = reply.usage or TokenUsage()
    return Usage(
        input_tokens=counted(usage.input_tokens),
        output_tokens=counted(usage.output_tokens),
        cached_tokens=counted(usage.cached_tokens),
        reasoning_tokens=counted(usage.reasoning_tokens),
    )
