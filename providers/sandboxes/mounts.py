"""File systems of a bounded size for workspaces: a tmpfs on this host, which only root can mount."""

from __future__ import annotations

import ctypes
import os
from pathlib import Path
from typing import Final

INODES_PER_MIB: Final = 256
"""One for each 4 KiB: names cost memory too."""
_NOSUID_NODEV: Final = 2 | 4  # mount(2)
_DETACH_NOFOLLOW: Final = 2 | 8  # umount2(2)


def mount_bounded(path: Path, size_mib: int, uid: int) -> None:
    """Let `path` be an empty file system of `size_mib`, owned by `uid`; raises `OSError`."""
    options = f"size={size_mib}m,nr_inodes={size_mib * INODES_PER_MIB},mode=0700,uid={uid},gid={uid}"
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.mount(b"gym-bus", os.fsencode(path), b"tmpfs", _NOSUID_NODEV, options.encode()):
        number = ctypes.get_errno()
        raise OSError(number, f"a file system of {size_mib} MiB cannot be mounted: {os.strerror(number)}", str(path))


def unmount(path: Path) -> bool:
    """Take away what is mounted at `path`, whoever still uses it; return whether there was something."""
    libc = ctypes.CDLL(None, use_errno=True)
    return bool(libc.umount2(os.fsencode(path), _DETACH_NOFOLLOW) == 0)
