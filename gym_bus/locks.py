"""File locks that last exactly as long as the processes that inherited them, kill -9 included."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path


def try_lock(path: Path) -> int | None:
    """Take the lock `path` and return its open file descriptor, or None if another process holds it.

    The descriptor is not inherited unless it is passed on; the lock ends when the last holder's copy is closed.
    """
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return None
    return descriptor


def is_locked(path: Path) -> bool:
    """Say whether some process holds the lock `path`."""
    if not path.exists():
        return False
    descriptor = try_lock(path)
    if descriptor is None:
        return True
    os.close(descriptor)
    return False


def holder_pid(path: Path) -> int | None:
    """Return the process that took the lock `path`, as the kernel knows it; None if it does not say."""
    try:
        inode, lines = path.stat().st_ino, Path("/proc/locks").read_text(encoding="ascii").splitlines()
    except (OSError, ValueError):
        return None
    for line in lines:
        words = line.split()  # 1: FLOCK ADVISORY WRITE <pid> <major>:<minor>:<inode> <from> <to>
        if len(words) > 5 and words[1] == "FLOCK" and words[5].rpartition(":")[2] == str(inode):  # noqa: PLR2004  the sixth
            return int(words[4]) if int(words[4]) > 0 else None
    return None


def write_owner(descriptor: int, text: str) -> None:
    """Write who holds the lock into its file."""
    os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, text.encode(), 0)
