"""Directories for boxes: one per process, in it one per box; and how those of dead processes are found.

A living process holds a lock on its own directory; the kernel drops it at the process's death, however that comes. So a
directory that can be locked belongs to nobody, and no pid that was used again can protect or endanger it.
"""

from __future__ import annotations

import asyncio
import errno
import fcntl
import hashlib
import itertools
import os
import re
import secrets
import stat
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from providers.sandboxes.base import SandboxUnavailable
from providers.sandboxes.mounts import mount_bounded, unmount
from providers.sandboxes.removal import remove_tree

FALLBACK_PARENT: Final = Path("/var/tmp")  # noqa: S108  the directory in it is ours, checked, and not writable to others
FALLBACK_NAME: Final = re.compile(r"gym-bus-[0-9a-f]{12}")
BELONGS_TO: Final = "belongs-to"
"""A file in a process's directory that lies elsewhere: which directory it belongs to. Who removes that leaves nobody to reap it."""
OWN_NAME: Final = re.compile(r"p\d+-[0-9a-f]{8}")


@dataclass(frozen=True, slots=True)
class Room:
    """The directories of one box: `work`, owned by `uid`, is the box's own, `pipes` connects it with us.

    `work` is a file system of its own if it `is_bounded`.
    """

    path: Path
    uid: int
    is_bounded: bool = False

    @property
    def work(self) -> Path:
        """Return the directory a box sees as its own."""
        return self.path / "box"

    @property
    def pipes(self) -> Path:
        """Return the directory of named pipes, which the box can neither list nor change."""
        return self.path / "io"

    @property
    def views(self) -> Path:
        """Return the directory of what the box sees of this host through a view of its own, if it was made."""
        return self.path / "views"

    @property
    def spare_mark(self) -> Path:
        """Return the file that says that no box has had the room yet."""
        return self.path / "spare"

    def unmount(self) -> None:
        """Take away what is mounted in it, or it would be emptied with the room."""
        unmount(self.work)
        with suppress(FileNotFoundError, NotADirectoryError), os.scandir(self.views) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    unmount(Path(entry.path))

    def remove(self) -> None:
        """Remove it with everything in it. Blocking."""
        self.unmount()
        remove_tree(self.path)


