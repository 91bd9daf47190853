"""A snapshot made into files again, in an empty directory, for whatever user."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import Final

from gym_bus.blobs import Blobs
from gym_bus.errors import Corrupt, Permanent
from providers.sandboxes.snapshots.limits import read_back
from providers.sandboxes.snapshots.taking import load
from schemas.snapshots import Entry, Manifest
from schemas.values import BlobRef

NEW_FILE: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
PACKS_KEPT: Final = 4


class NotEmpty(Permanent):
    """A snapshot is restored into an empty directory only."""


def restore(ref: BlobRef, blobs: Blobs, root: Path, *, uid: int | None = None) -> Manifest:
    """Make the files of a snapshot under the empty directory `root`, owned by `uid` if that is given. Blocking.

    Nobody else may write to `root` meanwhile. Raises `NotEmpty`, `Corrupt` for a snapshot that does not hold what it says, `OSError`.
    """
    if any(root.iterdir()):
        msg = f"{root} is not empty: nothing was restored"
        raise NotEmpty(msg)
    manifest = load(ref, blobs)
    _check(manifest)
    content = _Content(manifest, blobs)
    base = os.fsencode(root)
    for entry in manifest.entries:
        path = os.path.join(base, read_back(entry.path))  # noqa: PTH118  bytes
        match entry.kind:
            case "directory":
                os.mkdir(path, 0o700)  # noqa: PTH102
            case "link":
                os.symlink(read_back(entry.target or ""), path)  # noqa: PTH211  bytes
            case "hard":
                os.link(os.path.join(base, read_back(entry.target or "")), path, follow_symlinks=False)  # noqa: PTH118
            case "file":
                _write(path, entry, content)
    for entry in reversed(
        manifest.entries
    ):  # what is in a directory before the directory itself: writing changes its times
        path = os.path.join(base, read_back(entry.path))  # noqa: PTH118
        if uid is not None:
            os.chown(path, uid, uid, follow_symlinks=False)
        if entry.kind != "link":
            os.chmod(path, entry.mode)  # noqa: PTH101
        os.utime(path, ns=(entry.modified_ns, entry.modified_ns), follow_symlinks=False)
    return manifest


class _Content:
    def __init__(self, manifest: Manifest, blobs: Blobs) -> None:
        self._manifest = manifest
        self._blobs = blobs
        self._packs: dict[int, bytes] = {}

    def of(self, entry: Entry) -> list[memoryview]:
        return [memoryview(self._pack(p.pack))[p.offset : p.offset + p.length] for p in entry.pieces]

    def _pack(self, number: int) -> bytes:
        if number not in self._packs:
            if len(self._packs) >= PACKS_KEPT:
                del self._packs[next(iter(self._packs))]
            self._packs[number] = self._blobs.get(self._manifest.packs[number])
        return self._packs[number]


def _write(path: bytes, entry: Entry, content: _Content) -> None:
    sha, handle = hashlib.sha256(), os.open(path, NEW_FILE, 0o600)
    with os.fdopen(handle, "wb") as file:
        for piece in content.of(entry):
            sha.update(piece)
            file.write(piece)
    if sha.hexdigest() != entry.sha256:
        msg = f"the snapshot's content of {entry.path!r} is not what it says"
        raise Corrupt(msg)


def _check(manifest: Manifest) -> None:
    """Refuse a manifest that names anything outside of its directory, or packs that it does not have."""
    known: set[str] = set()
    directories = {""}
    for entry in manifest.entries:
        parts = read_back(entry.path).split(b"/")
        parent = entry.path.rpartition("/")[0]
        is_inside = all(part not in {b"", b".", b".."} and b"\0" not in part for part in parts)
        has_target = entry.kind != "hard" or entry.target in known
        has_packs = all(piece.pack < len(manifest.packs) for piece in entry.pieces)
        if not is_inside or parent not in directories or entry.path in known or not has_target or not has_packs:
            msg = f"the snapshot's entry {entry.path!r} cannot be restored"
            raise Corrupt(msg)
        known.add(entry.path)
        if entry.kind == "directory":
            directories.add(entry.path)
