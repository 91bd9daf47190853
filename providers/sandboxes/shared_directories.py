"""Directories of this host that sandboxes see, read-only: what agents need that is too large to be carried in.

A directory is shown only if it says itself that it may be: its owner put the file `MARKER` into it. So a configuration alone can show
nothing of this host, and no list of secret places has to be complete.
"""

from __future__ import annotations

import re
import stat
from collections.abc import Sequence
from pathlib import Path

from gym_bus.shared_directories import NotShown, marked
from providers.sandboxes.base import SandboxUnavailable
from schemas.sandboxes import SharedDirectory


def shown(directories: Sequence[SharedDirectory], work_dir: Path, *, to_others: bool) -> list[tuple[Path, str]]:
    """Return what is mounted where; raises `SandboxUnavailable` for a directory that may not be shown, or not be reached.

    `work_dir` is where the provider keeps its files; nothing that holds it is shown. With `to_others` the sandbox's user is not ours.
    """
    return [(_allowed(Path(one.source), work_dir, to_others=to_others), one.at) for one in directories]


def _allowed(source: Path, work_dir: Path, *, to_others: bool) -> Path:
    """Return the directory itself. Blocking, a few calls."""
    try:
        real = marked(source)
    except NotShown as error:
        raise SandboxUnavailable(str(error)) from error
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
