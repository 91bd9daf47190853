"""Is there a model backend at all? Asked once before a run starts, so that a wrong address fails in seconds."""

from __future__ import annotations

import json
from http import HTTPStatus

import httpx

from gym_bus.errors import Permanent, Retryable
from providers.models.openai_failures import shown, without_secrets
from schemas.config import OpenAIModel


async def check_endpoint(config: OpenAIModel, api_key: str | None, timeout_s: float = 5.0) -> None:
    """Ask for the list of models; raise `Retryable` if nobody answers, `Permanent` if the wrong one does.

    That the list is missing (404), or the backend busy or failing (429, 5xx), is no reason not to start: calls are
    retried.
    """
    url = f"{config.policy_base_url.rstrip('/')}/models"
    headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}
    try:
        async with httpx.AsyncClient(timeout=timeout_s) as client:
            response = await client.get(url, headers=headers)
    except (httpx.UnsupportedProtocol, httpx.InvalidURL, UnicodeEncodeError) as error:
        raise Permanent(_said(config, api_key, f"policy_base_url cannot be used: {error}")) from error
    except httpx.TimeoutException as error:
        raise Retryable(_said(config, api_key, f"no answer from {url} within {timeout_s:g} s")) from error
    except httpx.HTTPError as error:
        text = f"{url} cannot be reached: {type(error).__name__}: {error}. Is it running, and policy_base_url right?"
        raise Retryable(_said(config, api_key, text)) from error
    if problem := _problem(response):
        raise Permanent(_said(config, api_key, f"{url} {problem}"))


def _problem(response: httpx.Response) -> str | None:
    """Return what is wrong with the answer, None if a run may start."""
    status = response.status_code
    if status in {HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN}:
        return f"refused the key ({status}): {shown(response.text)}. Check policy_api_key"
    if response.is_redirect:
        return f"redirects to {shown(response.headers.get('location', ''))}: set policy_base_url to the address itself"
    if (
        status in {HTTPStatus.NOT_FOUND, HTTPStatus.METHOD_NOT_ALLOWED, HTTPStatus.TOO_MANY_REQUESTS}
        or status >= HTTPStatus.INTERNAL_SERVER_ERROR
    ):
        return None
    if not response.is_success:
        return f"answered {status}: {shown(response.text)}"
    try:
        found = json.loads(response.text)
    except ValueError:
        found = None
    if not isinstance(found, dict | list):
        return f"is no OpenAI-compatible API; it answered {shown(response.text)!r}. Does policy_base_url lack /v1?"
    return None


def _said(config: OpenAIModel, api_key: str | None, text: str) -> str:
    return without_secrets(f"model {config.policy_model_name}: {text}", api_key)
