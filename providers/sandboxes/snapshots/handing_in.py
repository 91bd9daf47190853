"""What is handed on to a grader out of a snapshot: plain files that were asked for, and nothing that only looks like one."""

from __future__ import annotations

import glob
import re
from collections.abc import Sequence
from typing import Final

from providers.sandboxes.snapshots.limits import SnapshotLimits, TooLarge
from providers.sandboxes.snapshots.selecting import ANY_DEPTH, Selection
from schemas.snapshots import Entry, Manifest

HANDED_IN: Final = SnapshotLimits(files=10_000, bytes=1024**3, depth=64)

MISSING_MAX: Final = 20
LOOKED_AT_MAX: Final = 100
_ESCAPED: Final = re.compile(r"\[([*?\[])\]")


def hand_in(manifest: Manifest, wanted: Selection, limits: SnapshotLimits = HANDED_IN) -> tuple[Manifest, int]:
    """Return a snapshot of the files that are wanted, with the directories they are in, and how much was left out that was wanted.

    Links are left out, a second name of a file is a file of its own, and all that remains of a file's rights is whether it can be run.
    Raises `TooLarge`.
    """
    files: dict[str, Entry] = {}
    left_out = sum(1 for thing in manifest.left_out if wanted.wants(thing.path))
    originals = {entry.path: entry for entry in manifest.entries if entry.kind == "file"}
    for entry in manifest.entries:
        if entry.kind == "directory" or not wanted.wants(entry.path):
            continue
        original = originals.get(entry.target or "") if entry.kind == "hard" else entry
        if original is None or original.kind != "file":
            left_out += 1
            continue
        if len(files) >= limits.files:
            msg = f"more than {limits.files:,} files were handed in, and that is the most that may be"
            raise TooLarge(msg)
        mode = 0o755 if original.mode & 0o111 else 0o644
        files[entry.path] = original.model_copy(update={"path": entry.path, "mode": mode, "stamp": None})
    _check(files, limits)
    parents = {"/".join(path.split("/")[:n]) for path in files for n in range(1, path.count("/") + 1)}
    directories = [
        entry.model_copy(update={"mode": 0o755, "stamp": None})
        for entry in manifest.entries
        if entry.kind == "directory" and entry.path in parents
    ]
    entries = (*directories, *files.values())
    return Manifest(packs=manifest.packs, entries=entries), left_out


def missing_of(patterns: Sequence[str], paths: Sequence[str]) -> tuple[str, ...]:
    """Return which of the patterns are no file or directory of `paths`: at most `MISSING_MAX`, of the first `LOOKED_AT_MAX`.

    One of which every character stands for itself is told as the path that it is.
    """
    known = set(paths)
    absent = []
    for pattern in patterns[:LOOKED_AT_MAX]:
        path = _ESCAPED.sub(r"\1", pattern).removesuffix("/")
        is_path = glob.escape(path) == pattern.removesuffix("/")
        is_there = path in known if is_path else pattern == ANY_DEPTH or any(map(Selection((pattern,)).wants, paths))
        if not is_there:
            absent.append(path if is_path else pattern)
    return tuple(absent[:MISSING_MAX])


def laid_over(below: Manifest, above: Manifest) -> Manifest:
    """Return a snapshot of `below` in which the files of `above` are, in the place of whatever had their names."""
    shift = len(below.packs)
    new = {
        entry.path: entry.replaced(pieces=tuple(piece.replaced(pack=piece.pack + shift) for piece in entry.pieces))
        for entry in above.entries
    }
    parents = {"/".join(path.split("/")[:n]) for path in new for n in range(1, path.count("/") + 1)}
    old = {entry.path: entry for entry in below.entries if not _gives_way(entry, new, parents)}
    kept = [entry for entry in old.values() if entry.kind != "hard" or entry.target in old]
    known = {entry.path for entry in kept if entry.kind == "directory"}
    added = [entry for entry in new.values() if entry.kind != "directory" or entry.path not in known]
    entries = sorted(
        (*kept, *added), key=lambda entry: (entry.kind != "directory", entry.path.count("/"), entry.kind == "hard")
    )
    return Manifest(packs=(*below.packs, *above.packs), entries=tuple(entries))


def _gives_way(entry: Entry, new: dict[str, Entry], parents: set[str]) -> bool:
    """Say whether an entry is where another one is put, in its way, or below what is no directory any more."""
    taken = new.get(entry.path)
    if taken is not None and not (taken.kind == entry.kind == "directory"):
        return True
    if entry.path in parents and entry.kind != "directory":
        return True
    above = ("/".join(entry.path.split("/")[:n]) for n in range(1, entry.path.count("/") + 1))
    return any(path in new and new[path].kind != "directory" for path in above)


def _check(files: dict[str, Entry], limits: SnapshotLimits) -> None:
    size, depth = sum(entry.size for entry in files.values()), max((path.count("/") for path in files), default=0)
    for what, count, most in (
        ("files", len(files), limits.files),
        ("bytes", size, limits.bytes),
        ("directories in each other", depth, limits.depth),
    ):
        if count > most:
            msg = f"{count:,} {what} were handed in, and {most:,} is the most that may be"
            raise TooLarge(msg)
