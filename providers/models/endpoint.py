"""One configured model behind HTTP, shared by all sessions of a process: its addresses, connections, queue and key."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from providers.models.addresses import Addresses
from providers.models.admission import Admission
from providers.models.failures import without_secrets
from providers.models.http_client import HttpClient
from providers.models.overrides import overridden
from providers.models.wire import dialect_of, limit_field_of, shaped
from schemas.config import HttpModel, VllmModel
from schemas.model_urls import calls_url
from schemas.tokens import LogprobKind


def addresses_of(config: HttpModel) -> Addresses:
    """Return where a model is."""
    file = Path(config.endpoint_file) if config.endpoint_file else None
    return Addresses(config.addresses, file, config.endpoint_stale_grace_s)


class Endpoint:
    """See the module. Up to `concurrency` calls at once have connections of their own."""

    def __init__(self, config: HttpModel, api_key: str | None, concurrency: int) -> None:
        """Call the model of `config` with `api_key`."""
        self.config = config
        self.dialect = dialect_of(config)
        self.api_key = api_key
        self.addresses = addresses_of(config)
        self.admission = Admission(config.max_concurrent_requests)
        self.client = HttpClient(concurrency, config.timeout_s)

    @property
    def logprob_kind(self) -> LogprobKind | None:
        """Return which log-probabilities come with token ids, None if those are not asked for."""
        match self.config:
            case VllmModel(return_token_id_information=True, logprob_kind=kind):
                return kind
            case _:
                return None

    def url_at(self, address: str | None) -> str:
        """Return where calls are posted at an address, without secrets; for none, the file that should name one."""
        return self.clean(calls_url(self.config, address) if address else f"(no address) {self.config.endpoint_file}")

    def adapted(self, body: dict[str, Any]) -> dict[str, Any]:
        """Return a body with the model's own name, what its kind of server wants, and what the configuration lays over it."""
        config = self.config
        whole = {**shaped(config, {**body, "model": config.policy_model_name}), **config.extra_body}
        return overridden(whole, config.sampling_overrides, config.dialect, self._limit_field)

    @property
    def _limit_field(self) -> str | None:
        return limit_field_of(self.config) if self.config.dialect == "chat" else None

    def clean(self, text: str) -> str:
        """Return `text` without the key, and without a password inside a URL."""
        return without_secrets(text, self.api_key)

    def overrides(self) -> Mapping[str, Any]:
        """Return the sampling parameters that the configuration insists on, by its own names for them."""
        return {str(name): value for name, value in self.config.sampling_overrides.items()}

    async def aclose(self) -> None:
        """Give back connections."""
        await self.client.aclose()
