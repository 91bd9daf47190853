"""The workspace of a machine as a whole: out of it for a snapshot, and into it."""

from __future__ import annotations

import asyncio
import secrets
import shlex
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from gym_bus.blobs import Blobs
from providers.sandboxes.archived import archive_max_bytes, restore_archived, take_archived
from providers.sandboxes.remote.cloud import CloudRefused, Machine
from providers.sandboxes.remote.files import TRANSFER_TIMEOUT_S, fetch, staged, transfer
from providers.sandboxes.remote.shell import Place, RemoteShell
from providers.sandboxes.removal import remove_tree
from providers.sandboxes.snapshots import NotEmpty, SnapshotLimits, Taken, TooLarge
from schemas.snapshots import Manifest
from schemas.values import BlobRef

_PACK: Final = """
work=$1 staged=$2
tar --help 2>&1 | grep -q -e '--format' && exact=--format=posix
tar $exact -C "$work" -cf "$staged" . 2>/dev/null
[ $? -le 1 ] && chmod 644 "$staged" && wc -c <"$staged"
"""
_UNPACK: Final = """
work=$1 staged=$2
if [ -n "$(ls -A "$work")" ]; then echo full; exit 0; fi
tar -C "$work" -xpof "$staged"
"""


async def snapshot(
    machine: Machine, shell: RemoteShell, place: Place, blobs: Blobs, previous: Manifest | None
) -> Taken:
    """See `WithSnapshots.snapshot`; raises `CloudRefused`."""
    limits = SnapshotLimits()
    async with staged(shell, place.admin) as name:
        line = f"exec /bin/sh -c {shlex.quote(_PACK)} gymbus {shlex.quote(place.workspace)} {name}"
        said = (await shell.ask(line, user=place.admin, timeout_s=TRANSFER_TIMEOUT_S)).strip()
        if not said.isdigit():
            raise CloudRefused("refused", f"{place.workspace} cannot be archived: {said[-300:]!r}")
        if int(said) > archive_max_bytes(limits):
            raise TooLarge(f"{place.workspace} is {said} bytes long as an archive")
        with _directory(place.staging) as own:
            await fetch(machine, name, own / "archive", archive_max_bytes(limits))
            return await asyncio.to_thread(take_archived, own / "archive", blobs, own / "files", previous, limits)


async def restore(machine: Machine, shell: RemoteShell, place: Place, ref: BlobRef, blobs: Blobs) -> None:
    """See `WithSnapshots.restore`; raises `CloudRefused`."""
    async with staged(shell) as name:
        with _directory(place.staging) as own:
            await asyncio.to_thread(restore_archived, ref, blobs, own / "files", own / "archive")
            async with transfer():
                await machine.upload(own / "archive", name)
        line = f"exec /bin/sh -c {shlex.quote(_UNPACK)} gymbus {shlex.quote(place.workspace)} {name} 2>&1"
        if (await shell.ask(line, timeout_s=TRANSFER_TIMEOUT_S)).strip() == "full":
            raise NotEmpty(f"{place.workspace} is not empty: nothing was restored")


@contextmanager
def _directory(parent: Path) -> Generator[Path, None, None]:
    """Make a directory that only we can enter, for a moment."""
    own = parent / f"staged-{secrets.token_hex(8)}"
    own.mkdir(mode=0o700, parents=True)
    try:
        yield own
    finally:
        remove_tree(own)
