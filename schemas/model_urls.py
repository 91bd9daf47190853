"""Where a server of each kind is called, where it lists its models, and how it wants its key; nothing here talks to anybody."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, assert_never
from urllib.parse import quote

from schemas.config import AnthropicModel, AzureModel, HttpModel, LitellmModel, OpenAIModel, SwitchyardModel, VllmModel
from schemas.conversation import DialectName

PATHS: Final[Mapping[DialectName, str]] = {
    "chat": "/chat/completions",
    "responses": "/responses",
    "messages": "/messages",
}
ANTHROPIC_VERSION: Final = "2023-06-01"


def calls_url(model: HttpModel, address: str) -> str:
    """Return where calls of `model` are posted at one of its addresses."""
    match model:
        case AzureModel(api_version=None):
            return f"{_azure(address)}/v1{PATHS[model.dialect]}"
        case AzureModel(api="chat"):
            deployment = quote(model.policy_model_name, safe="")
            return f"{_azure(address)}/deployments/{deployment}{PATHS['chat']}?api-version={model.api_version}"
        case AzureModel():
            return f"{_azure(address)}{PATHS['responses']}?api-version={model.api_version}"
        case OpenAIModel():
            return f"{address.rstrip('/')}{PATHS[model.dialect]}"
        case AnthropicModel() | VllmModel() | LitellmModel() | SwitchyardModel():
            return f"{_root(address)}/v1{PATHS[model.dialect]}"
        case _:
            assert_never(model)


def models_url(model: HttpModel, address: str) -> str:
    """Return where the server at an address lists its models: at Azure what could be deployed, else what can be called."""
    match model:
        case AzureModel(api_version=None):
            return f"{_azure(address)}/v1/models"
        case AzureModel():
            return f"{_azure(address)}/models?api-version={model.api_version}"
        case OpenAIModel():
            return f"{address.rstrip('/')}/models"
        case AnthropicModel() | VllmModel() | LitellmModel() | SwitchyardModel():
            return f"{_root(address)}/v1/models"
        case _:
            assert_never(model)


def key_headers(model: HttpModel, api_key: str | None) -> dict[str, str]:
    """Return the headers that hold the key, and what else the API insists on."""
    match model:
        case AzureModel():
            return {"api-key": api_key} if api_key else {}
        case AnthropicModel() | SwitchyardModel() if model.dialect == "messages":
            return {"anthropic-version": ANTHROPIC_VERSION, **({"x-api-key": api_key} if api_key else {})}
        case LitellmModel(api="messages"):
            return {"anthropic-version": ANTHROPIC_VERSION, **_bearer(api_key)}
        case _:
            return _bearer(api_key)


def _bearer(api_key: str | None) -> dict[str, str]:
    return {"authorization": f"Bearer {api_key}"} if api_key else {}


def _root(address: str) -> str:
    """Return a server's root, whether or not its address was written with `/v1`."""
    return address.rstrip("/").removesuffix("/v1")


def _azure(address: str) -> str:
    """Return the root of a resource's API, whatever of it the address was written with."""
    return f"{address.rstrip('/').removesuffix('/v1').removesuffix('/openai')}/openai"
