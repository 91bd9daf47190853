"""E2B's control plane, through its client."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Final

from e2b import ApiParams, AsyncSandbox, SandboxNetworkOpts, SandboxQuery

from providers.sandboxes.e2b.machine import E2BMachine
from providers.sandboxes.e2b.networks import rules
from providers.sandboxes.e2b.refusals import refusals
from providers.sandboxes.e2b.templates import build_if_missing
from providers.sandboxes.remote.cloud import CloudRefused, Found
from providers.sandboxes.remote.ownership import MADE, OURS
from schemas.sandboxes import E2B

FOUND_MAX: Final = 10_000


class E2BCloud:
    """See `providers.sandboxes.remote.cloud.Cloud`."""

    def __init__(self, config: E2B, api_key: str | None) -> None:
        self._config = config
        self._is_keyless = not api_key
        self._params: ApiParams = {
            "retries": 0,
            "request_timeout": config.request_timeout_s,
            "api_key": api_key or "none",
        }
        if config.domain:
            self._params["domain"] = config.domain
        if config.api_url:
            self._params["api_url"] = config.api_url
        if config.sandbox_url:
            self._params["sandbox_url"] = config.sandbox_url
        self._preparing = asyncio.Lock()
        self._is_prepared = False

    async def check(self) -> None:
        """Ask for the list of machines."""
        await self.find({OURS: "check"})

    async def prepare(self) -> None:
        """Have the template, once."""
        async with self._preparing:
            if not self._is_prepared:
                self._check_key()
                await build_if_missing(self._config, self._params)
                self._is_prepared = True

    async def make(self, metadata: Mapping[str, str], lifetime_s: int) -> E2BMachine:
        """Make a machine of the template. The client is told not to repeat the call."""
        hosts = self._config.allow_hosts
        network: SandboxNetworkOpts | None = None if hosts is None else rules(hosts)
        params: ApiParams = {**self._params, "request_timeout": self._config.create_timeout_s}
        async with refusals("making a machine"):
            sandbox = await AsyncSandbox.create(
                self._config.template,
                timeout=lifetime_s,
                metadata=dict(metadata),
                network=network,
                lifecycle={"on_timeout": "kill"},
                idempotency_key=metadata[MADE],
                **params,
            )
        scheme = "http" if (self._config.sandbox_url or "").startswith("http:") else "https"
        return E2BMachine(sandbox, self._config.user, scheme)

    async def find(self, metadata: Mapping[str, str]) -> list[Found]:
        """Return the machines, running or paused, that have all of `metadata`."""
        self._check_key()
        found: list[Found] = []
        async with refusals("looking for machines"):
            pages = AsyncSandbox.list(SandboxQuery(metadata=dict(metadata)), limit=100, **self._params)
            while pages.has_next and len(found) < FOUND_MAX:
                found += [
                    Found(one.sandbox_id, one.metadata)
                    for one in await pages.next_items()
                    if metadata.items() <= one.metadata.items()  # not every installation filters as it is asked to
                ]
        return found

    async def remove(self, machine_id: str) -> bool:
        """Kill a machine; that it is gone already is fine."""
        async with refusals("removing a machine"):
            return bool(await AsyncSandbox.kill(machine_id, **self._params))

    async def aclose(self) -> None:
        """The client keeps its connections for the whole process."""

    def _check_key(self) -> None:
        if self._is_keyless:
            raise CloudRefused("unauthorised", "E2B needs an API key, and there is none: E2B_API_KEY is not set")
