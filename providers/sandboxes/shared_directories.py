"""Directories of this host that sandboxes see, read-only: what agents need that is too large to be carried in.

A directory is shown only if it says itself that it may be: its owner put the file `MARKER` into it. So a configuration alone can show
nothing of this host, and no list of secret places has to be complete.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from providers.sandboxes.base import SandboxUnavailable
from schemas.sandboxes import SharedDirectory

MARKER: Final = ".gym-bus-shared"


def shown(directories: Sequence[SharedDirectory], work_dir: Path, *, to_others: bool) -> list[tuple[Path, str]]:
    """Return what is mounted where; raises `SandboxUnavailable` for a directory that may not be shown, or not be reached.

    `work_dir` is where the provider keeps its files; nothing that holds it is shown. With `to_others` the sandbox's user is not ours.
    """
    return [(_allowed(Path(one.source), work_dir, to_others=to_others), one.at) for one in directories]


def _allowed(source: Path, work_dir: Path, *, to_others: bool) -> Path:
    """Return the directory itself, whatever links lead to it. Blocking, a few calls."""
    try:
        real = source.resolve(strict=True)
        marker = (real / MARKER).lstat()
        is_directory = real.is_dir()
    except OSError as error:
        raise SandboxUnavailable(
            f"{source} is not shown to sandboxes: {error.strerror}; a directory that may be holds a file {MARKER}"
        ) from error
    if not is_directory or not stat.S_ISREG(marker.st_mode) or marker.st_uid not in {0, os.getuid()}:
        raise SandboxUnavailable(f"{source} is not shown to sandboxes: its {MARKER} is not a file of ours")
    for kept in (work_dir.resolve(), Path.home().resolve()):
        if kept.is_relative_to(real):
            raise SandboxUnavailable(f"{source} is not shown to sandboxes: it holds {kept}")
    if found := re.search(r"[:,\s]", str(real)):
        raise SandboxUnavailable(f"{source} cannot be mounted: its path holds {found[0]!r}")
    if to_others:
        for path in (real, *real.parents):
            if not path.stat().st_mode & stat.S_IXOTH:
                raise SandboxUnavailable(
                    f"{source} is not shown to sandboxes: their user cannot pass {path}; `chmod o+x` it, or move it"
                )
    return real
