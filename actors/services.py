"""What a host's actors call, made once and shared: models, sandbox providers, the grader, the tasksets."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from typing import Final

import structlog

from actors.collector import plan
from actors.ended_runs import EndedRuns
from actors.used_sandboxes import UsedSandboxes
from adapters.benchmarks.grading import GraderProcess
from gym_bus.errors import GymBusError
from gym_bus.redaction import Redactor
from gym_bus.secrets_store import SecretsStore
from gym_bus.settings import Settings
from providers.models import make_model
from providers.models.base import Model
from providers.sandboxes import make_provider
from providers.sandboxes.base import SandboxProvider
from schemas.config import ModelConfig, ServedModel, TasksetConfig
from schemas.sandboxes import RemoteSandbox, SandboxConfig
from schemas.tasks import Task

log = structlog.get_logger(__name__)

REAPED_WITHIN_S: Final = 120.0


class Services:
    """See the module."""

    def __init__(self, settings: Settings, host_id: str, keys: SecretsStore, redactor: Redactor) -> None:
        """Keep sandboxes' working directories under the data directory; teach `redactor` every key that is used."""
        self._settings = settings
        self._work_dir = settings.data_dir / "hosts" / host_id / "boxes"
        self._secrets = keys
        self._redactor = redactor
        self._models: dict[tuple[str, str | None], Model] = {}
        self._providers: dict[tuple[str, str | None], SandboxProvider] = {}
        self._used = UsedSandboxes(self._work_dir.parent / "sandboxes.jsonl")
        self.ended_runs = EndedRuns(self._work_dir.parent / "remote_runs.jsonl", self.provider_for)
        self.grader = GraderProcess(timeout_s=settings.grade_timeout_s)

    def model_for(self, config: ModelConfig) -> Model:
        """Return the backend of `config`; the same configuration shares one and its connections."""
        api_key = None
        if isinstance(config, ServedModel) and config.policy_api_key:
            api_key = self._secrets.read(config.policy_api_key)  # each time: `eval resume --model-api-key` replaces it
        key = (config.model_dump_json(), api_key)
        model = self._models.get(key)
        if model is None:
            if api_key:
                self._redactor.learn(api_key)
            model = make_model(config, api_key, self._settings.session_slots)
            self._models[key] = model
        return model

    def provider_for(self, config: SandboxConfig) -> SandboxProvider:
        """Return the provider of `config`; raises `SandboxUnavailable` if something for it is not installed."""
        api_key = None
        if isinstance(config, RemoteSandbox) and config.api_key:
            api_key = self._secrets.read(config.api_key)
            self._redactor.learn(api_key)
        key = (config.model_dump_json(), api_key)
        if key not in self._providers:
            self._used.add(config)
            self._providers[key] = make_provider(config, self._work_dir, api_key)
        return self._providers[key]

    async def load_tasks(self, config: TasksetConfig) -> list[Task]:
        """Load a taskset in the grader's process, which has the generators in memory; raises `BadTaskset`."""
        path = self._work_dir.parent / f"tasks-{secrets.token_hex(6)}.jsonl"
        try:
            await self.grader.load(config.model_dump(mode="json"), path, self._settings.load_timeout_s)
            content = await asyncio.to_thread(path.read_bytes)
        finally:
            path.unlink(missing_ok=True)
        return await asyncio.to_thread(plan.load, content)

    async def warm(self) -> None:
        """Get the grader ready for the kind of taskset that is about to be asked for, if anybody said so."""
        if self._settings.warm:
            with contextlib.suppress(GymBusError):
                await self.grader.warm(self._settings.warm)

    async def reap(self) -> int:
        """Remove what dead processes left behind of every provider that this host has ever used; return how many machines."""
        found = 0
        for config in await asyncio.to_thread(self._used.all):
            try:
                async with asyncio.timeout(REAPED_WITHIN_S):
                    found += await self.provider_for(config).reap()
            except (GymBusError, OSError, TimeoutError) as error:
                log.warning("not_reaped", provider=config.type, reason=str(error) or "out of time")
        return found

    async def aclose(self) -> None:
        """Give everything back."""
        for model in self._models.values():
            with contextlib.suppress(Exception):
                await model.aclose()
        for provider in self._providers.values():
            with contextlib.suppress(Exception):
                await provider.aclose()
        await self.grader.aclose()
