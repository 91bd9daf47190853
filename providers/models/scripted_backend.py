"""The deterministic stand-in behind the gateway: it speaks Chat Completions as a real server would, streamed and not."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final

from providers.dialects import Dialect, Unexpressible
from providers.dialects.chat import Chat
from providers.dialects.unfolding import unfold
from providers.models.backends import Incoming
from providers.models.base import Model, ModelAnswer, ModelCall, Target
from providers.models.failures import failed
from schemas.conversation import Part, Reply, Request, Text, TokenUsage, Tool, ToolResult, ToolUse, Turn
from schemas.tokens import LogprobKind
from schemas.values import Message, Sampling, ToolCall, ToolSpec

MODEL: Final = "scripted"


class ScriptedBackend:
    """Answers as the scripted model does; a call's turn is the number of answers before it in the conversation, plus one."""

    url = "the scripted model"
    target = Target(url)
    logprob_kind: LogprobKind | None = None

    def __init__(self, model: Model, task_id: str, repeat: int, max_tries: int) -> None:
        """Answer for the task `task_id` in its repeat `repeat`."""
        self.dialect: Dialect = Chat()
        self.max_tries = max_tries
        self._model = model
        self._task_id = task_id
        self._repeat = repeat
        self._tries: dict[int, int] = {}

    def adapted(self, body: dict[str, Any]) -> dict[str, Any]:
        """Return a body with the model's own name."""
        return {**body, "model": MODEL}

    @asynccontextmanager
    async def open(self, body: dict[str, Any], call_id: str, headers: Mapping[str, str]) -> AsyncGenerator[Incoming]:  # noqa: ARG002  there is no HTTP here
        """Answer a call; see `Backend`."""
        try:
            request = self.dialect.read_request(body)
        except Unexpressible as error:
            raise failed("provider_bad_request", str(error), terminal=True) from error
        turn = 1 + sum(t.role == "assistant" for t in request.turns)
        self._tries[turn] = self._tries.get(turn, 0) + 1
        call = ModelCall(
            call_id=call_id,
            task_id=self._task_id,
            repeat=self._repeat,
            turn=turn,
            tries=self._tries[turn],
            messages=tuple(m for t in request.turns for m in _messages(t)),
            tools=tuple(_spec(t) for t in request.tools or () if isinstance(t, Tool)),
            sampling=Sampling(),
        )
        yield Incoming(200, {}, self._chunks(_reply(await self._model.complete(call), call_id), request))

    async def _chunks(self, reply: Reply, request: Request) -> AsyncIterator[bytes]:
        if not request.is_streamed:
            yield json.dumps(self.dialect.write_reply(reply, request)).encode()
            return
        writer = self.dialect.stream_writer(request)
        for delta in unfold(reply):
            yield writer.write(delta)

    def without_key(self, text: str) -> str:
        """Return `text` as it is: there is no key."""
        return text

    async def aclose(self) -> None:
        """Give back nothing: the model is somebody else's."""


def _messages(turn: Turn) -> list[Message]:
    """Return a turn as the plain messages that the scripted model reads."""
    if turn.role == "tool":
        results = [part for part in turn.parts if isinstance(part, ToolResult)]
        return [Message(role="tool", content=_words(part.parts), tool_call_id=part.call_id) for part in results]
    calls = tuple(ToolCall(id=p.id, name=p.name, arguments=p.arguments) for p in turn.parts if isinstance(p, ToolUse))
    role = "system" if turn.role == "developer" else turn.role
    return [Message(role=role, content=_words(turn.parts), tool_calls=calls)]


def _words(parts: Sequence[Part]) -> str:
    return "".join(part.text for part in parts if isinstance(part, Text))


def _spec(tool: Tool) -> ToolSpec:
    return ToolSpec(name=tool.name, description=tool.description or "", parameters=tool.parameters or {})


def _reply(answer: ModelAnswer, call_id: str) -> Reply:
    message, usage = answer.message, answer.usage
    words: tuple[Part, ...] = (Text(text=message.content),) if message.content else ()
    return Reply(
        dialect="chat",
        id=f"chatcmpl-{call_id}",
        model=MODEL,
        parts=(*words, *(ToolUse(id=c.id, name=c.name, arguments=c.arguments) for c in message.tool_calls)),
        stop_reason=answer.stop_reason,
        usage=TokenUsage(input_tokens=usage.input_tokens, output_tokens=usage.output_tokens),
    )
