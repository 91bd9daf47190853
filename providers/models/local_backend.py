"""The local model behind the gateway: Chat Completions with token ids and log-probabilities, in the places where vLLM has them."""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final

from providers.dialects import Dialect, Unexpressible
from providers.dialects.chat import Chat
from providers.models.backends import Incoming
from providers.models.base import Target
from providers.models.failures import failed
from providers.models.local_engine import Answering, Engine
from providers.models.local_generation import Piece, Wish
from providers.models.local_runtime import MODEL, Draw, Token
from schemas.config import LocalModel as LocalModelConfig
from schemas.conversation import Request, Text, ToolResult, Turn
from schemas.tokens import LogprobKind

TOP_LOGPROBS_MAX: Final = 20


class LocalBackend:
    """See the module. Tools that are offered are not shown to the model; a call that must use one is refused."""

    url = f"the local model {MODEL}"
    target = Target(url)
    logprob_kind: LogprobKind | None = "raw"

    def __init__(self, config: LocalModelConfig, concurrency: int, max_tries: int) -> None:
        """Take up to `concurrency` calls at once; they are answered one after the other."""
        self.dialect: Dialect = Chat()
        self.max_tries = max_tries
        self._config = config
        self._engine = Engine(config, concurrency)

    def adapted(self, body: dict[str, Any]) -> dict[str, Any]:
        """Return a body with the model's own name."""
        return {**body, "model": MODEL}

    @asynccontextmanager
    async def open(self, body: dict[str, Any], call_id: str, headers: Mapping[str, str]) -> AsyncGenerator[Incoming]:  # noqa: ARG002  there is no HTTP here
        """Answer a call; see `Backend`."""
        try:
            request = self.dialect.read_request(body)
            _check(request)
            messages = [message for turn in request.turns for message in _messages(turn)]
        except Unexpressible as error:
            raise failed("provider_bad_request", f"{MODEL}: {error}", terminal=True) from error
        async with self._engine.answering(messages, self._wish(request)) as answering:
            written = _Written(f"chatcmpl-{call_id}", int(time.time()), request, answering)
            chunks = written.stream() if request.is_streamed else written.whole()
            yield Incoming(200, {}, chunks, queue_s=answering.queue_s)

    def _wish(self, request: Request) -> Wish:
        draw = Draw(
            temperature=1.0 if request.temperature is None else request.temperature,
            top_k=request.top_k or 0,
            top_p=1.0 if request.top_p is None else request.top_p,
            seed=secrets.randbits(32) if request.seed is None else request.seed,
            top_logprobs=min(request.top_logprobs or 0, TOP_LOGPROBS_MAX),
        )
        return Wish(draw, request.max_output_tokens or self._config.max_output_tokens, request.stop or ())

    def without_key(self, text: str) -> str:
        """Return `text` as it is: there is no key."""
        return text

    async def aclose(self) -> None:
        """Unload the model."""
        await self._engine.aclose()


class _Written:
    """One answer as a body, or as server-sent events."""

    def __init__(self, id_: str, created: int, request: Request, answering: Answering) -> None:
        self._head = {"id": id_, "created": created, "model": MODEL}
        self._request = request
        self._answering = answering
        self._count = 0

    async def whole(self) -> AsyncIterator[bytes]:
        pieces = [piece async for piece in self._answering.pieces]
        tokens = [piece.token for piece in pieces if piece.token]
        self._count = len(tokens)
        choice = {
            "index": 0,
            "message": {"role": "assistant", "content": "".join(piece.text for piece in pieces)},
            **_said(tokens),
            **_end(pieces[-1]),
        }
        yield _json(
            {
                **self._head,
                "object": "chat.completion",
                "choices": [choice],
                "usage": self._usage(),
                "prompt_token_ids": list(self._answering.prompt),
            }
        )

    async def stream(self) -> AsyncIterator[bytes]:
        first = {"index": 0, "delta": {"role": "assistant", "content": ""}, "logprobs": None, "finish_reason": None}
        yield self._event([first], {"prompt_token_ids": list(self._answering.prompt)})
        async for piece in self._answering.pieces:
            delta = {"content": piece.text} if piece.text or piece.token else {}
            said = _said([piece.token]) if piece.token else {"logprobs": None}
            self._count += piece.token is not None
            more = {"usage": self._usage()} if piece.end and not self._request.wants_usage else {}
            yield self._event([{"index": 0, "delta": delta, **said, **_end(piece)}], more)
        if self._request.wants_usage:
            yield self._event([], {"usage": self._usage()})
        yield b"data: [DONE]\n\n"

    def _event(self, choices: list[dict[str, Any]], more: Mapping[str, Any] | None = None) -> bytes:
        body = {**self._head, "object": "chat.completion.chunk", "choices": choices, **(more or {})}
        return b"data: " + _json(body) + b"\n\n"

    def _usage(self) -> dict[str, int]:
        read = len(self._answering.prompt)
        return {"prompt_tokens": read, "completion_tokens": self._count, "total_tokens": read + self._count}


def _json(body: Mapping[str, Any]) -> bytes:
    return json.dumps(body, ensure_ascii=False).encode(errors="replace")


def _said(tokens: Sequence[Token]) -> dict[str, Any]:
    content = [
        {
            **_one(token.piece, token.logprob),
            "top_logprobs": [_one(piece, logprob) for piece, logprob in token.top],
        }
        for token in tokens
    ]
    return {"logprobs": {"content": content}, "token_ids": [token.id for token in tokens]}


def _one(piece: bytes, logprob: float) -> dict[str, Any]:
    return {"token": piece.decode(errors="replace"), "bytes": list(piece), "logprob": logprob}


def _end(piece: Piece) -> dict[str, Any]:
    return {"finish_reason": piece.end, **({"stop_reason": piece.stop_string} if piece.stop_string else {})}


def _check(request: Request) -> None:
    """Raise `Unexpressible` for what this model cannot do."""
    if request.tool_choice and request.tool_choice.mode in {"required", "named"}:
        raise Unexpressible("tool_choice", "this model's chat template knows no tools")
    if request.output and request.output.mode != "text":
        raise Unexpressible("response_format", "this model writes text only")
    if request.presence_penalty or request.frequency_penalty:
        name = "presence_penalty" if request.presence_penalty else "frequency_penalty"
        raise Unexpressible(name, "is not known here")
    if request.others.get("n", 1) != 1:
        raise Unexpressible("n", "one answer is given at a time")


def _messages(turn: Turn) -> list[dict[str, str]]:
    """Return a turn as the chat template takes it: words only."""
    if turn.role == "tool":
        results = [part for part in turn.parts if isinstance(part, ToolResult)]
        return [{"role": "tool", "content": _words(part.parts, "tool")} for part in results]
    role = "system" if turn.role == "developer" else turn.role
    return [{"role": role, "content": _words(turn.parts, role)}]


def _words(parts: Sequence[Any], role: str) -> str:
    for part in parts:
        if part.type not in {"text", "refusal", "reasoning", "tool_use"}:
            raise Unexpressible(
                "messages", f"a part of type {part.type!r} of the role {role!r}: this model reads text only"
            )
    return "".join(part.text for part in parts if isinstance(part, Text))
