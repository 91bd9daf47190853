"""A gateway whose session names a model by its configuration, with the gateway's own way to a backend; or several sessions."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from actors.gateway.app import Gateway
from actors.gateway.backends import Backends
from gym_bus.blobs import MemoryBlobs
from gym_bus.clock import SystemClock
from gym_bus.codec import Codec
from gym_bus.memory_bus import MemoryServer
from gym_bus.redaction import Redactor
from gym_bus.secrets_store import SecretsStore
from providers.models.http_backend import HttpBackend
from schemas.config import HttpModel
from tests.support.gateway_place import KEY as SIGNING_KEY
from tests.support.gateway_place import GatewayPlace, alone, log_as, open_session
from tests.support.served_doubles import KEY
from tests.support.upstream import Upstream, served


@asynccontextmanager
async def served_place(upstream: Upstream, config: HttpModel) -> AsyncIterator[GatewayPlace]:
    """Give a gateway with one open session whose model is `config`, called with the doubles' key."""
    server, codec = MemoryServer(), Codec(MemoryBlobs())
    with tempfile.TemporaryDirectory() as directory:
        keys = SecretsStore(Path(directory) / "secrets")
        model = config.model_copy(update={"policy_api_key": keys.store(KEY)})
        grant = await open_session(server, codec, model=model)
        backends = Backends(keys, Redactor(), 64)
        async with asyncio.TaskGroup() as group:
            gateway = Gateway(
                log_as("model", server, codec, "g0.x"), SystemClock(), SIGNING_KEY, backends.backend_for, alone("g0.x")
            )
            running = group.create_task(gateway.run())
            try:
                async with served(gateway.app) as url:
                    backend = backends._served(model)
                    assert isinstance(backend, HttpBackend)
                    yield GatewayPlace(url, upstream, server, codec, grant, gateway, backend)
            finally:
                await backends.aclose()
                running.cancel()
