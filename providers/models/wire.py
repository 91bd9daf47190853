"""What each kind of server wants of a call beyond its dialect, and what it says in headers."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Final, Literal
from urllib.parse import quote

from providers.dialects import Dialect
from providers.dialects.catalog import DIALECTS
from providers.dialects.chat import Chat
from schemas.config import AzureModel, HttpModel, LitellmModel, OpenAIModel, SwitchyardModel, VllmModel

OPENAI_HOST: Final = "https://api.openai.com/"
SESSION_HEADER: Final = "x-switchyard-session-id"
COST_HEADER: Final = "x-litellm-response-cost"
KNOWS_COMPLETION_TOKENS: Final = "2024-09"
"""The first of Azure's dated versions whose Chat Completions know `max_completion_tokens`."""

LimitField = Literal["max_tokens", "max_completion_tokens"]


def limit_field_of(model: HttpModel) -> LimitField:
    """Return how Chat Completions bound an answer: OpenAI's own newer models refuse `max_tokens`, others know no other name."""
    match model:
        case AzureModel():
            is_old = model.api_version is not None and model.api_version < KNOWS_COMPLETION_TOKENS
            return "max_tokens" if is_old else "max_completion_tokens"
        case OpenAIModel() if any(address.startswith(OPENAI_HOST) for address in model.addresses):
            return "max_completion_tokens"
        case _:
            return "max_tokens"


def dialect_of(model: HttpModel) -> Dialect:
    """Return what a backend speaks."""
    limit_field = limit_field_of(model)
    is_plain = model.dialect != "chat" or limit_field == "max_tokens"
    return DIALECTS[model.dialect] if is_plain else Chat(limit_field)


def shaped(model: HttpModel, body: dict[str, Any]) -> dict[str, Any]:
    """Return a body with what this kind of server is told besides."""
    return _for_vllm(model, body) if isinstance(model, VllmModel) else body


def _for_vllm(model: VllmModel, body: dict[str, Any]) -> dict[str, Any]:
    """Ask for token ids; leave out what vLLM refuses and what says nothing."""
    body = dict(body)
    if model.return_token_id_information:
        body["return_token_ids"] = True
        body.setdefault("logprobs", True)
    if model.chat_template_kwargs:
        given = body.get("chat_template_kwargs")
        body["chat_template_kwargs"] = {**(given if isinstance(given, dict) else {}), **model.chat_template_kwargs}
    if not body.get("tools") and body.get("tool_choice") in ("auto", "none"):
        del body["tool_choice"]
    messages = body.get("messages")
    if model.replace_developer_role_with_system and isinstance(messages, list):
        body["messages"] = [_as_system(message) for message in messages]
    return body


def _as_system(message: Any) -> Any:
    is_developer = isinstance(message, dict) and message.get("role") == "developer"
    return {**message, "role": "system"} if is_developer else message


def session_headers(model: HttpModel, session: str) -> dict[str, str]:
    """Return the headers that tell the server whose call it is."""
    if not isinstance(model, SwitchyardModel):
        return {}
    return {SESSION_HEADER: quote(session, safe="/.-_~:") or "none"}


def cost_usd(model: HttpModel, headers: Mapping[str, str], *, is_streamed: bool) -> float | None:
    """Return what the server says that a call cost, in US dollars; None if it does not say so.

    Headers are sent before a streamed answer is made: a cost of 0 in them is no cost that anybody knows yet.
    """
    if not isinstance(model, LitellmModel):
        return None
    try:
        cost = float(headers.get(COST_HEADER, ""))
    except ValueError:
        return None
    is_known = math.isfinite(cost) and cost >= 0 and not (is_streamed and cost == 0)
    return cost if is_known else None
