"""A workspace as a tar file: how it leaves a machine that is not on this host, and how it comes into one.

What a machine says is in it may be anything. It is unpacked into a directory that only we can enter, where nothing has more rights than
reading and writing by us: every name is new and in a directory made before it, links are made and never followed, a further name
of a file is one of a file that came before, devices are left out, and everything is counted. Then it is a directory like
another, and a snapshot is taken of it: so one provider's snapshot is restored by any other.
"""

from __future__ import annotations

import errno
import os
import tarfile
from pathlib import Path
from typing import BinaryIO, Final

from gym_bus.blobs import Blobs
from gym_bus.errors import Permanent
from providers.sandboxes.removal import remove_tree
from providers.sandboxes.snapshots import SnapshotLimits, Taken, TooLarge, restore, take
from providers.sandboxes.snapshots.limits import read_back, written
from providers.sandboxes.snapshots.taking import store
from schemas.snapshots import Entry, Manifest
from schemas.values import BlobRef

HEADER_MAX_BYTES: Final = 1_048_576
CHUNK_BYTES: Final = 1_048_576
SECOND_NS: Final = 1_000_000_000
IMPOSSIBLE_NAMES: Final = frozenset({errno.ENAMETOOLONG, errno.EINVAL, errno.ENOENT, errno.ELOOP})
NEW_FILE: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
LONG_HEADERS: Final = frozenset(
    {
        tarfile.XHDTYPE,
        tarfile.XGLTYPE,
        tarfile.SOLARIS_XHDTYPE,
        tarfile.GNUTYPE_LONGNAME,
        tarfile.GNUTYPE_LONGLINK,
    }
)
"""Kinds of headers that are read into memory whole."""


class BadArchive(Permanent):
    """What a machine gave for its workspace cannot be one."""


def archive_max_bytes(limits: SnapshotLimits) -> int:
    """Return how long the archive of a workspace within its limits may be: each name has a few blocks."""
    return limits.bytes + 4096 * limits.files


def take_archived(
    archive: Path, blobs: Blobs, staging: Path, previous: Manifest | None, limits: SnapshotLimits
) -> Taken:
    """Store a snapshot of what is in `archive`, by way of the new directory `staging`. Blocking.

    Raises `BadArchive`, `TooLarge`, `Retryable` if the store refuses.
    """
    staging.mkdir(mode=0o700, parents=True)
    try:
        with archive.open("rb") as file:
            modes = unpack(file, staging, limits)
        taken = take(staging, blobs, previous=previous, limits=limits)
    finally:
        remove_tree(staging)
    entries = tuple(
        one if one.kind == "link" else one.model_copy(update={"mode": modes.get(one.path, one.mode)})
        for one in taken.manifest.entries
    )
    manifest = taken.manifest.model_copy(update={"entries": entries})
    return Taken(store(manifest, blobs), manifest, taken.stored_bytes, taken.read_bytes)


def restore_archived(ref: BlobRef, blobs: Blobs, staging: Path, archive: Path) -> None:
    """Write a snapshot to the new file `archive`, by way of the new directory `staging`. Blocking. Raises `Corrupt`."""
    staging.mkdir(mode=0o700, parents=True)
    try:
        manifest = restore(ref, blobs, staging)
        with os.fdopen(os.open(archive, NEW_FILE, 0o600), "wb") as file:
            pack(manifest, staging, file)
    finally:
        remove_tree(staging)


def unpack(file: BinaryIO, root: Path, limits: SnapshotLimits) -> dict[str, int]:
    """Unpack a stranger's tar file under the empty directory `root`; return the rights that it asked for, by path as written.

    Raises `BadArchive`, `TooLarge`. Blocking.
    """
    unpacking = _Unpacking(os.fsencode(root), limits)
    try:
        with tarfile.open(fileobj=file, mode="r|", tarinfo=_BoundedInfo, errorlevel=1) as tar:
            for member in tar:
                unpacking.take_in(tar, member)
    except (tarfile.TarError, EOFError, ValueError, OverflowError) as error:
        raise BadArchive(f"the archive of the workspace cannot be read: {error}") from error
    except OSError as error:
        if error.errno not in IMPOSSIBLE_NAMES:
            raise
        raise BadArchive(f"the archive has a name that cannot be: {error}") from error
    unpacking.finish()
    return unpacking.modes