class Rooms:
    """Makes and removes the rooms of this process under `parent`, and removes those of dead processes.

    `belongs_to` is the directory in whose stead `parent` is used.
    """

    def __init__(self, parent: Path, belongs_to: Path | None = None) -> None:
        self._parent = parent
        self._belongs_to = belongs_to
        self._own: Path | None = None
        self._lock_fd: int | None = None
        self._numbers = itertools.count(1)

    @classmethod
    def reachable(cls, work_dir: Path) -> Rooms:
        """Return rooms that any user can pass through to: in `work_dir`, or beside all homes."""
        parent = reachable_parent(work_dir)
        return cls(parent, None if parent == work_dir else work_dir)

    @property
    def own(self) -> Path:
        """Return this process's directory; it is made, and locked, when it is first asked for."""
        if self._own is None:
            while self._own is None:
                _make_parent(self._parent)
                path = self._parent / f"p{os.getpid()}-{secrets.token_hex(4)}"
                try:
                    path.mkdir(mode=0o711)
                    path.chmod(0o711)
                except FileNotFoundError:  # another process has just removed the empty parent
                    continue
                self._lock_fd = _lock(path)
                if self._lock_fd is not None:  # else a reaper was faster, and is about to remove it
                    self._own = path
                    if self._belongs_to:
                        self._belongs_to.mkdir(parents=True, exist_ok=True)  # only who removed it makes it missing
                        (path / BELONGS_TO).write_bytes(bytes(self._belongs_to))
        return self._own

    @property
    def is_made(self) -> bool:
        """Say whether this process has a directory already."""
        return self._own is not None

    def make(self, label: str, uid: int, disk_mib: int | None = None, *, is_spare: bool = False) -> Room:
        """Make the directories of one box; they belong to `uid` if we may give things away. One that `is_spare` is no box's yet.

        With `disk_mib`, all its files together have no more room than that. Raises `SandboxUnavailable` if only root can do so.
        """
        if disk_mib is not None and os.getuid() != 0:
            raise SandboxUnavailable("sandbox.limits.disk_mib needs root, which mounts a file system for each sandbox")
        name = re.sub(r"[^A-Za-z0-9_.-]", "_", label)[:150]
        room = Room(self.own / f"{next(self._numbers)}-{name}", uid, is_bounded=disk_mib is not None)
        room.path.mkdir(mode=0o700)
        if is_spare:
            room.spare_mark.touch()
        room.work.mkdir(mode=0o700)
        room.pipes.mkdir(mode=0o700)
        room.pipes.chmod(0o311)
        if uid != os.getuid():
            os.chown(room.path, uid, uid)
            os.chown(room.work, uid, uid)
        if disk_mib is not None:
            try:
                mount_bounded(room.work, disk_mib, uid)
            except OSError:
                remove_tree(room.path)
                raise
        return room

    async def remove(self, room: Room) -> None:
        """Remove a room with everything in it; a thread is used only if it is not empty."""
        room.unmount()
        try:
            room.work.rmdir()
            room.pipes.rmdir()
            room.path.rmdir()
        except FileNotFoundError:
            pass
        except OSError as error:
            if error.errno != errno.ENOTEMPTY:
                raise
            await asyncio.to_thread(remove_tree, room.path)

    def reap(self, before: Callable[[Path], bool | None] = lambda _: None) -> int:
        """Remove the rooms of dead processes, `before` each of which is called; return how many boxes had one. Blocking.

        Where `before` says False, because something of them is still there, the rooms stay for the next time. Rooms beside all homes go
        too if the directory that they belong to is gone; they do not count.
        """
        count = 0
        for path in [*_processes(self._parent), *_deserted(self._parent)]:
            if path == self._own:
                continue
            fd = _lock(path)
            if fd is None:
                continue
            try:
                if before(path) is False:
                    continue
                if path.parent == self._parent:
                    count += sum(
                        1 for entry in path.iterdir() if entry.is_dir() and not Room(entry, 0).spare_mark.exists()
                    )
                _remove_rooms(path)
                if path.parent != self._parent:
                    with suppress(OSError):  # others are using it
                        path.parent.rmdir()
            finally:
                os.close(fd)
        return count

    def close(self) -> None:
        """Remove this process's directory and give its lock back; safe to repeat. Blocking."""
        if self._own is not None:
            _remove_rooms(self._own)
            self._own = None
            if self._parent.parent == FALLBACK_PARENT:
                with suppress(OSError):  # others are using it
                    self._parent.rmdir()
        if self._lock_fd is not None:
            os.close(self._lock_fd)
            self._lock_fd = None


def reachable_parent(work_dir: Path) -> Path:
    """Return `work_dir` if any user can pass through to it, else a directory of ours beside all homes.

    Root gives boxes to users without rights, who cannot enter e.g. /root.
    """
    if all(not path.exists() or path.stat().st_mode & stat.S_IXOTH for path in (work_dir, *work_dir.parents)):
        return work_dir
    return FALLBACK_PARENT / f"gym-bus-{hashlib.sha256(bytes(work_dir)).hexdigest()[:12]}"


def _processes(parent: Path) -> list[Path]:
    """Return the directories of processes in `parent`; none if it is not there."""
    return [path for path in parent.iterdir() if OWN_NAME.fullmatch(path.name)] if parent.is_dir() else []


def _deserted(but: Path) -> list[Path]:
    """Return the directories of processes beside all homes, `but` those in one, that belong to a directory that is gone."""
    found = []
    for parent in FALLBACK_PARENT.iterdir() if FALLBACK_PARENT.is_dir() else ():
        if FALLBACK_NAME.fullmatch(parent.name) and parent != but and _is_ours(parent):
            for path in _processes(parent):
                with suppress(OSError):
                    if not Path(os.fsdecode((path / BELONGS_TO).read_bytes())).exists():
                        found.append(path)
    return found


def _is_ours(parent: Path) -> bool:
    found = parent.lstat()
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid()


def _remove_rooms(path: Path) -> None:
    """Remove a process's directory; what is mounted in it goes first, or it would be emptied instead."""
    for room in path.iterdir():
        Room(room, 0).unmount()
    remove_tree(path)


def _make_parent(parent: Path) -> None:
    parent.mkdir(mode=0o711, parents=True, exist_ok=True)
    if not _is_ours(parent):
        raise SandboxUnavailable(
            f"{parent} is not a directory of ours: remove it, or give gym-bus another data directory"
        )
    if parent.parent == FALLBACK_PARENT:
        parent.chmod(0o711)


def _lock(path: Path) -> int | None:
    """Return a file descriptor that holds the lock on `path`, or None if somebody else lives there."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC | os.O_NOFOLLOW)
    except FileNotFoundError:
        return None
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(fd)
        return None
    return fd
