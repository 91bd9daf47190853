"""What a host's actors call, made once and shared: models, sandbox providers, the grader, the tasksets."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

from actors.verifier.verdict import Grader
from adapters.benchmarks.base import Grade
from gym_bus.redaction import Redactor
from gym_bus.secrets_store import SecretsStore
from gym_bus.settings import Settings
from providers.models import make_model
from providers.models.base import Model
from providers.sandboxes import make_provider
from providers.sandboxes.base import SandboxProvider
from schemas.config import Bubblewrap, ModelConfig, OpenAIModel, SandboxConfig, TasksetConfig
from schemas.tasks import Evidence, Task


class LazyGrader:
    """The grader's process, started with the first verdict."""

    def __init__(self, timeout_s: float) -> None:
        """Give every grade `timeout_s`."""
        from adapters.benchmarks.grading import GraderProcess  # noqa: PLC0415  only where verdicts are made

        self._process = GraderProcess(timeout_s=timeout_s)

    @property
    def version(self) -> str:
        """Return what identifies the code that grades."""
        return self._process.version

    async def grade(self, verifier: str, verifier_data: dict[str, Any], evidence: Evidence) -> Grade:
        """Grade in the grader's process."""
        return await self._process.grade(verifier, verifier_data, evidence)

    async def aclose(self) -> None:
        """End the process."""
        await self._process.aclose()


class Services:
    """See the module."""

    def __init__(self, settings: Settings, host_id: str, secrets: SecretsStore, redactor: Redactor) -> None:
        """Keep sandboxes' working directories under the data directory; teach `redactor` every key that is used."""
        self._settings = settings
        self._work_dir = settings.data_dir / "hosts" / host_id / "boxes"
        self._secrets = secrets
        self._redactor = redactor
        self._models: dict[str, Model] = {}
        self._providers: dict[str, SandboxProvider] = {}
        self._grader = LazyGrader(settings.grade_timeout_s)

    @property
    def grader(self) -> Grader:
        """Return the grader."""
        return self._grader

    def model_for(self, config: ModelConfig) -> Model:
        """Return the backend of `config`; the same configuration shares one and its connections."""
        key = config.model_dump_json()
        model = self._models.get(key)
        if model is None:
            api_key = None
            if isinstance(config, OpenAIModel) and config.policy_api_key:
                api_key = self._secrets.read(config.policy_api_key)
                self._redactor.learn(api_key)
            model = make_model(config, api_key, self._settings.session_slots)
            self._models[key] = model
        return model

    def provider_for(self, config: SandboxConfig) -> SandboxProvider:
        """Return the provider of `config`."""
        key = config.model_dump_json()
        if key not in self._providers:
            self._providers[key] = make_provider(config, self._work_dir)
        return self._providers[key]

    def load_tasks(self, config: TasksetConfig) -> list[Task]:
        """Load a taskset; blocking."""
        from adapters.benchmarks import load_tasks  # noqa: PLC0415  only where runs are planned

        return load_tasks(config)

    async def reap(self) -> None:
        """Remove what earlier lives of this host left behind."""
        if await asyncio.to_thread(self._work_dir.exists):
            await make_provider(Bubblewrap(), self._work_dir).reap()

    async def aclose(self) -> None:
        """Give everything back."""
        for model in self._models.values():
            with contextlib.suppress(Exception):
                await model.aclose()
        for provider in self._providers.values():
            with contextlib.suppress(Exception):
                await provider.aclose()
        await self._grader.aclose()
