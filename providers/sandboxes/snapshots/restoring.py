"""A snapshot made into files again, in an empty directory, for whatever user."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import Final, Self

from gym_bus.blobs import Blobs
from gym_bus.errors import Corrupt, Permanent
from providers.sandboxes.snapshots.limits import read_back
from providers.sandboxes.snapshots.taking import DIRECTORY, FILE, load
from schemas.snapshots import Entry, Manifest
from schemas.values import BlobRef

NEW_FILE: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
PACKS_KEPT: Final = 4


class NotEmpty(Permanent):
    """A snapshot is restored into an empty directory only."""


def restore(ref: BlobRef, blobs: Blobs, root: Path, *, uid: int | None = None) -> Manifest:
    """Make the files of a snapshot under the empty directory `root`, owned by `uid` if that is given. Blocking.

    Every name is made, and opened, in the directory it belongs to, and no link is followed: whoever writes to `root` meanwhile
    spoils what is restored, and nothing else. Raises `NotEmpty`, `Corrupt` for a snapshot that does not hold what it says, `OSError`.
    """
    manifest = load(ref, blobs)
    _check(manifest)
    content = _Content(manifest, blobs)
    with _Directories(root) as directories:
        if os.listdir(directories.root):  # noqa: PTH208  a descriptor
            msg = f"{root} is not empty: nothing was restored"
            raise NotEmpty(msg)
        for entry in manifest.entries:
            where, name = directories.of(entry.path)
            match entry.kind:
                case "directory":
                    os.mkdir(name, 0o700, dir_fd=where)
                case "link":
                    os.symlink(read_back(entry.target or ""), name, dir_fd=where)
                case "hard":
                    _link(directories, entry.target or "", where, name)
                case "file":
                    _write(name, where, entry, content)
        for entry in reversed(manifest.entries):  # what is in a directory before itself: writing changes its times
            if entry.kind != "hard":  # the file has another name, by which it is finished
                _finish(entry, *directories.of(entry.path), uid)
    return manifest


class _Directories:
    """Opens the directories that names are in, each from the one it is in; those of the last name are kept open."""

    def __init__(self, root: Path) -> None:
        self.root = os.open(root, DIRECTORY)
        self._open: list[tuple[bytes, int]] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._close_from(0)
        os.close(self.root)

    def of(self, path: str) -> tuple[int, bytes]:
        """Return the directory that `path` is in, open until the next call, and its name there."""
        *parents, name = read_back(path).split(b"/")
        same = 0
        while same < min(len(parents), len(self._open)) and self._open[same][0] == parents[same]:
            same += 1
        self._close_from(same)
        for parent in parents[same:]:
            above = self._open[-1][1] if self._open else self.root
            self._open.append((parent, os.open(parent, DIRECTORY, dir_fd=above)))
        return (self._open[-1][1] if self._open else self.root), name

    def _close_from(self, depth: int) -> None:
        while len(self._open) > depth:
            os.close(self._open.pop()[1])


def _link(directories: _Directories, target: str, where: int, name: bytes) -> None:
    """Give a file a second name."""
    where = os.dup(where)
    try:
        there, first = directories.of(target)
        os.link(first, name, src_dir_fd=there, dst_dir_fd=where, follow_symlinks=False)
    finally:
        os.close(where)


def _finish(entry: Entry, where: int, name: bytes, uid: int | None) -> None:
    """Set owner, rights and times of what was made."""
    if entry.kind == "link":
        if uid is not None:
            os.chown(name, uid, uid, dir_fd=where, follow_symlinks=False)
        os.utime(name, ns=(entry.modified_ns, entry.modified_ns), dir_fd=where, follow_symlinks=False)
        return
    handle = os.open(name, DIRECTORY if entry.kind == "directory" else FILE, dir_fd=where)
    try:
        if uid is not None:
            os.fchown(handle, uid, uid)
        os.fchmod(handle, entry.mode)
        os.utime(handle, ns=(entry.modified_ns, entry.modified_ns))
    finally:
        os.close(handle)


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


def _write(name: bytes, where: int, entry: Entry, content: _Content) -> None:
    sha, handle = hashlib.sha256(), os.open(name, NEW_FILE, 0o600, dir_fd=where)
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
