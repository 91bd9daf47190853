"""Daytona's control plane."""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import Mapping
from typing import Any, Final

from providers.sandboxes.daytona.calls import Calls
from providers.sandboxes.daytona.machine import DaytonaMachine
from providers.sandboxes.daytona.networks import settings
from providers.sandboxes.remote.cloud import CloudRefused, Found
from providers.sandboxes.remote.ownership import OURS
from schemas.sandboxes import Daytona

PAGE_SIZE: Final = 200
PAGES_MAX: Final = 100
POLLING_S: Final = 0.3
OVER: Final = frozenset({"destroyed", "destroying", "error", "build_failed", "stopped", "stopping", "archived"})
GONE: Final = frozenset({"destroyed", "destroying"})


class DaytonaCloud:
    """See `providers.sandboxes.remote.cloud.Cloud`."""

    def __init__(self, config: Daytona, api_key: str | None) -> None:
        self._config = config
        self._calls = Calls(config.api_url, api_key, config.request_timeout_s)

    async def check(self) -> None:
        """Ask for the list of machines."""
        await self.find({OURS: "check"})

    async def prepare(self) -> None:
        """Do nothing: snapshots, in Daytona's sense, are made elsewhere."""

    async def make(self, metadata: Mapping[str, str], lifetime_s: int) -> DaytonaMachine:
        """Make a machine that is deleted when it stops, and stops when nobody uses it; wait until it has started."""
        config = self._config
        wanted: dict[str, Any] = {
            "labels": dict(metadata),
            "autoStopInterval": math.ceil(lifetime_s / 60),
            "autoDeleteInterval": 0,
            "ttlMinutes": math.ceil((config.max_age_s + lifetime_s) / 60),
        }
        named = {"snapshot": config.snapshot, "target": config.target, "user": config.user}
        sized = {"cpu": config.cpu, "memory": config.memory_gib, "disk": config.disk_gib}
        wanted |= {name: value for name, value in {**named, **sized}.items() if value is not None}
        if config.allow_hosts is not None:
            wanted |= settings(config.allow_hosts)
        try:
            made = await self._calls.api("making a machine", "POST", "/sandbox", json=wanted)
        except CloudRefused as error:
            if error.kind == "gone":  # the snapshot is not there
                raise CloudRefused("refused", str(error)) from error
            raise
        return await self._started(made)

    async def find(self, metadata: Mapping[str, str]) -> list[Found]:
        """Return the machines, running or not, that have all of `metadata`."""
        found: list[Found] = []
        cursor: str | None = None
        for _ in range(PAGES_MAX):
            params = {"labels": json.dumps(dict(metadata)), "limit": str(PAGE_SIZE)}
            if cursor:
                params["cursor"] = cursor
            page = await self._calls.api("looking for machines", "GET", "/sandbox", params=params)
            found += [
                Found(one["id"], one["labels"])
                for one in page["items"]
                if metadata.items() <= one["labels"].items() and one.get("state") not in GONE
            ]
            cursor = page.get("nextCursor")
            if not cursor:
                break
        return found

    async def remove(self, machine_id: str) -> bool:
        """Delete a machine; that it is gone already is fine."""
        try:
            await self._calls.api("removing a machine", "DELETE", f"/sandbox/{machine_id}")
        except CloudRefused as error:
            if error.kind != "gone":
                raise
            return False
        return True

    async def aclose(self) -> None:
        """Close connections."""
        await self._calls.aclose()

    async def _started(self, one: Any) -> DaytonaMachine:
        """Wait until a machine has started; the caller has a deadline."""
        while (state := one.get("state")) != "started":
            if state in OVER:
                raise CloudRefused("failed", f"Daytona, starting a machine: it is {state}: {one.get('errorReason')}")
            await asyncio.sleep(POLLING_S)
            one = await self._calls.api("waiting for a machine", "GET", f"/sandbox/{one['id']}")
        return DaytonaMachine(self._calls, one["id"], one["toolboxProxyUrl"])
