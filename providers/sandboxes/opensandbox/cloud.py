"""An OpenSandbox server, through its client."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from datetime import timedelta
from typing import Final

from opensandbox import Sandbox, SandboxManager
from opensandbox.config import ConnectionConfig
from opensandbox.models.sandboxes import NetworkPolicy, SandboxFilter
from opensandbox.transport import RetryPolicy

from providers.sandboxes.opensandbox.connections import Connections, closed_on_failure
from providers.sandboxes.opensandbox.machine import OpenSandboxMachine
from providers.sandboxes.opensandbox.networks import policy
from providers.sandboxes.opensandbox.refusals import refusals
from providers.sandboxes.remote.cloud import CloudRefused, Found
from providers.sandboxes.remote.ownership import OURS, word
from schemas.sandboxes import OpenSandbox

PAGE_SIZE: Final = 100
PAGES_MAX: Final = 100
POLLING_S: Final = 0.2


class OpenSandboxCloud:
    """See `providers.sandboxes.remote.cloud.Cloud`."""

    def __init__(self, config: OpenSandbox, api_key: str | None) -> None:
        self._config = config
        self._api_key = api_key
        self._manager: SandboxManager | None = None
        self._managers = Connections()
        self._made: dict[str, Connections] = {}
        self._connecting = asyncio.Lock()

    async def check(self) -> None:
        """Ask for the list of machines."""
        await self.find({OURS: "check"})

    async def prepare(self) -> None:
        """Do nothing: the server has its images or fetches them."""

    async def make(self, metadata: Mapping[str, str], lifetime_s: int) -> OpenSandboxMachine:
        """Make a container of the image, and wait until what runs in it answers. The client repeats nothing."""
        config = self._config
        network: NetworkPolicy | None = None if config.allow_hosts is None else policy(config.allow_hosts)
        connections = Connections()
        async with refusals("making a machine", is_made=False), closed_on_failure(connections):
            sandbox = await Sandbox.create(
                config.image,
                timeout=timedelta(seconds=lifetime_s),
                ready_timeout=timedelta(seconds=config.create_timeout_s),
                health_check_polling_interval=timedelta(seconds=POLLING_S),
                metadata={**{name: word(value) for name, value in config.labels.items()}, **metadata},
                resource=dict(config.resource_limits),
                resource_requests=dict(config.resource_requests) or None,
                network_policy=network,
                connection_config=self.connection(connections),
            )
        self._made[str(sandbox.id)] = connections
        return OpenSandboxMachine(sandbox)

    async def find(self, metadata: Mapping[str, str]) -> list[Found]:
        """Return the machines, running or paused, that have all of `metadata`."""
        manager, found = await self._managing(), list[Found]()
        async with refusals("looking for machines", is_made=False):
            for page in range(1, PAGES_MAX + 1):
                wanted = SandboxFilter(metadata=dict(metadata), page=page, page_size=PAGE_SIZE)
                answer = await manager.list_sandbox_infos(wanted)
                found += [
                    Found(str(one.id), one.metadata or {})
                    for one in answer.sandbox_infos
                    if metadata.items() <= (one.metadata or {}).items()
                ]
                if not answer.pagination.has_next_page:
                    break
        return found

    async def remove(self, machine_id: str) -> bool:
        """Kill a machine; that it is gone already is fine."""
        manager, is_there = await self._managing(), True
        try:
            async with refusals("removing a machine"):
                await manager.kill_sandbox(machine_id)
        except CloudRefused as error:
            if error.kind != "gone":
                raise
            is_there = False
        if connections := self._made.pop(machine_id, None):
            await connections.aclose()
        return is_there

    async def aclose(self) -> None:
        """Close connections."""
        for connections in (*self._made.values(), self._managers):
            await connections.aclose()
        self._made.clear()

    def connection(self, connections: Connections) -> ConnectionConfig:
        """Return how the client is to talk to the server."""
        if not self._api_key:
            raise CloudRefused("unauthorised", "OpenSandbox needs an API key, and there is none")
        config = self._config
        return ConnectionConfig(
            api_key=self._api_key,
            domain=config.domain,
            protocol=config.protocol,
            request_timeout=timedelta(seconds=config.request_timeout_s),
            use_server_proxy=config.use_server_proxy,
            retry_policy=RetryPolicy.disabled(),
            disable_metrics=True,
            transport=connections,
        )

    async def _managing(self) -> SandboxManager:
        async with self._connecting:
            if self._manager is None:
                self._manager = await SandboxManager.create(self.connection(self._managers))
            return self._manager
