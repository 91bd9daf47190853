"""What the gateway sends calls to: a backend of one dialect that takes a body and gives bytes back, whole or as they come."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

import httpx

from providers.dialects.base import Dialect, Malformed
from providers.models.openai_failures import failed, shown, without_secrets
from schemas.tokens import LogprobKind

CONNECT_TIMEOUT_S: Final = 30.0
ANSWER_MAX_BYTES: Final = 8 * 1024 * 1024
ANTHROPIC_VERSION: Final = "2023-06-01"
PASSED_ON: Final = frozenset({"anthropic-beta", "anthropic-version", "openai-beta"})
"""Headers of a client that go to a backend of its own dialect."""


@dataclass(frozen=True, slots=True)
class Incoming:
    """A backend's answer whose body is still coming."""

    status: int
    headers: Mapping[str, str]
    chunks: AsyncIterator[bytes]

    async def body(self) -> bytes:
        """Return the whole body; raises `ModelError` if it is too large."""
        pieces, size = [], 0
        async for chunk in self.chunks:
            size += len(chunk)
            if size > ANSWER_MAX_BYTES:
                raise failed("provider_bad_answer", f"an answer of more than {ANSWER_MAX_BYTES:,} bytes", terminal=True)
            pieces.append(chunk)
        return b"".join(pieces)


def object_of(content: bytes) -> dict[str, Any]:
    """Return the JSON object of a body; raises `Malformed` for anything else."""
    try:
        body = json.loads(content)
    except (ValueError, RecursionError) as error:
        msg = f"no JSON: {shown(content.decode(errors='replace'))}"
        raise Malformed(msg) from error
    if not isinstance(body, dict):
        msg = f"no JSON object: {shown(content.decode(errors='replace'))}"
        raise Malformed(msg)
    return body


@dataclass(frozen=True, slots=True)
class Target:
    """What the log says about where a call goes; see `schemas.events.ModelCallRequested`."""

    url: str
    route: str | None = None
    routing_digest: str | None = None
    overrides: Mapping[str, Any] = field(default_factory=dict)


class Backend(Protocol):
    """One model of one provider."""

    @property
    def dialect(self) -> Dialect:
        """Return what it speaks."""
        ...

    @property
    def url(self) -> str:
        """Return what it is called in messages."""
        ...

    @property
    def max_tries(self) -> int:
        """Return how often a call may be tried."""
        ...

    @property
    def target(self) -> Target:
        """Return where calls go."""
        ...

    @property
    def logprob_kind(self) -> LogprobKind | None:
        """Return which log-probabilities come with token ids, if the backend is asked for token ids; None if it is not."""
        ...

    def adapted(self, body: dict[str, Any]) -> dict[str, Any]:
        """Return a body with the model's own name, and what the configuration lays over it."""
        ...

    def open(
        self, body: dict[str, Any], call_id: str, headers: Mapping[str, str]
    ) -> AbstractAsyncContextManager[Incoming]:
        """Send a call; the context holds its connection. Raises `ModelError` for every failure without an HTTP status."""
        ...

    async def aclose(self) -> None:
        """Give back connections."""
        ...


class HttpBackend:
    """A backend behind HTTP; up to `concurrency` calls at once have connections of their own."""

    def __init__(
        self,
        dialect: Dialect,
        base_url: str,
        model: str,
        api_key: str | None,
        *,
        timeout_s: float,
        concurrency: int,
        max_tries: int = 3,
        extra_body: Mapping[str, Any] | None = None,
    ) -> None:
        """Call `model` at `base_url`: with its `/v1`, or what stands for it, as OpenAI's clients have it; for Messages without."""
        self.dialect = dialect
        self.max_tries = max_tries
        base = base_url.rstrip("/")
        if dialect.name == "messages":
            self.url = f"{base.removesuffix('/v1')}{dialect.path}"
        else:
            self.url = f"{base}{dialect.path.removeprefix('/v1')}"
        self.target = Target(without_secrets(self.url, api_key))
        self.logprob_kind: LogprobKind | None = None
        self._model = model
        self._api_key = api_key
        self._timeout_s = timeout_s
        self._extra_body = dict(extra_body or {})
        limits = httpx.Limits(max_connections=concurrency, max_keepalive_connections=concurrency)
        timeout = httpx.Timeout(timeout_s, connect=min(timeout_s, CONNECT_TIMEOUT_S))
        self._client = httpx.AsyncClient(limits=limits, timeout=timeout, follow_redirects=False, trust_env=True)

    def adapted(self, body: dict[str, Any]) -> dict[str, Any]:
        """Return a body with the model's own name, and what the configuration lays over it."""
        return {**body, "model": self._model, **self._extra_body}

    @asynccontextmanager
    async def open(self, body: dict[str, Any], call_id: str, headers: Mapping[str, str]) -> AsyncGenerator[Incoming]:
        """Send a call; see `Backend`."""
        sent = {"content-type": "application/json", **self._credentials()}
        sent |= {name: value for name, value in headers.items() if name in PASSED_ON}
        content = json.dumps(body, ensure_ascii=False).encode(errors="replace")
        try:
            async with (
                asyncio.timeout(self._timeout_s),
                self._client.stream("POST", self.url, content=content, headers=sent) as response,
            ):
                yield Incoming(response.status_code, response.headers, response.aiter_bytes())
        except httpx.TimeoutException as error:
            raise failed("transport_timeout", f"{self.url} was silent for {self._timeout_s:g} s") from error
        except TimeoutError as error:
            raise failed("transport_timeout", f"{self.url} took more than {self._timeout_s:g} s ({call_id})") from error
        except httpx.HTTPError as error:
            text = f"{self.url} cannot be reached, or broke off: {type(error).__name__}: {error}"
            raise failed("transport_unreachable", without_secrets(text, self._api_key)) from error

    def without_key(self, text: str) -> str:
        """Return `text` without the key, and without a password inside a URL."""
        return without_secrets(text, self._api_key)

    def _credentials(self) -> dict[str, str]:
        if self.dialect.name == "messages":
            key = {"x-api-key": self._api_key} if self._api_key else {}
            return {"anthropic-version": ANTHROPIC_VERSION, **key}
        return {"authorization": f"Bearer {self._api_key}"} if self._api_key else {}

    async def aclose(self) -> None:
        """Give back connections."""
        await self._client.aclose()
