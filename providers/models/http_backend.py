"""A backend behind HTTP, as one session sees it: it keeps to an address as long as somebody is there."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import asynccontextmanager
from http import HTTPStatus
from typing import Any, Final

from gym_bus.redaction import MIN_SECRET_LENGTH
from providers.dialects import Dialect
from providers.models.addresses import LOOK_EVERY_S
from providers.models.backends import PASSED_ON, Incoming
from providers.models.base import ModelError, Target
from providers.models.endpoint import Endpoint
from providers.models.failures import failed
from providers.models.http_client import BrokenOff, HttpAnswer, NoConnection, Silent, Unsendable
from providers.models.wire import cost_usd, session_headers
from schemas.config import SwitchyardModel
from schemas.model_urls import calls_url, key_headers
from schemas.tokens import LogprobKind

REDACTED: Final = b"[redacted]"


class HttpBackend:
    """See the module, and `Backend`. `target` chooses the address of the next try; `open` goes there."""

    def __init__(self, endpoint: Endpoint, max_tries: int, session: str = "") -> None:
        """Make the calls of `session` at `endpoint`."""
        self.max_tries = max_tries
        self.logprob_kind: LogprobKind | None = endpoint.logprob_kind
        self._endpoint = endpoint
        self._session = session
        self._chosen: str | None = None

    @property
    def dialect(self) -> Dialect:
        """Return what it speaks."""
        return self._endpoint.dialect

    @property
    def url(self) -> str:
        """Return what it is called in messages: where the last try went."""
        return self._endpoint.url_at(self._chosen or self._best())

    @property
    def target(self) -> Target:
        """Return where the next try goes."""
        self._chosen = self._best()
        overrides = self._endpoint.overrides()
        match self._endpoint.config:
            case SwitchyardModel(policy_model_name=route, routing_digest=digest):
                return Target(self.url, route, digest, overrides)
            case _:
                return Target(self.url, overrides=overrides)

    def for_session(self, session: str) -> HttpBackend:
        """Return the same backend for another session: a view that costs nothing, made for each call."""
        return HttpBackend(self._endpoint, self.max_tries, session)

    def adapted(self, body: dict[str, Any]) -> dict[str, Any]:
        """Return a body with the model's own name, and what the configuration lays over it."""
        return self._endpoint.adapted(body)

    @asynccontextmanager
    async def open(self, body: dict[str, Any], call_id: str, headers: Mapping[str, str]) -> AsyncGenerator[Incoming]:
        """Send a call; see `Backend`."""
        endpoint, timeout_s = self._endpoint, self._endpoint.config.timeout_s
        address = self._chosen = self._chosen or self._best()
        if address is None:
            raise failed("provider_unavailable", endpoint.addresses.problem, retry_after_s=LOOK_EVERY_S)
        async with endpoint.admission.turn(timeout_s) as queue_s:
            try:
                async with (
                    asyncio.timeout(timeout_s),
                    endpoint.client.post(
                        calls_url(endpoint.config, address),
                        json.dumps(body, ensure_ascii=False).encode(errors="replace"),
                        self._headers(headers),
                    ) as response,
                ):
                    cost = cost_usd(endpoint.config, response.headers, is_streamed=bool(body.get("stream")))
                    yield Incoming(response.status, response.headers, self._body_of(response), queue_s, cost)
            except (NoConnection, Silent, BrokenOff, TimeoutError) as error:
                raise self._failure(error, address, call_id) from error
            except Unsendable as error:
                raise failed("provider_bad_request", self.without_key(str(error)), terminal=True) from error

    def _failure(self, error: Exception, address: str, call_id: str) -> ModelError:
        """Return what stands for a call without an answer; an address where nobody is gives way to the next one at once."""
        url, timeout_s = self._endpoint.url_at(address), self._endpoint.config.timeout_s
        is_dead = isinstance(error, NoConnection)
        retry_after_s = 0.0 if is_dead and self._endpoint.addresses.refused(address) else None
        if is_dead:
            self._chosen = None
        match error:
            case NoConnection(is_timeout=True):
                return failed("transport_timeout", f"{url} takes no connection", retry_after_s=retry_after_s)
            case Silent():
                return failed("transport_timeout", f"{url} was silent for {timeout_s:g} s")
            case TimeoutError():
                return failed("transport_timeout", f"{url} took more than {timeout_s:g} s ({call_id})")
            case _:
                text = f"{url} cannot be reached, or broke off: {error}"
                return failed("transport_unreachable", self.without_key(text), retry_after_s=retry_after_s)

    def without_key(self, text: str) -> str:
        """Return `text` without the key, and without a password inside a URL."""
        return self._endpoint.clean(text)

    def _body_of(self, response: HttpAnswer) -> AsyncIterator[bytes]:
        """Return an answer's body; servers that refuse a key like to repeat it, and a client in a sandbox must not learn it.

        A success stays as it is: many a server has a key that is a word (`EMPTY`), which a model may say.
        """
        api_key = self._endpoint.api_key
        is_success = HTTPStatus.OK <= response.status < HTTPStatus.MULTIPLE_CHOICES
        if is_success or not api_key or len(api_key) < MIN_SECRET_LENGTH:
            return response.chunks
        return _without_key(response.chunks, api_key.encode())

    def _headers(self, passed_on: Mapping[str, str]) -> dict[str, str]:
        config = self._endpoint.config
        return {
            "content-type": "application/json",
            **key_headers(config, self._endpoint.api_key),
            **{name: value for name, value in passed_on.items() if name in PASSED_ON},
            **session_headers(config, self._session),
        }

    def _best(self) -> str | None:
        ranked = self._endpoint.addresses.ranked(self._session)
        return ranked[0] if ranked else None

    async def aclose(self) -> None:
        """Give back connections, those of all sessions."""
        await self._endpoint.aclose()


async def _without_key(chunks: AsyncIterator[bytes], secret: bytes) -> AsyncIterator[bytes]:
    """Yield a body with the key masked, also where it comes in two pieces."""
    held = b""
    async for chunk in chunks:
        held = (held + chunk).replace(secret, REDACTED)
        ready = max(0, len(held) - len(secret) + 1)
        if ready:
            yield held[:ready]
        held = held[ready:]
    if held:
        yield held
