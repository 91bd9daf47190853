"""What only root can mount for a box: a workspace of a bounded size, and a view of a directory of this host."""

from __future__ import annotations

import ctypes
import os
import re
from pathlib import Path
from typing import Final

INODES_PER_MIB: Final = 256
"""One for each 4 KiB: names cost memory too."""
_NOSUID_NODEV: Final = 2 | 4  # mount(2)
_READ_ONLY: Final = 1 | 2 | 4 | 1024  # mount(2): also without set-user-id, devices and times of access
_NOEXEC: Final = 8
_DETACH_NOFOLLOW: Final = 2 | 8  # umount2(2)


def mount_bounded(path: Path, size_mib: int, uid: int) -> None:
    """Let `path` be an empty file system of `size_mib`, owned by `uid`; raises `OSError`."""
    options = f"size={size_mib}m,nr_inodes={size_mib * INODES_PER_MIB},mode=0700,uid={uid},gid={uid}"
    _mount("tmpfs", path, _NOSUID_NODEV, options, f"a file system of {size_mib} MiB")


def mount_view(source: Path, nothing: Path, at: Path) -> None:
    """Let `at` have the contents of `source`, read-only, in objects of their own; `nothing` is an empty directory. Raises `OSError`.

    What is mounted below `source` is not in it. Contents are not copied, and what changes in `source` may or may not be seen.
    """
    below = ":".join(re.sub(r"([\\:,])", r"\\\1", str(path)) for path in (source, nothing))
    _mount("overlay", at, _READ_ONLY, f"lowerdir={below}", f"a view of {source}")


def mount_settings(at: Path) -> Path:
    """Return where the kernel's settings are in a proc file system of its own, mounted at `at`, read-only. Raises `OSError`.

    All else that is in it is this host's: no box may see more of it than what is returned.
    """
    _mount("proc", at, _READ_ONLY | _NOEXEC, "", "a view of /proc/sys")
    return at / "sys"


def _mount(kind: str, at: Path, flags: int, options: str, what: str) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.mount(b"gym-bus", os.fsencode(at), kind.encode(), flags, os.fsencode(options)):
        number = ctypes.get_errno()
        raise OSError(number, f"{what} cannot be mounted: {os.strerror(number)}", str(at))


def unmount(path: Path) -> bool:
    """Take away what is mounted at `path`, whoever still uses it; return whether there was something."""
    libc = ctypes.CDLL(None, use_errno=True)
    return bool(libc.umount2(os.fsencode(path), _DETACH_NOFOLLOW) == 0)
