"""The backends that sessions' configurations name, made once and shared."""

from __future__ import annotations

from functools import partial
from typing import Final, assert_never

from adapters.harnesses.anew import without, written_anew
from gym_bus.redaction import Redactor
from gym_bus.secrets_store import SecretsStore
from providers.models.backends import Backend
from providers.models.base import Model
from providers.models.http_backend import HttpBackend
from providers.models.local_backend import LocalBackend
from providers.models.replay_backend import Replays
from providers.models.scripted import ScriptedModel
from providers.models.scripted_backend import ScriptedBackend
from providers.models.served import backend_of
from schemas.config import HttpModel, LocalModel, ReplayModel, ServedModel
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
        self._local: dict[str, LocalBackend] = {}
        self._replays: dict[str, Replays] = {}

    def backend_for(self, asked: SessionRequested, session: str) -> Backend:
        """Return the backend for a call of the session that is called `session`, whose calls keep to one address."""
        config = asked.model
        match config:
            case ScriptedConfig():
                model = self._scripted.setdefault(config.model_dump_json(), ScriptedModel(config))
                return ScriptedBackend(model, asked.task.task_id, asked.repeat, config.max_tries)
            case LocalModel():
                return self._local_one(config)
            case ReplayModel():
                tries_max = min(config.max_tries, TRIES_MAX)
                replays = self._replays.setdefault(config.model_dump_json(), Replays(config, tries_max))
                plain = partial(without, written_anew(asked.agent.type))
                return replays.for_session(session, asked.task.task_id, asked.repeat, plain)
            case ServedModel():
                return self._served(config).for_session(session)
            case _:
                assert_never(config)

    def _served(self, config: HttpModel) -> HttpBackend:
        api_key = self._keys.read(config.policy_api_key) if config.policy_api_key else None
        name = (config.model_dump_json(), api_key)
        if name not in self._http:
            if api_key:
                self._redactor.learn(api_key)
            self._http[name] = backend_of(config, api_key, self._concurrency, min(config.max_tries, TRIES_MAX))
        return self._http[name]

    def _local_one(self, config: LocalModel) -> LocalBackend:
        """Return the local model: one for all sessions."""
        name = config.model_dump_json()
        if name not in self._local:
            self._local[name] = LocalBackend(config, self._concurrency, min(config.max_tries, TRIES_MAX))
        return self._local[name]

    async def aclose(self) -> None:
        """Give everything back."""
        for backend in self._http.values():
            await backend.aclose()
        for local in self._local.values():
            await local.aclose()
        for model in self._scripted.values():
            await model.aclose()
