"""Single files in and out of a machine. They pass through a file of their own in its /tmp, so that rights are those of its user."""

from __future__ import annotations

import asyncio
import os
import secrets
import shlex
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing, asynccontextmanager, suppress
from pathlib import Path
from typing import BinaryIO, Final

from providers.sandboxes.capabilities import NoSuchFile
from providers.sandboxes.remote.cloud import CloudRefused, Machine
from providers.sandboxes.remote.shell import RemoteShell
from providers.sandboxes.snapshots import TooLarge

TRANSFER_TIMEOUT_S: Final = 600.0
_PUT: Final = """
staged=$1 path=$2 mode=$3 parent=${2%/*}
if [ -d "$path" ]; then echo "$path is a directory"; exit 1; fi
mkdir -p -- "${parent:-/}" && cp -- "$staged" "$path.gymbus" && chmod -- "$mode" "$path.gymbus" && mv -f -- "$path.gymbus" "$path"
"""
_GET: Final = """
path=$1 staged=$2 most=$3
if [ ! -f "$path" ]; then echo none; exit 0; fi
umask 077
head -c "$most" <"$path" >"$staged" && wc -c <"$staged"
"""


async def put(machine: Machine, shell: RemoteShell, source: Path, path: str, mode: int) -> None:
    """See `WithFiles.put`; raises `CloudRefused`."""
    async with staged(shell) as name:
        async with transfer():
            await machine.upload(source, name)
        await shell.ask(f"exec /bin/sh -c {shlex.quote(_PUT)} gymbus {name} {shlex.quote(path)} {mode:o} 2>&1")


async def get(machine: Machine, shell: RemoteShell, path: str, target: Path, max_bytes: int) -> int:
    """See `WithFiles.get`; raises `CloudRefused`."""
    async with staged(shell) as name:
        line = f"exec /bin/sh -c {shlex.quote(_GET)} gymbus {shlex.quote(path)} {name} {max_bytes + 1} 2>&1"
        said = (await shell.ask(line, timeout_s=TRANSFER_TIMEOUT_S)).strip()
        if said == "none":
            raise NoSuchFile(f"{path} is not there, or is no regular file")
        if not said.isdigit():
            raise CloudRefused("refused", f"{path} cannot be read: {said[-300:]!r}")
        if int(said) > max_bytes:
            raise TooLarge(f"{path} has more than {max_bytes} bytes")
        return await fetch(machine, name, target, max_bytes)


async def fetch(machine: Machine, path: str, target: Path, max_bytes: int) -> int:
    """Write the machine's file `path` to the new file `target`; nothing is left of it if that fails."""
    handle = await asyncio.to_thread(os.open, target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        with os.fdopen(handle, "wb") as file:
            async with transfer(), aclosing(machine.download(path)) as chunks:
                return await _written(chunks, file, path, max_bytes)
    except BaseException:
        os.unlink(target)  # noqa: PTH108  it takes no time
        raise


async def _written(chunks: AsyncIterator[bytes], file: BinaryIO, path: str, max_bytes: int) -> int:
    size = 0
    async for chunk in chunks:
        size += len(chunk)
        if size > max_bytes:
            raise TooLarge(f"{path} has more than {max_bytes} bytes")
        await asyncio.to_thread(file.write, chunk)
    return size


@asynccontextmanager
async def transfer() -> AsyncGenerator[None, None]:
    """Bound the time of a transfer."""
    try:
        async with asyncio.timeout(TRANSFER_TIMEOUT_S):
            yield
    except TimeoutError:
        raise CloudRefused("failed", f"a transfer was not over within {TRANSFER_TIMEOUT_S:g} s") from None


@asynccontextmanager
async def staged(shell: RemoteShell, user: str | None = None) -> AsyncGenerator[str, None]:
    """Yield a name in the machine's /tmp that nobody can guess; what is there afterwards is removed."""
    name = f"/tmp/.gymbus-{secrets.token_hex(8)}"  # noqa: S108  in the machine
    try:
        yield name
    finally:
        with suppress(CloudRefused):  # the machine is gone, or will be
            await shell.ask(f"rm -f {name}", user=user)
