"""What a microVM of E2B can do beyond commands and files."""

from __future__ import annotations

from collections.abc import Sequence

from gym_bus.errors import Permanent
from providers.sandboxes.base import BoxLost, ExecResult
from providers.sandboxes.e2b.machine import E2BMachine
from providers.sandboxes.e2b.networks import update
from providers.sandboxes.e2b.refusals import refusals
from providers.sandboxes.remote.box import RemoteBox


class E2BBox(RemoteBox[E2BMachine]):
    """See `RemoteBox`, and the Protocols in `providers.sandboxes.capabilities`."""

    async def exec_as(self, user: str, command: str, *, key: str, timeout_s: float) -> ExecResult:
        """Run `command` as a user of the template; raises `Permanent` if there is none of that name."""
        async with self._in_turn():
            known = await self._shell.ask("cut -d: -f1 /etc/passwd")
            if user not in known.split():
                raise Permanent(f"sandbox {self._label} has no user {user}")
        return await self._exec(command, key, timeout_s, user)

    async def pause(self) -> None:
        """Keep memory and files, and stop paying for processors; safe to repeat."""
        async with self._in_turn(even_paused=True), refusals("pausing"):
            if not self._is_paused:
                await self._machine.sandbox.pause()
                self._is_paused = True

    async def resume(self) -> None:
        """Let it go on; safe to repeat."""
        async with self._in_turn(even_paused=True), refusals("resuming"):
            if self._is_paused:
                await self._machine.sandbox.connect(self._lifetime_s)
                self._is_paused = False

    async def allow(self, hosts: Sequence[str]) -> None:
        """Let the machine reach `hosts` from now on, and nothing else; raises `Permanent` for ports other than 443."""
        wanted = update(hosts)
        async with self._in_turn(), refusals("setting what may be reached"):
            await self._machine.sandbox.update_network(wanted)

    async def address_of(self, port: int) -> str:
        """Return the address of a port; E2B's edge shows it to everybody who knows the machine's name."""
        if not self.is_alive:
            raise BoxLost(f"sandbox {self._label} is gone")
        return f"{self._machine.scheme}://{self._machine.sandbox.get_host(port)}"
