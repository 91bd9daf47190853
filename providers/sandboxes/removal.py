"""Removing a directory that a stranger has filled: however deep, however locked, whatever its names; no link is followed.

Another removal of the same directory, or of one above or below it, may be under way: whoever comes second finds it gone.
"""

from __future__ import annotations

import errno
import os
import secrets
import stat
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

REFILLS_MAX: Final = 1_000  # how often something may appear in a directory that was just emptied
DIRECTORY: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def remove_tree(path: Path) -> None:
    """Remove `path` with everything in it; that it is gone already is fine. Blocking.

    What a directory holds in directories is moved up to the top before the directory goes, so neither a stack nor a number of open
    files bounds how deep it may be. The names that are given there cannot be known beforehand.
    """
    mark = f".{secrets.token_hex(8)}-"
    with suppress(FileNotFoundError), _opened(str(path)) as top:
        moved = refills = 0
        waiting = ["."]
        while waiting:
            name = waiting.pop()
            found = _emptied(name, top, mark, moved)
            moved += len(found)
            if not _is_removed(name, top, path):
                refills += 1
                if refills > REFILLS_MAX:
                    raise OSError(errno.ENOTEMPTY, "something goes on writing into it", str(path))
                waiting.append(name)
            waiting += found


def _emptied(name: str, top: int, mark: str, number: int) -> list[str]:
    try:
        with _opened(name, top) as inner:
            return _cleared(inner, top, mark, number)
    except FileNotFoundError:  # another removal has taken it
        return []


def _is_removed(name: str, top: int, path: Path) -> bool:
    """Remove what was just emptied; False if something is in it again."""
    try:
        if name == ".":
            path.rmdir()
        else:
            os.rmdir(name, dir_fd=top)
    except FileNotFoundError:
        return True
    except OSError as error:
        if error.errno != errno.ENOTEMPTY:
            raise
        return False
    return True


def _cleared(handle: int, top: int, mark: str, number: int) -> list[str]:
    """Unlink what is in a directory but no directory, and move those to `top`; return the names they have there."""
    with os.scandir(handle) as entries:
        found = [(entry.name, entry.is_dir(follow_symlinks=False)) for entry in entries]
    moved: list[str] = []
    for name, is_directory in found:
        with suppress(FileNotFoundError):  # gone meanwhile
            if not is_directory:
                os.unlink(name, dir_fd=handle)
                continue
            with suppress(PermissionError):
                _unlock(name, handle)  # a directory can be moved by who may write to it
            there = f"{mark}{number + len(moved)}"
            os.rename(name, there, src_dir_fd=handle, dst_dir_fd=top)
            moved.append(there)
    return moved


@contextmanager
def _opened(name: str, directory: int | None = None) -> Generator[int]:
    try:
        handle = os.open(name, DIRECTORY, dir_fd=directory)
    except PermissionError:
        _unlock(name, directory)
        handle = os.open(name, DIRECTORY, dir_fd=directory)
    try:
        os.fchmod(handle, 0o700)
        yield handle
    finally:
        os.close(handle)


def _unlock(name: str, directory: int | None) -> None:
    """Let the owner into a directory; whoever needs that is no more than its owner, and is led to nothing of others by a link."""
    if os.geteuid() and stat.S_ISDIR(os.lstat(name, dir_fd=directory).st_mode):
        os.chmod(name, 0o700, dir_fd=directory)
