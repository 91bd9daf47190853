"""One microVM, as E2B's client drives it."""

from __future__ import annotations

import asyncio
import codecs
from collections.abc import AsyncGenerator, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from e2b import AsyncCommandHandle, AsyncSandbox, CommandExitException

from providers.sandboxes.e2b.refusals import refusals

OPEN_TIMEOUT_S: Final = 60.0
CHUNK_IDLE_S: Final = 60.0


class E2BMachine:
    """See `providers.sandboxes.remote.cloud.Machine`."""

    def __init__(self, sandbox: AsyncSandbox, user: str, scheme: str) -> None:
        self.sandbox = sandbox
        self.scheme = scheme
        self._user = user

    @property
    def is_exact(self) -> bool:
        """Say so: see `_Bytes`."""
        return True

    @property
    def is_streamed(self) -> bool:
        """Say yes."""
        return True

    @property
    def id(self) -> str:
        """Return E2B's name for it."""
        return str(self.sandbox.sandbox_id)

    async def run(
        self, command: str, hear: Callable[[bytes], bool], *, user: str | None, timeout_s: float
    ) -> int | None:
        """Run `command`; what it leaves running may hold its output open, so nobody waits for its end once enough was heard."""
        enough = asyncio.Event()

        def on_stdout(text: str) -> None:
            if hear(text.encode("latin-1")):
                enough.set()

        async with refusals("running a command"):
            handle = await self.sandbox.commands.run(
                command,
                background=True,
                user=user or self._user,
                on_stdout=on_stdout,
                timeout=timeout_s,
                request_timeout=OPEN_TIMEOUT_S,
                retain_output=False,
            )
            # The client would make text of it, piece by piece; bytes that are none have to be counted as they were.
            handle._stdout_decoder = _Bytes()  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]
            try:
                return await _ended(handle, enough)
            finally:
                await handle.disconnect()

    async def upload(self, source: Path, path: str) -> None:
        """Stream a file in."""
        async with refusals("writing a file"):
            with source.open("rb") as file:
                await self.sandbox.files.write(path, file, user=self._user)

    async def download(self, path: str) -> AsyncGenerator[bytes, None]:
        """Stream a file out."""
        async with refusals("reading a file"):
            reader = await self.sandbox.files.read(path, "stream", user=self._user, stream_idle_timeout=CHUNK_IDLE_S)
            async with reader:
                async for chunk in reader:
                    yield chunk

    async def renew(self, lifetime_s: int) -> None:
        """Set the time that is left to it."""
        async with refusals("renewing"):
            await self.sandbox.set_timeout(lifetime_s)


class _Bytes(codecs.BufferedIncrementalDecoder):
    """Takes each byte for a letter of its own."""

    def _buffer_decode(self, input: Any, errors: str, final: bool) -> tuple[str, int]:  # noqa: A002,ARG002  the codec's own names
        return codecs.latin_1_decode(input)


async def _ended(handle: AsyncCommandHandle[None], enough: asyncio.Event) -> int | None:
    """Return the exit code, or None as soon as enough was heard."""
    heard = asyncio.ensure_future(enough.wait())
    ended = asyncio.ensure_future(handle.wait())
    try:
        await asyncio.wait({heard, ended}, return_when=asyncio.FIRST_COMPLETED)
        if not ended.done():
            return None
        try:
            return int(ended.result().exit_code)
        except CommandExitException as error:
            return int(error.exit_code)
    finally:
        heard.cancel()
        ended.cancel()
        with suppress(asyncio.CancelledError, Exception):
            await ended
