"""One container of an OpenSandbox server, as its client drives it."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from datetime import timedelta
from pathlib import Path

from opensandbox import Sandbox
from opensandbox.models.execd import ExecutionHandlers, OutputMessage, RunCommandOpts
from opensandbox.models.filesystem import WriteEntry

from providers.sandboxes.opensandbox.refusals import refusals
from providers.sandboxes.remote.cloud import CloudRefused


class OpenSandboxMachine:
    """See `providers.sandboxes.remote.cloud.Machine`. A `user` is `uid:gid`, in numbers."""

    def __init__(self, sandbox: Sandbox) -> None:
        self.sandbox = sandbox

    @property
    def is_exact(self) -> bool:
        """Say no: its daemon carries lines, without what ends them."""
        return False

    @property
    def is_streamed(self) -> bool:
        """Say yes."""
        return True

    @property
    def id(self) -> str:
        """Return the server's name for it."""
        return str(self.sandbox.id)

    async def run(
        self, command: str, hear: Callable[[bytes], bool], *, user: str | None, timeout_s: float
    ) -> int | None:
        """Run `command` to its end; each of its lines is handed over as one."""

        async def on_stdout(message: OutputMessage) -> None:
            hear(message.text.encode(errors="replace").removesuffix(b"\n") + b"\n")

        uid, _, gid = (user or "").partition(":")
        opts = RunCommandOpts(
            timeout=timedelta(seconds=timeout_s), uid=int(uid) if uid else None, gid=int(gid) if gid else None
        )
        async with refusals("running a command"):
            done = await self.sandbox.commands.run(
                command, opts=opts, handlers=ExecutionHandlers(on_stdout=on_stdout, skip_accumulation=True)
            )
        if done.exit_code is None:
            raise CloudRefused("failed", "OpenSandbox, running a command: its answer was cut off")
        return done.exit_code

    async def upload(self, source: Path, path: str) -> None:
        """Stream a file in, which everybody in the machine may read."""
        async with refusals("writing a file"):
            with source.open("rb") as file:
                await self.sandbox.files.write_files([WriteEntry(path=path, data=file, mode=644)])

    async def download(self, path: str) -> AsyncGenerator[bytes, None]:
        """Stream a file out."""
        async with refusals("reading a file"):
            async for chunk in await self.sandbox.files.read_bytes_stream(path):
                yield chunk

    async def renew(self, lifetime_s: int) -> None:
        """Set when it ends."""
        async with refusals("renewing"):
            await self.sandbox.renew(timedelta(seconds=lifetime_s))
