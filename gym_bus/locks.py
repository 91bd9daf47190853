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


def write_owner(descriptor: int, text: str) -> None:
    """Write who holds the lock into its file."""
    os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, text.encode(), 0)
