"""Models behind OpenAI Chat Completions: OpenAI, vLLM, SGLang, llama.cpp, Ollama and their like, by OpenAI's own SDK.

One call is one HTTP request: the SDK's own retries are off, because the caller records each try before it is made.
Nothing about the account comes from the environment, only a proxy may.
"""

from __future__ import annotations

import asyncio

import httpx2
import openai
from pydantic import ValidationError

from providers.models.backends import ANSWER_MAX_BYTES
from providers.models.base import ModelAnswer, ModelCall, ModelError
from providers.models.chat_completions import Completion, answer, request_body
from providers.models.openai_failures import connection_failure, failed, shown, status_failure, without_secrets
from schemas.config import OpenAIModel

CONNECT_TIMEOUT_S = 30.0


class _Client(openai.AsyncOpenAI):
    """The SDK's client, deaf to OPENAI_API_KEY, OPENAI_BASE_URL, OPENAI_ORG_ID, OPENAI_CUSTOM_HEADERS and the rest."""

    def __init__(self, base_url: str, api_key: str | None, timeout_s: float, concurrency: int) -> None:
        timeout = httpx2.Timeout(timeout_s, connect=min(timeout_s, CONNECT_TIMEOUT_S))
        limits = httpx2.Limits(max_connections=concurrency, max_keepalive_connections=concurrency)
        super().__init__(
            api_key=api_key or "none",  # the SDK insists on one; backends without keys ignore it
            admin_api_key="",
            organization="",
            project="",
            webhook_secret="",
            base_url=base_url,
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
        self._url = f"{config.policy_base_url.rstrip('/')}/chat/completions"
        self._client = _Client(config.policy_base_url, api_key, config.timeout_s, concurrency)

    async def complete(self, call: ModelCall) -> ModelAnswer:
        """Ask once; raise `ModelError` for every failure, within the configured `timeout_s`."""
        try:
            async with asyncio.timeout(self._config.timeout_s):
                body = await self._ask(call)
            return self._read(body, call.turn)
        except TimeoutError as error:
            raise self._clean(
                failed("transport_timeout", f"{self._url} did not answer within {self._config.timeout_s:g} s")
            ) from error
        except ModelError as error:
            raise self._clean(error) from error.__cause__

    async def aclose(self) -> None:
        """Give back connections."""
        await self._client.close()

    async def _ask(self, call: ModelCall) -> str:
        config = self._config
        request = request_body(call, config.policy_model_name, config.policy_base_url, config.extra_body)
        try:
            response = await self._client.post("/chat/completions", body=request, cast_to=httpx2.Response)
        except openai.APIConnectionError as error:
            raise connection_failure(error, self._url, config.timeout_s) from error
        except openai.APIStatusError as error:
            raise status_failure(error, self._url) from error
        except UnicodeEncodeError as error:  # of a header, or half a surrogate pair in a message
            raise failed(
                "provider_bad_request", f"the request cannot be encoded: {error.reason}", terminal=True
            ) from error
        except openai.OpenAIError as error:
            raise failed("provider_bad_answer", f"{self._url}: {type(error).__name__}: {error}") from error
        if len(response.content) > ANSWER_MAX_BYTES:
            raise failed("provider_bad_answer", f"{self._url} answered with more than {ANSWER_MAX_BYTES:,} bytes")
        return response.text

    def _read(self, body: str, turn: int) -> ModelAnswer:
        try:
            return answer(Completion.model_validate_json(body), turn)
        except ValidationError as error:
            first = error.errors()[0]
            where = ".".join(map(str, first["loc"])) or "body"
            text = (
                f"{self._url} did not answer with a chat completion ({where}: {first['msg']}); it said: {shown(body)}"
            )
            raise failed("provider_bad_answer", text) from error

    def _clean(self, error: ModelError) -> ModelError:
        message = without_secrets(error.failure.message, self._api_key)
        return ModelError(error.failure.model_copy(update={"message": message}), error.retry_after_s)
