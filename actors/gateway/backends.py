"""The backends that sessions' configurations name, made once and shared."""

from __future__ import annotations

from typing import Final, assert_never

from gym_bus.redaction import Redactor
from gym_bus.secrets_store import SecretsStore
from providers.models.backends import Backend, HttpBackend
from providers.models.base import Model
from providers.models.scripted import ScriptedModel
from providers.models.scripted_backend import ScriptedBackend
from providers.models.served import backend_of
from schemas.config import AnthropicModel, OpenAIModel
from schemas.config import ScriptedModel as ScriptedConfig
from schemas.events import SessionRequested

TRIES_MAX: Final = 3
"""Clients try again by themselves, and wait without a word meanwhile."""


class Backends:
    """See the module."""

    def __init__(self, keys: SecretsStore, redactor: Redactor, concurrency: int) -> None:
        """Read keys from `keys` and teach them to `redactor`; up to `concurrency` calls go to a backend at once."""
        self._keys = keys
        self._redactor = redactor
        self._concurrency = concurrency
        self._http: dict[tuple[str, str | None], HttpBackend] = {}
        self._scripted: dict[str, Model] = {}

    def backend_for(self, asked: SessionRequested) -> Backend:
        """Return the backend of a session."""
        config = asked.model
        match config:
            case ScriptedConfig():
                model = self._scripted.setdefault(config.model_dump_json(), ScriptedModel(config))
                return ScriptedBackend(model, asked.task.task_id, asked.repeat, config.max_tries)
            case OpenAIModel() | AnthropicModel():
                return self._served(config)
            case _:
                assert_never(config)

    def _served(self, config: OpenAIModel | AnthropicModel) -> HttpBackend:
        api_key = self._keys.read(config.policy_api_key) if config.policy_api_key else None
        name = (config.model_dump_json(), api_key)
        if name not in self._http:
            if api_key:
                self._redactor.learn(api_key)
            self._http[name] = backend_of(config, api_key, self._concurrency, min(config.max_tries, TRIES_MAX))
        return self._http[name]

    async def aclose(self) -> None:
        """Give everything back."""
        for backend in self._http.values():
            await backend.aclose()
        for model in self._scripted.values():
            await model.aclose()
