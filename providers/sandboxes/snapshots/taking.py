"""Taking a snapshot of a directory that a stranger writes to, perhaps at this moment.

Whoever takes it may read more than the stranger: so no link is ever followed, every name is opened from the directory it was found in,
and only regular files are read. A file that has not changed since the previous snapshot (same inode, same time of change, which no
program can set) is not read again.
"""

from __future__ import annotations

import errno
import hashlib
import os
import stat
import zlib
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from pydantic import ValidationError

from gym_bus.blobs import Blobs
from gym_bus.errors import Corrupt
from providers.sandboxes.snapshots.limits import SnapshotLimits, TooLarge, written
from providers.sandboxes.snapshots.packs import Packs
from providers.sandboxes.snapshots.selecting import Selection
from schemas.snapshots import Entry, LeftOut, Manifest, Piece, Stamp
from schemas.values import BlobRef

MEDIA_TYPE: Final = "application/vnd.gym-bus.snapshot+json+zlib"
READ_BYTES: Final = 1024 * 1024
DIRECTORY: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
NOT_FATAL: Final[dict[int, Literal["unreadable", "changing"]]] = {
    errno.EACCES: "unreadable",
    errno.EPERM: "unreadable",
    errno.ELOOP: "changing",  # it was a file or a directory a moment ago, and is a link now
    errno.ENOTDIR: "changing",
    errno.EINVAL: "changing",  # it was a link
    errno.ENXIO: "changing",
}
FILE: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


@dataclass(frozen=True, slots=True)
class Taken:
    """A snapshot: the blob that holds its manifest, and what it cost: `stored_bytes` of new content, `read_bytes` looked at.

    What ran in the machine stood still for `paused_s`, None if it did not.
    """

    ref: BlobRef
    manifest: Manifest
    stored_bytes: int
    read_bytes: int
    paused_s: float | None = None


def take(
    root: Path,
    blobs: Blobs,
    *,
    previous: Manifest | None = None,
    limits: SnapshotLimits | None = None,
    only: Selection | None = None,
) -> Taken:
    """Store a snapshot of `root`, building on `previous`. Blocking.

    With `only`, it holds nothing but the files that are wanted and the directories they are in: no links, which are left out with a
    reason, and a second name of a file is a file of its own. So what is handed on to a grader is what it seems to be.

    Raises `TooLarge`, `Retryable` if the store refuses, and `OSError` if `root` itself cannot be read.
    """
    walk = _Walk(blobs, previous, limits or SnapshotLimits(), only)
    with _opened(os.fsencode(root), DIRECTORY, None) as handle:
        walk.directory(handle, b"", 0)
    manifest = Manifest(packs=walk.packs.finish(), entries=tuple(walk.entries), left_out=tuple(walk.left_out))
    return Taken(store(manifest, blobs), manifest, walk.packs.stored_bytes, walk.read_bytes)


def store(manifest: Manifest, blobs: Blobs) -> BlobRef:
    """Store a manifest, compressed: names and numbers are alike from file to file. Blocking."""
    return blobs.put(zlib.compress(manifest.model_dump_json(exclude_defaults=True).encode()), MEDIA_TYPE)


def load(ref: BlobRef, blobs: Blobs) -> Manifest:
    """Return the manifest of a snapshot; raises `Corrupt` if it is missing or differs. Blocking."""
    try:
        return Manifest.model_validate_json(zlib.decompress(blobs.get(ref)))
    except (zlib.error, ValidationError) as error:
        msg = f"blob {ref.sha256} is no snapshot's manifest"
        raise Corrupt(msg) from error


