"""Commands in one machine: started, heard, ended at their deadline with everything else that they left running."""

from __future__ import annotations

import asyncio
import secrets
import shlex
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from providers.sandboxes.base import ExecResult
from providers.sandboxes.processes import result
from providers.sandboxes.remote import kept_output, scripts
from providers.sandboxes.remote.cloud import CloudRefused, Machine
from providers.sandboxes.remote.kept_output import KeptListener
from providers.sandboxes.remote.listening import Listener
from schemas.sandboxes import RemoteSandbox, SandboxLimits

START_TIMEOUT_S: Final = 60.0
CLEAR_TIMEOUT_S: Final = 30.0
SETUP_MAX_BYTES: Final = 1_048_576
KILLED: Final = 128 + 9


@dataclass(frozen=True, slots=True)
class Place:
    """Where commands run: the workspace, the `user` who runs them (None is the machine's own), the `admin` who may kill all of theirs.

    A machine is always renewed for `lifetime_s`. What passes through this host does so in `staging`.
    """

    workspace: str
    user: str | None
    admin: str | None
    limits: SandboxLimits
    lifetime_s: int
    staging: Path


def place_of(config: RemoteSandbox, work_dir: Path, *, user: str | None, admin: str | None) -> Place:
    """Return the place that a configuration means."""
    return Place(config.workspace, user, admin, config.limits, config.lifetime_s, work_dir)


class RemoteShell:
    """Drives one machine. Not for two commands at a time."""

    def __init__(self, machine: Machine, place: Place) -> None:
        self._machine = machine
        self._place = place
        self.identity = ""
        self._baseline: tuple[str, ...] = ()

    async def set_up(self) -> None:
        """Make the workspace, and remember what the machine is and what runs in it; raises `CloudRefused`."""
        owner = self._place.user if self._place.admin else None
        said = await self.ask(scripts.setup(self._place.workspace, owner), user=self._place.admin)
        lines = said.split()
        if not lines:
            raise CloudRefused("refused", f"{self._place.workspace} cannot be made: set sandbox.workspace")
        self.identity, *baseline = lines
        self._baseline = tuple(baseline)

    async def run(
        self, command: str, timeout_s: float, user: str | None = None, jobs: Iterable[str] = ()
    ) -> ExecResult:
        """Run one command; at its deadline everything is killed but `jobs`. Raises `CloudRefused`."""
        nonce, loop, place = secrets.token_hex(8), asyncio.get_running_loop(), self._place
        command, file = await self.brought(command, nonce)
        way = scripts if self._machine.is_exact else kept_output
        line = way.run(
            command, file, nonce=nonce, identity=self.identity, workspace=place.workspace, limits=place.limits
        )
        began = loop.time()

        def on_begin() -> None:
            nonlocal began
            began = loop.time()
            deadline.reschedule(began + timeout_s)

        kind = Listener if self._machine.is_exact else KeptListener
        listener = kind(nonce, place.limits.output_bytes, on_begin)
        limit_s = START_TIMEOUT_S + timeout_s + CLEAR_TIMEOUT_S
        try:
            async with asyncio.timeout(START_TIMEOUT_S if self._machine.is_streamed else timeout_s) as deadline:
                code = await self._machine.run(line, listener.hear, user=user or place.user, timeout_s=limit_s)
        except TimeoutError:
            duration_s = loop.time() - began
            await self._clear(jobs)
            if isinstance(listener, KeptListener):
                listener.hear((await self.ask(kept_output.collect(nonce, place.limits), user=user)).encode())
            if not listener.has_begun:
                raise CloudRefused("failed", f"no command began within {START_TIMEOUT_S:g} s") from None
            return result(None, listener.output(), duration_s)
        return await self._ended(listener, code, loop.time() - began)

    async def ask(self, line: str, *, user: str | None = None, timeout_s: float = START_TIMEOUT_S) -> str:
        """Run a line of our own and return what it prints; raises `CloudRefused`, also if it fails."""
        said = bytearray()

        def hear(data: bytes) -> bool:
            said.extend(data[: SETUP_MAX_BYTES - len(said)])
            return False

        try:
            async with asyncio.timeout(timeout_s):
                code = await self._machine.run(line, hear, user=user or self._place.user, timeout_s=timeout_s + 5)
        except TimeoutError:
            raise CloudRefused("failed", f"the machine did not answer within {timeout_s:g} s") from None
        text = said.decode(errors="replace")
        if code != 0:
            raise CloudRefused("refused", f"the machine said {text.strip()[-300:]!r} (exit code {code})")
        return text

    async def _clear(self, jobs: Iterable[str]) -> None:
        try:
            await self.ask(scripts.clear(self._baseline, jobs), user=self._place.admin, timeout_s=CLEAR_TIMEOUT_S)
        except CloudRefused as error:
            kind = "failed" if error.kind == "refused" else error.kind
            raise CloudRefused(kind, f"what ran past its deadline could not be ended: {error}") from error

    async def brought(self, command: str, nonce: str) -> tuple[str, str]:
        """Return a command as it is, or nothing and the machine's file that it was written to because it is long."""
        if len(shlex.quote(command).encode()) <= scripts.INLINE_MAX_BYTES:
            return command, ""
        path = f"/tmp/.gymbus-{nonce}.sh"  # noqa: S108  in the machine, under a name that nobody can guess
        with tempfile.NamedTemporaryFile(prefix="gym-bus-") as file:
            file.write(command.encode())
            file.flush()
            await self._machine.upload(Path(file.name), path)
        return "", path

    async def _ended(self, listener: Listener | KeptListener, code: int | None, duration_s: float) -> ExecResult:
        if listener.trouble == scripts.CHANGED:
            raise CloudRefused("gone", "the machine was restarted, or another one has its name: nothing was started")
        if not listener.has_begun:
            raise CloudRefused(
                "failed", f"no command can be started: {listener.trouble or listener.said()!r} (exit code {code})"
            )
        if listener.exit_code is not None:
            return result(listener.exit_code, listener.output(), duration_s)
        if (await self.ask(scripts.who())).strip() != self.identity:
            raise CloudRefused("gone", "the machine was restarted while a command ran")
        return result(KILLED, listener.output(), duration_s)  # it took the shell along
