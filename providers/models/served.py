"""The backends of models behind HTTP, as the configuration names them."""

from __future__ import annotations

from providers.models.endpoint import Endpoint
from providers.models.http_backend import HttpBackend
from schemas.config import HttpModel


def backend_of(config: HttpModel, api_key: str | None, concurrency: int, max_tries: int) -> HttpBackend:
    """Return the backend of `config`; up to `concurrency` calls have connections of their own."""
    return HttpBackend(Endpoint(config, api_key, concurrency), max_tries)