class _Walk:
    def __init__(self, blobs: Blobs, previous: Manifest | None, limits: SnapshotLimits, only: Selection | None) -> None:
        self._only = only
        self.packs = Packs(blobs, previous)
        self.entries: list[Entry] = []
        self.left_out: list[LeftOut] = []
        self.read_bytes = 0
        self._limits = limits
        self._bytes = 0
        self._before = {entry.path: entry for entry in previous.entries} if previous else {}
        self._names: dict[tuple[int, int], str] = {}

    def directory(self, handle: int, path: bytes, depth: int) -> None:
        """Take in what a directory holds, in the order of its names."""
        if depth > self._limits.depth:
            msg = f"more than {self._limits.depth} directories in each other at {written(path)[:200]}"
            raise TooLarge(msg)
        with os.scandir(handle) as found:
            names = sorted(os.fsencode(one.name) for one in found)
        for name in names:
            below = path + b"/" + name if path else name
            try:
                self._one(handle, name, below, depth)
            except FileNotFoundError:
                continue  # removed meanwhile
            except OSError as error:
                if error.errno not in NOT_FATAL:
                    raise
                self.left_out.append(LeftOut(path=written(below), reason=NOT_FATAL[error.errno]))

    def _one(self, handle: int, name: bytes, path: bytes, depth: int) -> None:
        if len(self.entries) + len(self.left_out) >= self._limits.files:
            msg = f"more than {self._limits.files:,} files"
            raise TooLarge(msg)
        status = os.stat(name, dir_fd=handle, follow_symlinks=False)
        kind = stat.S_IFMT(status.st_mode)
        if self._only and not (self._only.may_hold if kind == stat.S_IFDIR else self._only.wants)(written(path)):
            return
        if kind == stat.S_IFDIR:
            with _opened(name, DIRECTORY, handle) as inner:
                status = os.fstat(inner)
                self.entries.append(_entry(path, "directory", status))
                self.directory(inner, path, depth + 1)
                if self._only and self.entries[-1].path == written(path) and not self._only.wants(written(path)):
                    self.entries.pop()  # it might have held something wanted, and did not
        elif kind == stat.S_IFLNK and self._only:
            self.left_out.append(LeftOut(path=written(path), reason="link"))
        elif kind == stat.S_IFLNK:
            target = written(os.readlink(name, dir_fd=handle))
            self.entries.append(_entry(path, "link", status).model_copy(update={"target": target}))
        elif kind == stat.S_IFREG:
            self._file(handle, name, path)
        else:
            reasons = {stat.S_IFIFO: "pipe", stat.S_IFSOCK: "socket"}
            self.left_out.append(LeftOut.model_validate({"path": written(path), "reason": reasons.get(kind, "device")}))

    def _file(self, handle: int, name: bytes, path: bytes) -> None:
        with _opened(name, FILE, handle) as file:
            status = os.fstat(file)
            if not stat.S_ISREG(status.st_mode):
                self.left_out.append(LeftOut(path=written(path), reason="device"))  # it was another thing a moment ago
                return
            first_name = self._names.setdefault((status.st_dev, status.st_ino), written(path))
            if first_name != written(path) and not self._only:
                self.entries.append(_entry(path, "hard", status).model_copy(update={"target": first_name}))
                return
            self._bytes += status.st_size
            if self._bytes > self._limits.bytes:
                msg = f"more than {self._limits.bytes:,} bytes"
                raise TooLarge(msg)
            stamp = Stamp(inode=status.st_ino, changed_ns=status.st_ctime_ns)
            entry = _entry(path, "file", status).model_copy(update={"stamp": stamp})
            before = self._before.get(entry.path)
            if (
                before
                and before.kind == "file"
                and before.stamp == stamp
                and before.size == status.st_size
                and not before.was_changing
            ):
                same = {"size": before.size, "sha256": before.sha256, "pieces": self.packs.shared(before)}
                self.entries.append(entry.model_copy(update=same))
                return
            self.entries.append(entry.model_copy(update=self._content(file, status)))

    def _content(self, file: int, status: os.stat_result) -> dict[str, object]:
        """Store what a file holds: at most what it held when it was opened."""
        sha, size, left = hashlib.sha256(), 0, status.st_size
        small = status.st_size <= READ_BYTES
        pieces: list[Piece] = []
        while left and (part := os.read(file, min(left, READ_BYTES))):
            sha.update(part)
            size += len(part)
            left -= len(part)
            if small and not left and (known := self.packs.known(sha.hexdigest())):
                pieces = list(self.packs.shared(known))
                break
            pieces += self.packs.add(part)
        self.read_bytes += size
        after = os.fstat(file)
        was_changing = size != status.st_size or after.st_ctime_ns != status.st_ctime_ns
        return {"size": size, "sha256": sha.hexdigest(), "pieces": tuple(pieces), "was_changing": was_changing}


def _entry(path: bytes, kind: str, status: os.stat_result) -> Entry:
    """Return what is known of a name without its content; what would run as somebody else (set-uid and the like) is not kept."""
    return Entry.model_validate(
        {"path": written(path), "kind": kind, "mode": status.st_mode & 0o777, "modified_ns": status.st_mtime_ns}
    )


@contextmanager
def _opened(name: bytes, flags: int, directory: int | None) -> Generator[int]:
    handle = os.open(name, flags, dir_fd=directory)
    try:
        yield handle
    finally:
        os.close(handle)
