"""Reading what lies in a task's folder: regular files only, no link that leads out of it, and no more than a task may have."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from gym_bus.errors import BadTaskset

TEXT_MAX_BYTES: Final = 1024 * 1024
FOLDER_MAX_BYTES: Final = 8 * 1024 * 1024
"""What `tests/` or `solution/` may hold in all: it goes through the log."""
FOLDER_MAX_FILES: Final = 2000
TASKS_MAX: Final = 100_000
DEPTH_MAX: Final = 6
TASK: Final = "task.toml"


def text_of(path: Path, max_bytes: int = TEXT_MAX_BYTES) -> str:
    """Return a file's text; raises `BadTaskset` for what is no file, is a link, is too long or is no UTF-8."""
    try:
        return _content(path, max_bytes).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise BadTaskset(f"{path}: no UTF-8 at byte {error.start}") from error


def files_in(directory: Path) -> dict[str, bytes]:
    """Return the files of a directory and those below it, by path; none if it is not there. Raises `BadTaskset`."""
    found: dict[str, bytes] = {}
    left = FOLDER_MAX_BYTES
    for path in _below(directory):
        if path.is_dir() and not path.is_symlink():
            continue
        if len(found) >= FOLDER_MAX_FILES:
            raise BadTaskset(f"{directory}: more than {FOLDER_MAX_FILES:,} files")
        try:
            content = _content(path, left)
        except _TooLong as error:
            raise BadTaskset(f"{directory}: more than {FOLDER_MAX_BYTES:,} bytes in all") from error
        left -= len(content)
        found[_written(path.relative_to(directory), path)] = content
    return found


def check_links(directory: Path) -> None:
    """Raise `BadTaskset` for a link below a directory that leads out of it: what an image is built of lies in there."""
    root = os.path.realpath(directory)
    for path in _below(directory):
        if path.is_symlink() and os.path.commonpath([root, os.path.realpath(path)]) != root:
            raise BadTaskset(f"{path}: a link that leads out of {directory}")


def folders_of(root: Path) -> list[Path]:
    """Return the folders of tasks at `root` or below it, in order of their names; raises `BadTaskset` if there are none."""
    if not root.is_dir():
        raise BadTaskset(f"{root}: no such folder")
    if (root / TASK).exists():
        return [root]
    found: list[Path] = []
    for parent, directories, files in os.walk(root, onerror=_refuse):
        path = Path(parent)
        if TASK in files:
            found.append(path)
            directories.clear()
            continue
        _refuse_links_to_tasks(path, directories)
        is_deep = len(path.relative_to(root).parts) >= DEPTH_MAX
        directories[:] = [] if is_deep else sorted(name for name in directories if not name.startswith("."))
        if len(found) > TASKS_MAX:
            raise BadTaskset(f"{root}: more than {TASKS_MAX:,} tasks")
    if not found:
        raise BadTaskset(f"{root}: no {TASK} in it, nor in folders below it ({DEPTH_MAX} deep)")
    names: dict[str, Path] = {}
    for path in found:
        _written(Path(path.name), path)
        if path.name in names:
            raise BadTaskset(f"two tasks are called {path.name}: {names[path.name]} and {path}")
        names[path.name] = path
    return found


def _refuse_links_to_tasks(path: Path, directories: list[str]) -> None:
    """A task behind a link would be left out without a word."""
    for name in directories:
        if (path / name).is_symlink() and (path / name / TASK).exists():
            raise BadTaskset(
                f"{path / name}: a link to a task, which is not followed: copy the task, or name its own folder"
            )


def _written(name: Path, path: Path) -> str:
    """Return a name as text; raises `BadTaskset` for one that is none, which nothing that is recorded could hold."""
    text = str(name)
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise BadTaskset(f"{str(path)!r}: a name that is no UTF-8") from error
    return text


class _TooLong(BadTaskset):
    """A file has more bytes than it may."""


def _content(path: Path, max_bytes: int) -> bytes:
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError as error:
        raise BadTaskset(f"{path}: no such file") from error
    except OSError as error:
        reason = "a link, which is not followed" if path.is_symlink() else f"cannot be read: {error.strerror}"
        raise BadTaskset(f"{path}: {reason}") from error
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise BadTaskset(f"{path}: no regular file")
    with os.fdopen(handle, "rb") as file:
        content = file.read(max_bytes + 1)
    if len(content) > max_bytes:
        raise _TooLong(f"{path}: more than {max_bytes:,} bytes")
    return content


def _below(directory: Path) -> Iterator[Path]:
    """Yield everything below a directory, in order; links to directories too, which are not followed. Raises `BadTaskset`."""
    if directory.is_symlink():
        raise BadTaskset(f"{directory}: a link, which is not followed")
    for parent, directories, files in os.walk(directory, onerror=_refuse):
        directories.sort()
        for name in sorted([*directories, *files]):
            yield Path(parent, name)


def _refuse(error: OSError) -> None:
    if not isinstance(error, FileNotFoundError):
        raise BadTaskset(f"{error.filename}: cannot be read: {error.strerror}") from error