def pack(manifest: Manifest, root: Path, file: BinaryIO) -> None:
    """Write the files under `root`, which are those of `manifest`, as a tar file. Blocking."""
    base = os.fsencode(root)
    with tarfile.open(fileobj=file, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for entry in manifest.entries:
            path = os.path.join(base, read_back(entry.path))  # noqa: PTH118  bytes
            info = _info(entry)
            if entry.kind == "file":
                os.chmod(path, 0o600)  # noqa: PTH101  bytes
                with open(path, "rb") as content:  # noqa: PTH123  bytes
                    tar.addfile(info, content)
                continue
            if entry.kind == "directory":
                os.chmod(path, 0o700)  # noqa: PTH101  bytes
            tar.addfile(info)


class _BoundedInfo(tarfile.TarInfo):
    """Refuses headers that would fill our memory."""

    def _proc_member(self, tar: tarfile.TarFile) -> tarfile.TarInfo:
        if self.type in LONG_HEADERS and self.size > HEADER_MAX_BYTES:
            raise BadArchive(f"the archive of the workspace has a header of {self.size} bytes")
        done: tarfile.TarInfo = super()._proc_member(tar)  # type: ignore[misc]  # pyright: ignore[reportUnknownMemberType, reportAttributeAccessIssue]
        return done


class _Unpacking:
    def __init__(self, base: bytes, limits: SnapshotLimits) -> None:
        self._base = base
        self._limits = limits
        self._directories: dict[bytes, int] = {b"": 0}
        self._files: set[bytes] = set()
        self._others: set[bytes] = set()
        self._bytes = 0
        self.modes: dict[str, int] = {}

    def take_in(self, tar: tarfile.TarFile, member: tarfile.TarInfo) -> None:
        name = _name(member.name)
        if not name:
            return  # the workspace itself
        self._count(name)
        path = os.path.join(self._base, name)  # noqa: PTH118  bytes
        if member.isdir():
            os.mkdir(path, 0o700)  # noqa: PTH102  bytes
            self._directories[name] = _time_ns(member)
        elif member.isreg():
            self._write(tar, member, path)
            self._files.add(name)
        elif member.islnk():
            target = _name(member.linkname)
            if target not in self._files:
                raise BadArchive(
                    f"{written(name)} is a further name of {written(target)[:200]}, which is no file before it"
                )
            os.link(os.path.join(self._base, target), path, follow_symlinks=False)  # noqa: PTH118
            self._files.add(name)
            self.modes[written(name)] = self.modes[written(target)]
            return
        else:
            self._others.add(name)
            if member.issym():
                os.symlink(os.fsencode(member.linkname), path)  # noqa: PTH211  bytes
                modified_ns = _time_ns(member)
                os.utime(path, ns=(modified_ns, modified_ns), follow_symlinks=False)
            elif member.isfifo():
                os.mkfifo(path, 0o600)  # the snapshot says that it was left out
            return
        self.modes[written(name)] = member.mode & 0o777

    def finish(self) -> None:
        """Give directories their times, the inner ones first: writing changed them."""
        for name, modified_ns in reversed(self._directories.items()):
            if name:
                os.utime(os.path.join(self._base, name), ns=(modified_ns, modified_ns))  # noqa: PTH118

    def _count(self, name: bytes) -> None:
        parent = name.rpartition(b"/")[0]
        if parent not in self._directories:
            raise BadArchive(f"{written(name)[:200]} is in no directory of the archive")
        if name in self._directories or name in self._files or name in self._others:
            raise BadArchive(f"{written(name)[:200]} is in the archive twice")
        known = len(self._directories) + len(self._files) + len(self._others)
        if known > self._limits.files:
            raise TooLarge(f"the workspace has more than {self._limits.files} names")
        if name.count(b"/") > self._limits.depth:
            raise TooLarge(f"more than {self._limits.depth} directories in each other at {written(name)[:200]}")

    def _write(self, tar: tarfile.TarFile, member: tarfile.TarInfo, path: bytes) -> None:
        self._bytes += member.size
        if self._bytes > self._limits.bytes:
            raise TooLarge(f"the workspace has more than {self._limits.bytes} bytes")
        content = tar.extractfile(member)
        if content is None:
            raise BadArchive(f"{written(os.fsencode(member.name))[:200]} has no content")
        with os.fdopen(os.open(path, NEW_FILE, 0o600), "wb") as file:
            while data := content.read(CHUNK_BYTES):
                file.write(data)
        modified_ns = _time_ns(member)
        os.utime(path, ns=(modified_ns, modified_ns))


def _name(text: str) -> bytes:
    """Return a relative name without `./` before it; raises `BadArchive` for one that leads anywhere else."""
    name = os.fsencode(text)
    while name.startswith(b"./"):
        name = name[2:].lstrip(b"/")
    name = name.rstrip(b"/")
    if name in (b"", b"."):
        return b""
    if b"\0" in name or any(part in (b"", b".", b"..") for part in name.split(b"/")):
        raise BadArchive(f"the archive names {written(name)[:200]}, which is not in the workspace")
    return name


def _time_ns(member: tarfile.TarInfo) -> int:
    """Return when a member was changed, as exactly as it was written down, within what a file can have."""
    whole, _, rest = member.pax_headers.get("mtime", "").partition(".")
    if whole.isdigit() and len(whole) < 11 and (not rest or rest.isdigit()):  # noqa: PLR2004  as long as ours has ten
        return int(whole) * SECOND_NS + int(rest[:9].ljust(9, "0") or 0)
    return min(max(int(member.mtime), 0), 2**33) * SECOND_NS


def _info(entry: Entry) -> tarfile.TarInfo:
    info = tarfile.TarInfo(os.fsdecode(read_back(entry.path)))
    info.mode = entry.mode
    info.mtime = entry.modified_ns // SECOND_NS
    if entry.modified_ns > 0:
        info.pax_headers = {"mtime": f"{entry.modified_ns // SECOND_NS}.{entry.modified_ns % SECOND_NS:09d}"}
    match entry.kind:
        case "file":
            info.size = entry.size
        case "directory":
            info.type = tarfile.DIRTYPE
        case "link":
            info.type = tarfile.SYMTYPE
            info.mode = 0o777
            info.linkname = os.fsdecode(read_back(entry.target or ""))
        case "hard":
            info.type = tarfile.LNKTYPE
            info.linkname = os.fsdecode(read_back(entry.target or ""))
    return info
