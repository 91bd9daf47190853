"""What is installed on this host: which directories, how large they are, which a run would take today, and which a sandbox is shown."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from adapters.harnesses.base import Harness
from adapters.harnesses.installing.directories import PART, Carried, InstallFailed
from adapters.harnesses.installing.pins import NODE, pinned, python_of
from adapters.harnesses.installing.pythons import find_python
from gym_bus.shared_directories import MARKER
from providers.sandboxes.removal import remove_tree


@dataclass(frozen=True, slots=True)
class Kept:
    """One directory: `size` in bytes; whether it `is_wanted` by a run that begins today, and `is_shown` to a sandbox right now."""

    place: Path
    size: int
    is_wanted: bool
    is_shown: bool


def wanted_now(harnesses: Iterable[Harness], brought: Path | None = None) -> frozenset[str]:
    """Return the names of the directories that runs of `harnesses` take; what this host has no Python for has none. Blocking."""
    node = f"node-{NODE.key(None)}"
    found = {node}
    for harness in harnesses:
        try:
            found |= _directories(harness, Path(node), brought)
        except InstallFailed:
            continue
    return frozenset(found)


def _directories(harness: Harness, node: Path, brought: Path | None) -> set[str]:
    if not harness.packages:
        return set()
    if harness.needs_python:
        python = find_python(harness.name, harness.needs_python, brought)
        own = pinned(harness, python.version, python.program)
        return {f"{harness.name}-{own.key(None)}", f"python-{Carried(python.program, python.build).key(None)}"}
    is_npm = harness.packages[0].ecosystem == "npm"
    own = pinned(harness, "" if is_npm else python_of("/usr/bin/python3"))
    return {f"{harness.name}-{own.key(node if is_npm else None)}"}


def kept_below(home: Path, wanted: frozenset[str]) -> list[Kept]:
    """Return what is installed below `home`, by name. Blocking."""
    places = sorted(
        place for place in home.glob("*-*") if (place / MARKER).is_file() and not place.name.startswith(".")
    )
    shown = _mounted()
    return [Kept(place, size_of(place), place.name in wanted, f"/{place.name} " in shown) for place in places]


def remove(kept: Kept) -> None:
    """Remove a directory: it is gone at once for whoever looks for it, then from the disk. Blocking."""
    part = kept.place.with_name(f"{PART}{kept.place.name}-{secrets.token_hex(4)}")
    kept.place.rename(part)
    remove_tree(part)


def size_of(directory: Path) -> int:
    """Return how many bytes of the disk are taken by what is in a directory. Blocking."""
    return sum(
        os.lstat(os.path.join(parent, name)).st_blocks * 512  # noqa: PTH118  a hundred thousand times
        for parent, names, files in os.walk(directory)
        for name in (*names, *files)
    )


def _mounted() -> str:
    """Return the mounts of all processes: what a sandbox is shown is one of its processes'."""
    told: set[str] = set()
    for process in Path("/proc").glob("[0-9]*"):
        try:
            told.add((process / "mountinfo").read_text(errors="replace"))
        except OSError:  # it has ended, or is another user's
            continue
    return "".join(told)
