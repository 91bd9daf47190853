"""Which files of a workspace are wanted: a list of patterns, each over whole path components.

`*`, `?` and `[…]` stay within one component, `**` stands for any number of them. What matches a directory takes all that is in it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from fnmatch import translate
from functools import lru_cache

from gym_bus.errors import Permanent
from providers.sandboxes.snapshots.limits import written

ANY_DEPTH = "**"


class BadPattern(Permanent):
    """A pattern that points out of the workspace, or at nothing."""


class Selection:
    """See the module. Paths are as a manifest writes them."""

    def __init__(self, patterns: Sequence[str]) -> None:
        """Want what matches any of `patterns`; raises `BadPattern`."""
        self._patterns = [_parts(pattern) for pattern in patterns]

    def wants(self, path: str) -> bool:
        """Say whether a file or directory is wanted, by itself or with a directory that it is in."""
        parts = path.split("/")
        return any(_fits(pattern, parts[:n]) for pattern in self._patterns for n in range(1, len(parts) + 1))

    def may_hold(self, path: str) -> bool:
        """Say whether something wanted may be in a directory."""
        parts = path.split("/")
        return self.wants(path) or any(_begins(pattern, parts) for pattern in self._patterns)


def _parts(pattern: str) -> tuple[str, ...]:
    parts = tuple(written(pattern.removesuffix("/").encode(errors="surrogateescape")).split("/"))
    if any(part in {"", ".", ".."} for part in parts):
        msg = f"the pattern {pattern!r} must be relative to the workspace, without empty parts, `.` and `..`"
        raise BadPattern(msg)
    return parts


@lru_cache(maxsize=1024)
def _compiled(part: str) -> re.Pattern[str]:
    return re.compile(translate(part))


def _fits(pattern: Sequence[str], parts: Sequence[str]) -> bool:
    """Say whether a whole path is what a pattern says."""
    if not pattern:
        return not parts
    if pattern[0] == ANY_DEPTH:
        return any(_fits(pattern[1:], parts[n:]) for n in range(len(parts) + 1))
    return bool(parts) and bool(_compiled(pattern[0]).match(parts[0])) and _fits(pattern[1:], parts[1:])


def _begins(pattern: Sequence[str], parts: Sequence[str]) -> bool:
    """Say whether something below a directory may be what a pattern says."""
    if not parts:
        return True
    if not pattern:
        return False
    if pattern[0] == ANY_DEPTH:
        return True
    return bool(_compiled(pattern[0]).match(parts[0])) and _begins(pattern[1:], parts[1:])
