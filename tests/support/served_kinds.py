"""Every kind of server with every API that it has: how a test makes its double and its configuration."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from providers.dialects.catalog import DIALECTS
from schemas.config import AnthropicModel, AzureModel, HttpModel, LitellmModel, OpenAIModel, SwitchyardModel, VllmModel
from schemas.conversation import DialectName
from tests.support.served_doubles import MODEL, Azure, Double, Litellm, Switchyard, Vllm

DATED = "2024-10-21"
DIGEST = "ab" * 32


@dataclass(frozen=True)
class Kind:
    """One kind of server, and the path that its calls arrive at."""

    name: str
    dialect: DialectName
    double: Callable[[DialectName], Double]
    config: Callable[..., HttpModel]
    path: str
    base: str = ""

    def config_at(self, *urls: str, **more: Any) -> HttpModel:
        """Return a configuration with servers at these addresses."""
        bases = tuple(f"{url}{self.base}" for url in urls)
        said = {"policy_base_url": bases[0] if len(bases) == 1 else bases, "policy_model_name": MODEL, "timeout_s": 5}
        return self.config(**{**said, **more})


def _of(double: type[Double], **more: Any) -> Callable[[DialectName], Double]:
    return lambda dialect: double(DIALECTS[dialect], **more)


def _with_api(config: type[Any], api: str, **more: Any) -> Callable[..., HttpModel]:
    def make(**said: Any) -> HttpModel:
        made: HttpModel = config(api=api, **{**more, **said})
        return made

    return make


_PATHS: dict[DialectName, str] = {name: dialect.path for name, dialect in DIALECTS.items()}
KINDS = [
    Kind("openai-chat", "chat", _of(Double), _with_api(OpenAIModel, "chat"), _PATHS["chat"], "/v1"),
    Kind("openai-responses", "responses", _of(Double), _with_api(OpenAIModel, "responses"), _PATHS["responses"], "/v1"),
    Kind("anthropic", "messages", _of(Double), AnthropicModel, _PATHS["messages"]),
    Kind("azure-chat", "chat", _of(Azure), _with_api(AzureModel, "chat"), "/openai/v1/chat/completions"),
    Kind("azure-responses", "responses", _of(Azure), _with_api(AzureModel, "responses"), "/openai/v1/responses"),
    Kind(
        "azure-chat-dated", "chat", _of(Azure, api_version=DATED),
        _with_api(AzureModel, "chat", api_version=DATED), f"/openai/deployments/{MODEL}/chat/completions?api-version={DATED}",
    ),
    Kind(
        "azure-responses-dated", "responses", _of(Azure, api_version=DATED),
        _with_api(AzureModel, "responses", api_version=DATED), f"/openai/responses?api-version={DATED}", "/openai/",
    ),
    Kind("vllm", "chat", _of(Vllm), VllmModel, _PATHS["chat"], "/v1"),
    *(Kind(f"litellm-{d}", d, _of(Litellm), _with_api(LitellmModel, d), _PATHS[d]) for d in DIALECTS),
    *(
        Kind(f"switchyard-{d}", d, _of(Switchyard), _with_api(SwitchyardModel, d, routing_digest=DIGEST), _PATHS[d], "/v1")
        for d in DIALECTS
    ),
]  # fmt: skip
BY_NAME = {kind.name: kind for kind in KINDS}
