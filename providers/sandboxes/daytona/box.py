"""What a machine of Daytona can do beyond commands, files and snapshots."""

from __future__ import annotations

from collections.abc import Sequence

from providers.sandboxes.daytona.machine import DaytonaMachine
from providers.sandboxes.daytona.networks import settings
from providers.sandboxes.remote.box import RemoteBox


class DaytonaBox(RemoteBox[DaytonaMachine]):
    """See `RemoteBox`, and the Protocols in `providers.sandboxes.capabilities`."""

    async def allow(self, hosts: Sequence[str]) -> None:
        """Let the machine reach `hosts` from now on, and nothing else; raises `Permanent` for ports other than 443."""
        wanted = settings(hosts)
        async with self._in_turn():
            path = f"/sandbox/{self._machine.id}/network-settings"
            await self._machine.calls.api("setting what may be reached", "POST", path, json=wanted)

    async def address_of(self, port: int) -> str:
        """Return an address of a port that is good for the machine's lifetime, and only for who knows it."""
        async with self._in_turn():
            path = f"/sandbox/{self._machine.id}/ports/{port}/signed-preview-url"
            params = {"expiresInSeconds": str(self._lifetime_s)}
            found = await self._machine.calls.api("looking for a port", "GET", path, params=params)
            return str(found["url"])
