"""The backends of models behind HTTP, as the configuration names them."""

from __future__ import annotations

from providers.dialects import Dialect
from providers.dialects.catalog import DIALECTS
from providers.dialects.chat import Chat
from providers.models.backends import HttpBackend
from providers.models.chat_completions import OPENAI_HOST
from schemas.config import AnthropicModel, OpenAIModel


def dialect_of(config: OpenAIModel | AnthropicModel) -> Dialect:
    """Return what a backend speaks; OpenAI's own newer models refuse `max_tokens`, other backends know no other name."""
    if isinstance(config, AnthropicModel):
        return DIALECTS["messages"]
    is_openai = config.policy_base_url.startswith(OPENAI_HOST)
    return Chat("max_completion_tokens") if config.api == "chat" and is_openai else DIALECTS[config.api]


def backend_of(
    config: OpenAIModel | AnthropicModel, api_key: str | None, concurrency: int, max_tries: int
) -> HttpBackend:
    """Return the backend of `config`; up to `concurrency` calls have connections of their own."""
    return HttpBackend(
        dialect_of(config),
        config.policy_base_url,
        config.policy_model_name,
        api_key,
        timeout_s=config.timeout_s,
        concurrency=concurrency,
        max_tries=max_tries,
        extra_body=config.extra_body,
    )
