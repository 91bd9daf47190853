"""The one local model of a process: loaded at the first call, its calls one after the other, no more waiting than configured."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, replace
from typing import Final

from providers.models.failures import failed
from providers.models.local_generation import Piece, Wish, generate
from providers.models.local_runtime import MODEL, Runtime
from schemas.config import LocalModel as LocalModelConfig

PROMPT_MAX_CHARACTERS: Final = 1_000_000
CLOSE_WAIT_S: Final = 5.0


@dataclass(frozen=True, slots=True)
class Answering:
    """An answer that is being generated: the ids of its prompt, its pieces as they come, and how long it waited for its turn."""

    prompt: tuple[int, ...]
    pieces: AsyncGenerator[Piece]
    queue_s: float


class Engine:
    """See the module."""

    def __init__(self, config: LocalModelConfig, waiting_max: int) -> None:
        """Let up to `waiting_max` calls wait or be answered at once."""
        self._config = config
        self._runtime = Runtime(config.threads, config.context_tokens)
        self._is_free = asyncio.Lock()
        self._waiting = 0
        self._waiting_max = waiting_max

    @asynccontextmanager
    async def answering(self, messages: Sequence[dict[str, str]], wish: Wish) -> AsyncGenerator[Answering]:
        """Answer a conversation; raises `ModelError` for every failure, within the configured `timeout_s`."""
        if self._waiting >= self._waiting_max:
            raise failed("provider_rate_limited", f"{self._waiting} calls wait for {MODEL} already")
        self._waiting += 1
        began = time.monotonic()
        try:
            async with asyncio.timeout(self._config.timeout_s), self._is_free:
                queue_s = time.monotonic() - began
                prompt, bounded = await self._prepared(messages, wish)
                async with aclosing(generate(self._runtime, prompt, bounded)) as pieces:
                    yield Answering(tuple(prompt), pieces, queue_s)
        except TimeoutError as error:
            text = f"{MODEL} took more than {self._config.timeout_s:g} s, with {self._waiting - 1} other calls waiting"
            raise failed("transport_timeout", text) from error
        finally:
            self._waiting -= 1

    async def _prepared(self, messages: Sequence[dict[str, str]], wish: Wish) -> tuple[list[int], Wish]:
        """Return the prompt's ids, and the wish with what room there is; raises `ModelError` if there is none."""
        most = self._config.context_tokens
        if sum(len(message["content"]) for message in messages) > PROMPT_MAX_CHARACTERS:
            raise failed("context_overflow", f"{MODEL}: more than {PROMPT_MAX_CHARACTERS:,} characters", terminal=True)
        await self._runtime.start()
        prompt = await self._runtime.prompt_ids(messages)
        if len(prompt) >= most:
            text = f"{MODEL}: a prompt of {len(prompt)} tokens, and the context length is {most} (model.context_tokens)"
            raise failed("context_overflow", text, terminal=True)
        return prompt, replace(wish, max_tokens=min(wish.max_tokens, most - len(prompt)))

    async def aclose(self) -> None:
        """Unload the model, after an answer that is under way if it ends soon."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(CLOSE_WAIT_S), self._is_free:
                pass
        await self._runtime.aclose()
