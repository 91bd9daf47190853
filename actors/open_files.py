"""How many files a process of ours may have open: as many as its user may have."""

from __future__ import annotations

import contextlib
import resource


def allow_many_files() -> None:
    """Raise the soft limit to the hard one: a call takes two descriptors, and each configuration of a sandbox keeps one for good.

    What runs in sandboxes has a limit of its own.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
