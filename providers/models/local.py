"""A real small language model on this machine, for native agents: text, token ids and log-probabilities without any account.

SmolLM2-135M-Instruct (Apache-2.0) is 98 MB and does not know much; its chat template has no place for tools, so none are offered to it.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence

from providers.models.base import ModelAnswer, ModelCall, Target
from providers.models.evidence import TokenEvidence
from providers.models.local_engine import Engine
from providers.models.local_generation import Wish
from providers.models.local_runtime import Draw
from schemas.config import LocalModel as LocalModelConfig
from schemas.values import Message, Sampling, Usage


class LocalModel:
    """See the module. Temperature 0 gives the same answer every time, and so does a `seed`; without one it is left to chance."""

    def __init__(self, config: LocalModelConfig, concurrency: int) -> None:
        """Take up to `concurrency` calls at once; they are answered one after the other."""
        self._config = config
        self._engine = Engine(config, concurrency)

    async def target(self, call: ModelCall) -> Target:  # noqa: ARG002  it is the same for all
        """Return that nobody is called."""
        return Target(None)

    async def complete(self, call: ModelCall) -> ModelAnswer:
        """Answer `call`; raise `ModelError` for every failure, within the configured `timeout_s`."""
        wish = wish_of(call.sampling, self._config.max_output_tokens)
        async with self._engine.answering(_plain(call.messages), wish) as answering:
            pieces = [piece async for piece in answering.pieces]
        tokens = [piece.token for piece in pieces if piece.token]
        return ModelAnswer(
            Message(role="assistant", content="".join(piece.text for piece in pieces)),
            pieces[-1].end or "length",
            Usage(input_tokens=len(answering.prompt), output_tokens=len(tokens)),
            queue_s=answering.queue_s,
            tokens=TokenEvidence(
                answering.prompt, tuple(token.id for token in tokens), tuple(token.logprob for token in tokens), "raw"
            ),
        )

    async def aclose(self) -> None:
        """Unload the model."""
        await self._engine.aclose()


def wish_of(sampling: Sampling, max_output_tokens: int) -> Wish:
    """Return what the sampling parameters mean here; what is left open is temperature 1, all tokens, and chance."""
    draw = Draw(
        temperature=1.0 if sampling.temperature is None else sampling.temperature,
        top_p=1.0 if sampling.top_p is None else sampling.top_p,
        seed=secrets.randbits(32) if sampling.seed is None else sampling.seed,
    )
    return Wish(draw, sampling.max_output_tokens or max_output_tokens)


def _plain(messages: Sequence[Message]) -> list[dict[str, str]]:
    return [{"role": message.role, "content": message.content or ""} for message in messages]
