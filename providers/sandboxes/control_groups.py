"""Control groups of boxes: the memory of a box as a whole, what the kernel killed for want of it, and a box stopped where it is.

Version 1 or 2, whichever this host has its memory in; only root can make groups, and not everywhere. Where none can be made, memory is
bounded process by process, and a box is stopped with signals (`freezing.py`).

The groups of this process lie in one of their own, named like its directory of rooms, in which it is written where they are: so those
of dead processes are found, by whoever looks, from whichever group.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

UNIFIED: Final = 2
"""The version in which a group has all controllers, and can be frozen."""
TRIES: Final = 100
PAUSE_S: Final = 0.02
_PREFIX: Final = "gym-bus-"
_LIST: Final = "groups"
_LIMITS: Final = {
    1: ("memory.limit_in_bytes", "memory.memsw.limit_in_bytes"),
    2: ("memory.max",),
}
_DEATHS: Final = {1: "memory.oom_control", 2: "memory.events"}


@dataclass(frozen=True, slots=True)
class Hierarchy:
    """Where groups are made: `parent` is an existing group, `version` says which files it has."""

    parent: Path
    version: Literal[1, 2]


def memory_hierarchy() -> Hierarchy | None:
    """Return where this host bounds memory, below the group that we are in if that can be; None if it does not."""
    for mount, kind, options in _mounts():
        if kind == "cgroup" and "memory" in options:
            return Hierarchy(_own(mount, "memory"), 1)
        if kind == "cgroup2" and "memory" in _words(mount / "cgroup.controllers"):
            own = _own(mount, "")
            return Hierarchy(own if "memory" in _words(own / "cgroup.subtree_control") else mount, 2)
    return None


def unified_hierarchy() -> Hierarchy | None:
    """Return where groups of version 2 are made, which can all be frozen; None if this host has none."""
    for mount, kind, _ in _mounts():
        if kind == "cgroup2":
            return Hierarchy(_own(mount, ""), 2)
    return None


class BoxGroup:
    """One group. Not every method is for every group: memory is bounded in those of `memory_hierarchy`."""

    def __init__(self, path: Path, version: Literal[1, 2]) -> None:
        self.path = path
        self.version = version

    def bound(self, memory_mib: int) -> None:
        """Let all of it have so much memory, and no swap; raises `OSError`."""
        for name in _LIMITS[self.version]:
            if (file := self.path / name).exists():
                file.write_text(str(memory_mib * 1024 * 1024))
        with suppress(OSError):  # a host without swap has no such file
            (self.path / "memory.swap.max").write_text("0")

    def add(self, pids: Sequence[int]) -> None:
        """Take processes in; what they start from then on is in as well. One that is gone is fine. Blocking."""
        for pid in pids:
            with suppress(ProcessLookupError):
                (self.path / "cgroup.procs").write_text(str(pid))

    def members(self) -> set[int]:
        """Return the processes that are in it."""
        return {int(word) for word in _words(self.path / "cgroup.procs")}

    def deaths(self) -> int:
        """Return how many of its processes the kernel has killed so far because it had no memory left."""
        words = _words(self.path / _DEATHS[self.version])
        return int(words[words.index("oom_kill") + 1]) if "oom_kill" in words else 0

    async def freeze(self, *, is_frozen: bool) -> bool:
        """Stop all of it where it is, or let it go on; return whether that came about. Version 2 only."""
        (self.path / "cgroup.freeze").write_text("1" if is_frozen else "0")
        for _ in range(TRIES):
            words = _words(self.path / "cgroup.events")
            if "frozen" in words and words[words.index("frozen") + 1] == ("1" if is_frozen else "0"):
                return True
            await asyncio.sleep(PAUSE_S)
        return False

    async def remove(self) -> None:
        """Remove it; what was in it may take a moment to be gone."""
        for _ in range(TRIES):
            if _removed(self.path):
                return
            await asyncio.sleep(PAUSE_S)


class Groups:
    """Makes the groups of this process's boxes."""

    def __init__(self, owner: Path) -> None:
        self._name = f"{_PREFIX}{owner.name}"
        self._list = owner / _LIST
        self._made: set[Path] = set()

    def make(self, name: str, hierarchy: Hierarchy | None) -> BoxGroup | None:
        """Return a new group in `hierarchy`; None if there is none, or we may not. Blocking, for no time."""
        if hierarchy is None:
            return None
        parent = hierarchy.parent / self._name
        try:
            if parent not in self._made:
                with self._list.open("a", encoding="utf-8") as file:
                    file.write(f"{parent}\n")
                parent.mkdir(exist_ok=True)
                self._made.add(parent)
            if hierarchy.version == UNIFIED and "memory" in _words(hierarchy.parent / "cgroup.controllers"):
                for group in (hierarchy.parent, parent):
                    (group / "cgroup.subtree_control").write_text("+memory")
            path = parent / name
            path.mkdir()
        except OSError:
            return None
        return BoxGroup(path, hierarchy.version)

    def close(self) -> None:
        """Remove what is left empty."""
        for path in self._made:
            _removed(path)
        self._made.clear()


def remove_groups_of(owner: Path) -> bool:
    """Remove the groups of a dead process, whose boxes died with it; return whether all are gone. Blocking, for two seconds at most.

    What dies may take a moment to be gone, the more so if there was much of it.
    """
    try:
        parents = [Path(line) for line in (owner / _LIST).read_text(encoding="utf-8").splitlines()]
    except FileNotFoundError:
        return True
    left = [path for path in parents if path.name == f"{_PREFIX}{owner.name}"]
    for _ in range(TRIES):
        left = [parent for parent in left if not _all_removed(parent)]
        if not left:
            return True
        time.sleep(PAUSE_S)
    return False


def _all_removed(parent: Path) -> bool:
    with suppress(OSError):
        for path in parent.iterdir():
            if path.is_dir():
                _removed(path)
    return _removed(parent)


def _removed(path: Path) -> bool:
    try:
        path.rmdir()
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return True


def _mounts() -> list[tuple[Path, str, list[str]]]:
    found = [line.split() for line in Path("/proc/self/mounts").read_text().splitlines()]
    return [(Path(path), kind, options.split(",")) for _, path, kind, options, *_ in found if kind.startswith("cgroup")]


def _own(mount: Path, controller: str) -> Path:
    """Return the group that we are in; the mount's own if ours is not seen from here."""
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        if controller in controllers.split(",") and (own := mount / path.lstrip("/")).is_dir():
            return own
    return mount


def _words(path: Path) -> list[str]:
    try:
        return path.read_text().split()
    except OSError:
        return []
