"""From a model's configuration to the model; SDKs are imported when they are first needed."""

from __future__ import annotations

from typing import assert_never

from providers.models.base import Model
from schemas.config import LocalModel, ModelConfig, OpenAIModel, ReplayModel, ScriptedModel, ServedModel


def make_model(config: ModelConfig, api_key: str | None, concurrency: int) -> Model:
    """Return the model of `config`; `concurrency` is how many calls may be under way at once."""
    match config:
        case ScriptedModel():
            from providers.models import scripted  # noqa: PLC0415

            return scripted.ScriptedModel(config)
        case LocalModel():
            from providers.models import local  # noqa: PLC0415  the same

            return local.LocalModel(config, concurrency)
        case ReplayModel():
            from providers.models import replay  # noqa: PLC0415  the same

            return replay.ReplayModel(config)
        case OpenAIModel() if config.api == "chat":
            from providers.models import openai_chat  # noqa: PLC0415  a second of imports

            return openai_chat.OpenAIChatModel(config, api_key, concurrency)
        case ServedModel():
            from providers.models.dialect_model import DialectModel  # noqa: PLC0415  the same
            from providers.models.served import backend_of  # noqa: PLC0415  the same

            return DialectModel(backend_of(config, api_key, concurrency, config.max_tries))
        case _:
            assert_never(config)
