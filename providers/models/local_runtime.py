"""SmolLM2-135M-Instruct in llama.cpp, asked for one token at a time.

llama.cpp's own server (package `xllamacpp`) computes in threads of its own beside the event loop, and is asked over the loopback
interface, with a key that nobody else has. It is asked for each token by itself because its longer answers leave out the
log-probabilities of tokens that hold less than a character. What it knows of the conversation stays in memory from token to token, so
that this costs a few milliseconds each; every answer begins with the whole prompt computed anew, so that nothing asked before changes a
number.
"""

from __future__ import annotations

import asyncio
import hashlib
import importlib
import math
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import Any, Final

import httpx

from gym_bus.local_model import MISSING, weights_path
from providers.models.failures import failed, shown

MODEL: Final = "SmolLM2-135M-Instruct"
STEP_TIMEOUT_S: Final = 120.0
IDLE_S: Final = 2.0
"""Less than the five seconds after which the server closes a connection that rests."""
SEEDS: Final = 2**32 - 1
"""The last number of 32 bits stands for chance in llama.cpp."""
READ_FROM: Final = (64, 49_152)
"""How many of the likeliest tokens are read for the log-probability of one: first a few, then all there are."""
FORCING: Final = 1e6


@dataclass(frozen=True, slots=True)
class Draw:
    """How tokens are drawn: temperature, then `top_k` (0: all), then `top_p`. `top_logprobs` is how many others are told."""

    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    seed: int = 0
    top_logprobs: int = 0


@dataclass(frozen=True, slots=True)
class Token:
    """One generated token: `piece` is what it adds to the text, nothing for the one that ends it.

    `logprob` is natural, before temperature and the like; `top` are the likeliest tokens in its place, as (bytes, logprob).
    """

    id: int
    piece: bytes
    logprob: float
    top: tuple[tuple[bytes, float], ...] = ()
    is_end: bool = False


class Runtime:
    """One instance of the model. One question at a time: whoever asks sees to that."""

    def __init__(self, threads: int, context_tokens: int) -> None:
        """Compute with `threads` threads; `context_tokens` is the most that prompt and answer have together."""
        self._threads = threads
        self._context_tokens = context_tokens
        self._server: Any = None
        self._client: httpx.AsyncClient | None = None

    async def start(self) -> None:
        """Load the model unless it is loaded; raises `ModelError` if the packages are missing or it does not load."""
        if self._client:
            return
        weights, key = weights_path(), secrets.token_urlsafe(24)
        if weights is None:
            raise failed("provider_bad_request", MISSING, terminal=True)
        try:
            self._server = await asyncio.to_thread(self._load, weights, key)
        except RuntimeError as error:
            raise failed("provider_unavailable", f"{weights.name} does not load: {error}") from error
        limits = httpx.Limits(max_connections=1, keepalive_expiry=IDLE_S)
        self._client = httpx.AsyncClient(
            base_url=self._server.listening_address,
            headers={"authorization": f"Bearer {key}"},
            limits=limits,
            timeout=STEP_TIMEOUT_S,
            trust_env=False,
        )

    def _load(self, weights: Path, key: str) -> Any:
        llama = importlib.import_module("xllamacpp")
        chosen = llama.CommonParams()
        chosen.model.path = str(weights)
        chosen.n_ctx = self._context_tokens
        chosen.n_parallel = 1
        chosen.cpuparams.n_threads = chosen.cpuparams_batch.n_threads = self._threads
        chosen.hostnames = ["127.0.0.1"]
        chosen.api_keys = [key]
        chosen.n_threads_http = 2
        chosen.cache_ram_mib = 0
        chosen.prefill_assistant = chosen.fit_params = chosen.ui = chosen.endpoint_slots = False
        chosen.verbosity = 0
        return llama.Server(chosen)

    async def prompt_ids(self, messages: Sequence[dict[str, str]]) -> list[int]:
        """Return the conversation as the model reads it, up to where its answer begins."""
        templated = await self._ask("/apply-template", {"messages": messages})
        body = {"content": templated["prompt"], "add_special": True, "parse_special": True}
        ids: list[int] = (await self._ask("/tokenize", body))["tokens"]
        return ids

    async def next_token(self, prompt: Sequence[int], generated: Sequence[int], draw: Draw) -> Token:
        """Draw the token that follows `prompt` and what was `generated` so far."""
        body: dict[str, Any] = {
            "prompt": [*prompt, *generated],
            "n_predict": 1,
            "cache_prompt": bool(generated),
            "return_tokens": True,
            "n_probs": max(1, draw.top_logprobs),
            "samplers": ["temperature", "top_k", "top_p"],
            "temperature": draw.temperature,
            "top_k": draw.top_k,
            "top_p": draw.top_p,
            "seed": _seed_of(draw.seed, len(generated)),
        }
        answer = await self._ask("/completion", body)
        [id_] = answer["tokens"]
        likely = answer.get("completion_probabilities")
        if not likely:
            return await self._looked_up(body, id_, draw.top_logprobs)
        return _token(id_, likely[0], likely[0]["top_logprobs"][: draw.top_logprobs], answer["stop_type"] == "eos")

    async def _looked_up(self, body: dict[str, Any], id_: int, top_logprobs: int) -> Token:
        """Return a token of less than a character: its place is computed once more, with another token put there."""
        for count in READ_FROM:
            changed = {"n_probs": count, "logit_bias": [[_WHOLE, FORCING]], "temperature": 0.0, "cache_prompt": True}
            answer = await self._ask("/completion", body | changed)
            likeliest = answer["completion_probabilities"][0]["top_logprobs"]
            for found in likeliest:
                if found["id"] == id_:
                    return _token(id_, found, likeliest[:top_logprobs], is_end=False)
        raise failed("provider_bad_answer", f"{MODEL}: token {id_} was drawn and is not among those that could be")

    async def _ask(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        if self._client is None:
            msg = "the runtime is started before it is asked"
            raise RuntimeError(msg)
        try:
            response = await self._client.post(path, json=body)
        except httpx.HTTPError as error:
            raise failed("provider_unavailable", f"{MODEL}: {path}: {type(error).__name__}: {error}") from error
        if response.status_code != HTTPStatus.OK:
            raise failed("provider_bad_answer", f"{MODEL}: {path} answered {shown(response.text)}")
        answer: dict[str, Any] = response.json()
        return answer

    async def aclose(self) -> None:
        """Unload the model."""
        if self._client:
            await self._client.aclose()
            server, self._client, self._server = [self._server], None, None
            await asyncio.to_thread(server.clear)


_WHOLE: Final = 33
"""Some token that is a whole character."""


def _seed_of(seed: int, place: int) -> int:
    return int.from_bytes(hashlib.sha256(f"{seed}/{place}".encode()).digest()[:4], "big") % SEEDS


def _token(id_: int, found: dict[str, Any], top: list[dict[str, Any]], is_end: bool) -> Token:
    logprob = float(found["logprob"])
    if not math.isfinite(logprob):
        raise failed("provider_bad_answer", f"{MODEL}: token {id_} has the log-probability {logprob}")
    others = tuple((bytes(one["bytes"]), float(one["logprob"])) for one in top)
    return Token(id_, b"" if is_end else bytes(found["bytes"]), min(logprob, 0.0), others, is_end)
