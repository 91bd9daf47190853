"""Models behind OpenAI Chat Completions: OpenAI, vLLM, SGLang, llama.cpp, Ollama and their like, by OpenAI's own SDK.

One call is one HTTP request: the SDK's own retries are off, because the caller records each try before it is made.
Nothing about the account comes from the environment, only a proxy may.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import httpx2
import openai
from pydantic import ValidationError

from providers.models.addresses import LOOK_EVERY_S
from providers.models.admission import Admission
from providers.models.backends import ANSWER_MAX_BYTES
from providers.models.base import ModelAnswer, ModelCall, ModelError, Target
from providers.models.chat_completions import Completion, answer, request_body
from providers.models.endpoint import addresses_of
from providers.models.failures import failed, failure_of, shown, without_secrets
from providers.models.http_client import CONNECT_TIMEOUT_S
from providers.models.overrides import overridden
from providers.models.wire import limit_field_of
from schemas.config import OpenAIModel
from schemas.model_urls import calls_url


class _Client(openai.AsyncOpenAI):
    """The SDK's client, deaf to OPENAI_API_KEY, OPENAI_BASE_URL, OPENAI_ORG_ID, OPENAI_CUSTOM_HEADERS and the rest."""

    def __init__(self, api_key: str | None, timeout_s: float, concurrency: int) -> None:
        timeout = httpx2.Timeout(timeout_s, connect=min(timeout_s, CONNECT_TIMEOUT_S))
        limits = httpx2.Limits(max_connections=concurrency, max_keepalive_connections=concurrency)
        super().__init__(
            api_key=api_key or "none",  # the SDK insists on one; backends without keys ignore it
            admin_api_key="",
            organization="",
            project="",
            webhook_secret="",
            base_url="http://unused.invalid",  # every call names its address
            timeout=timeout,
            max_retries=0,
            http_client=openai.DefaultAsyncHttpxClient(timeout=timeout, limits=limits, follow_redirects=False),
        )
        self.organization = self.project = self.admin_api_key = None  # an empty header is refused by some
        self._custom_headers = {}


class OpenAIChatModel:
    """One model of one backend; up to `concurrency` calls at once have connections of their own."""

    def __init__(self, config: OpenAIModel, api_key: str | None, concurrency: int) -> None:
        self._config = config
        self._api_key = api_key
        self._addresses = addresses_of(config)
        self._admission = Admission(config.max_concurrent_requests)
        self._client = _Client(api_key, config.timeout_s, concurrency)

    async def target(self, call: ModelCall) -> Target:
        """Return where `call` will go."""
        ranked = self._ranked(call)
        url = without_secrets(calls_url(self._config, ranked[0]), self._api_key) if ranked else None
        return Target(url, overrides={str(name): value for name, value in self._config.sampling_overrides.items()})

    async def complete(self, call: ModelCall) -> ModelAnswer:
        """Ask once; raise `ModelError` for every failure, within the configured `timeout_s`."""
        try:
            ranked = self._ranked(call)
            if not ranked:
                raise failed("provider_unavailable", self._addresses.problem, retry_after_s=LOOK_EVERY_S)
            async with self._admission.turn(self._config.timeout_s) as queue_s:
                body = await self._ask_at(ranked[0], call)
            url = calls_url(self._config, ranked[0])
            return replace(self._read(body, call.turn, url), queue_s=queue_s)
        except ModelError as error:
            raise self._clean(error) from error.__cause__

    async def aclose(self) -> None:
        """Give back connections."""
        await self._client.close()

    def _ranked(self, call: ModelCall) -> tuple[str, ...]:
        return self._addresses.ranked(call.session or f"{call.task_id}/{call.repeat}")

    async def _ask_at(self, address: str, call: ModelCall) -> str:
        """Ask at an address; one where nobody is gives way to the next one at once."""
        config = self._config
        url = calls_url(config, address)
        try:
            async with asyncio.timeout(config.timeout_s):
                return await self._ask(url, self._body(call))
        except TimeoutError as error:
            raise failed("transport_timeout", f"{url} did not answer within {config.timeout_s:g} s") from error
        except openai.APIConnectionError as error:
            failure = connection_failure(error, url, config.timeout_s)
            is_dead = isinstance(error.__cause__, httpx2.ConnectError | httpx2.ConnectTimeout)
            if is_dead and self._addresses.refused(address):
                failure.retry_after_s = 0.0
            raise failure from error

    def _body(self, call: ModelCall) -> dict[str, Any]:
        config = self._config
        limit_field = limit_field_of(config)
        body = {"model": config.policy_model_name, **request_body(call, limit_field), **config.extra_body}
        return overridden(body, config.sampling_overrides, "chat", limit_field)

    async def _ask(self, url: str, request: dict[str, Any]) -> str:
        try:
            response = await self._client.post(url, body=request, cast_to=httpx2.Response)
        except openai.APIConnectionError:
            raise
        except openai.APIStatusError as error:
            raise status_failure(error, url) from error
        except UnicodeEncodeError as error:  # of a header, or half a surrogate pair in a message
            raise failed(
                "provider_bad_request", f"the request cannot be encoded: {error.reason}", terminal=True
            ) from error
        except openai.OpenAIError as error:
            raise failed("provider_bad_answer", f"{url}: {type(error).__name__}: {error}") from error
        if len(response.content) > ANSWER_MAX_BYTES:
            raise failed("provider_bad_answer", f"{url} answered with more than {ANSWER_MAX_BYTES:,} bytes")
        return response.text

    def _read(self, body: str, turn: int, url: str) -> ModelAnswer:
        try:
            return answer(Completion.model_validate_json(body), turn)
        except ValidationError as error:
            first = error.errors()[0]
            where = ".".join(map(str, first["loc"])) or "body"
            text = f"{url} did not answer with a chat completion ({where}: {first['msg']}); it said: {shown(body)}"
            raise failed("provider_bad_answer", text) from error

    def _clean(self, error: ModelError) -> ModelError:
        message = without_secrets(error.failure.message, self._api_key)
        return ModelError(error.failure.model_copy(update={"message": message}), error.retry_after_s)


def connection_failure(error: openai.APIConnectionError, url: str, timeout_s: float) -> ModelError:
    """Return what stands for a call that got no answer at all."""
    if isinstance(error, openai.APITimeoutError):
        return failed("transport_timeout", f"{url} did not answer within {timeout_s:g} s")
    cause = error.__cause__
    reason = f"{type(cause).__name__}: {cause}" if cause else str(error)
    return failed(
        "transport_unreachable", f"{url} cannot be reached: {reason}. Is the server running, and the address right?"
    )


def status_failure(error: openai.APIStatusError, url: str) -> ModelError:
    """Return what stands for an answer with an HTTP status that is not success."""
    return failure_of(error.status_code, error.response.headers, error.response.text, url)
