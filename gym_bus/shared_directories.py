"""Whether a directory of this host says that sandboxes may be shown it: its owner put the file `MARKER` into it."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Final

from gym_bus.errors import Permanent

MARKER: Final = ".gym-bus-shared"


class NotShown(Permanent):
    """A directory is not there, or does not say that it may be shown; the message says which, and what to do."""


def marked(source: Path) -> Path:
    """Return the directory itself, whatever links lead to it; raises `NotShown` if it does not say that it may be shown."""
    try:
        real = source.resolve(strict=True)
        is_directory = real.is_dir()
    except OSError as error:
        why = "there is no such directory" if isinstance(error, FileNotFoundError) else error.strerror
        raise NotShown(f"{source} is not shown to sandboxes: {why}") from error
    if not is_directory:
        raise NotShown(f"{source} is not shown to sandboxes: it is no directory")
    try:
        marker = (real / MARKER).lstat()
    except FileNotFoundError as error:
        raise NotShown(
            f"{source} is not shown to sandboxes: it holds no file {MARKER}, by which its owner says that it may be: "
            f"`touch {source / MARKER}`"
        ) from error
    except OSError as error:
        raise NotShown(f"{source} is not shown to sandboxes: its {MARKER}: {error.strerror}") from error
    if not stat.S_ISREG(marker.st_mode) or marker.st_uid not in {0, os.getuid()}:
        raise NotShown(f"{source} is not shown to sandboxes: its {MARKER} is not a file of ours")
    return real
