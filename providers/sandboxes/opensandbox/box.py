"""What a container of an OpenSandbox server can do beyond commands, files and snapshots."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from datetime import timedelta

from opensandbox import Sandbox

from gym_bus.errors import Permanent
from providers.sandboxes.base import ExecResult
from providers.sandboxes.opensandbox.machine import OpenSandboxMachine
from providers.sandboxes.opensandbox.networks import rules
from providers.sandboxes.opensandbox.refusals import refusals
from providers.sandboxes.remote.box import RemoteBox
from providers.sandboxes.remote.cloud import CloudRefused

RESUME_TIMEOUT_S = 60.0


class OpenSandboxBox(RemoteBox[OpenSandboxMachine]):
    """See `RemoteBox`, and the Protocols in `providers.sandboxes.capabilities`."""

    lives_on_paused = False

    async def exec_as(self, user: str, command: str, *, key: str, timeout_s: float) -> ExecResult:
        """Run `command` as a user of the image; raises `Permanent` if there is none of that name."""
        async with self._in_turn():
            try:
                name = shlex.quote(user)
                ids = (await self._shell.ask(f"id -u -- {name} && id -g -- {name}")).split()
            except CloudRefused as error:
                if error.kind != "refused":
                    raise
                raise Permanent(f"sandbox {self._label} has no user {user}") from error
        return await self._exec(command, key, timeout_s, ":".join(ids))

    async def pause(self) -> None:
        """Stop everything where it is; safe to repeat."""
        async with self._in_turn(even_paused=True), refusals("pausing"):
            if not self._is_paused:
                await self._machine.sandbox.pause()
                self._is_paused = True

    async def resume(self) -> None:
        """Let it go on; safe to repeat. Its daemon may have another address then."""
        async with self._in_turn(even_paused=True), refusals("resuming"):
            if self._is_paused:
                old = self._machine.sandbox
                self._machine.sandbox = await Sandbox.resume(
                    str(old.id), old.connection_config, resume_timeout=timedelta(seconds=RESUME_TIMEOUT_S)
                )
                self._is_paused = False
                await self._machine.renew(self._lifetime_s)

    async def address_of(self, port: int) -> str:
        """Return the address at which the server, or the container itself, shows a port."""
        async with self._in_turn(), refusals("looking for a port"):
            sandbox = self._machine.sandbox
            found = await sandbox.get_endpoint(port)
            return f"{sandbox.connection_config.protocol}://{found.endpoint}"


class NetworkedOpenSandboxBox(OpenSandboxBox):
    """One that was made with a policy, and so has what keeps it."""

    async def allow(self, hosts: Sequence[str]) -> None:
        """Let the machine reach `hosts` from now on, and nothing else: what is no more allowed is taken away first."""
        wanted = rules(hosts)
        async with self._in_turn(), refusals("setting what may be reached"):
            sandbox = self._machine.sandbox
            known = {rule.target for rule in (await sandbox.get_egress_policy()).egress or ()}
            targets = {rule.target for rule in wanted}
            if gone := sorted(known - targets):
                await sandbox.delete_egress_rules(gone)
            if new := [rule for rule in wanted if rule.target not in known]:
                await sandbox.patch_egress_rules(new)
