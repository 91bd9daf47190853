# ruff: noqa: PTH101, PTH102, PTH115, PTH118, PTH123, PTH211  (names are bytes here)
"""A snapshot gives back what was there, stores what is new, and reads what may have changed."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gym_bus.blobs import DirectoryBlobs, MemoryBlobs
from gym_bus.errors import Corrupt
from providers.sandboxes.snapshots import NotEmpty, SnapshotLimits, TooLarge, load, restore, take
from providers.sandboxes.snapshots.packs import PACK_BYTES
from providers.sandboxes.snapshots.taking import store
from schemas.snapshots import Entry, Manifest

NAMES = st.binary(min_size=1, max_size=12).filter(lambda n: b"/" not in n and b"\0" not in n and n not in {b".", b".."})
LEAVES: Any = st.one_of(
    st.tuples(st.just("file"), st.binary(max_size=200), st.integers(0, 0o777)),
    st.tuples(st.just("link"), NAMES),
)
TREES = st.recursive(
    st.dictionaries(NAMES, LEAVES, max_size=5),
    lambda inner: st.dictionaries(NAMES, st.one_of(LEAVES, inner), max_size=4),
    max_leaves=15,
)


def build(root: bytes, tree: dict[bytes, Any]) -> None:
    for name, what in tree.items():
        path = os.path.join(root, name)
        if isinstance(what, dict):
            os.mkdir(path, 0o750)
            build(path, what)
        elif what[0] == "link":
            os.symlink(what[1], path)
        else:
            with open(path, "wb") as file:
                file.write(what[1])
            os.chmod(path, what[2])
            os.utime(path, ns=(1, 1_700_000_000_123_456_789))


def described(root: Path) -> dict[bytes, tuple[object, ...]]:
    """Return all that is to be the same: kinds, rights, times, content, what links say, which names are one file."""
    found: dict[bytes, tuple[object, ...]] = {}
    inodes: dict[int, bytes] = {}
    base = os.fsencode(root)
    for directory, directories, files in os.walk(base):
        for name in sorted(directories + files):
            path = os.path.join(directory, name)
            status, relative = os.lstat(path), os.path.relpath(path, base)
            kind = stat.S_IFMT(status.st_mode)
            if kind == stat.S_IFLNK:
                found[relative] = ("link", os.readlink(path), status.st_mtime_ns)
            elif kind == stat.S_IFDIR:
                found[relative] = ("directory", status.st_mode & 0o777, status.st_mtime_ns)
            else:
                first = inodes.setdefault(status.st_ino, relative)
                content = Path(os.fsdecode(path)).read_bytes()
                found[relative] = ("file", status.st_mode & 0o777, status.st_mtime_ns, content, first)
    return found


@given(TREES, TREES)
@settings(derandomize=True, max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_what_was_there_is_there_again(
    tmp_path_factory: pytest.TempPathFactory, one: dict[bytes, Any], two: dict[bytes, Any]
) -> None:
    """Whatever names and rights; and a second snapshot that builds on the first holds what the second tree was, on its own."""
    base, blobs = tmp_path_factory.mktemp("trees"), MemoryBlobs()
    source = base / "source"
    source.mkdir()
    build(os.fsencode(source), one)
    first = take(source, blobs)
    before = described(source)
    build(os.fsencode(source), {b"second": two})
    second = take(source, blobs, previous=first.manifest)
    for n, (taken, expected) in enumerate(((first, before), (second, described(source)))):
        target = base / f"target{n}"
        target.mkdir()
        assert restore(taken.ref, blobs, target) == taken.manifest
        assert described(target) == expected
    alone = take(source, blobs).manifest.entries
    assert [e.model_copy(update={"pieces": ()}) for e in second.manifest.entries] == [
        e.model_copy(update={"pieces": ()}) for e in alone
    ]


def filled(root: Path, count: int, size: int = 100) -> Path:
    root.mkdir()
    for n in range(count):
        (root / f"d{n % 10}").mkdir(exist_ok=True)
        (root / f"d{n % 10}" / f"f{n}").write_bytes(f"{n} ".encode() * (size // 4))
    return root


def test_only_what_is_new_is_read_and_stored(tmp_path: Path) -> None:
    """Of a thousand files one has changed, one is new, one has gone, one was renamed; nobody reads the others again."""
    source, blobs = filled(tmp_path / "source", 1000), DirectoryBlobs(tmp_path / "blobs")
    first = take(source, blobs)
    assert first.stored_bytes == first.read_bytes > 90_000
    same = take(source, blobs, previous=first.manifest)
    assert (same.stored_bytes, same.read_bytes) == (0, 0)
    changed = source / "d1" / "f1"
    times = changed.stat()
    changed.write_bytes(b"x" * changed.stat().st_size)
    os.utime(changed, ns=(times.st_atime_ns, times.st_mtime_ns))  # whoever wants to hide a change
    (source / "new").write_bytes(b"new" * 10)
    (source / "d2" / "f2").unlink()
    (source / "d3" / "f3").rename(source / "moved")
    third = take(source, blobs, previous=same.manifest)
    assert third.stored_bytes == changed.stat().st_size + 30
    assert third.read_bytes < 2_000
    target = tmp_path / "target"
    target.mkdir()
    restore(third.ref, blobs, target)
    assert described(target) == described(source)
    assert len(third.manifest.packs) == 2
    assert {p.stat().st_mode & 0o777 for p in (tmp_path / "blobs").rglob("*") if p.is_file()} == {0o600}


def test_large_files_are_cut_into_packs(tmp_path: Path) -> None:
    """A file of two and a half packs, a second of the same content, a hole: all come out whole."""
    source, blobs = tmp_path / "source", MemoryBlobs()
    source.mkdir()
    content = os.urandom(PACK_BYTES) * 2 + os.urandom(PACK_BYTES // 2)
    (source / "a").write_bytes(content)
    with (source / "hole").open("wb") as file:
        file.truncate(3 * 1024 * 1024)
    os.link(source / "a", source / "b")
    taken = take(source, blobs)
    assert len(next(e for e in taken.manifest.entries if e.path == "a").pieces) >= 3
    assert next(e for e in taken.manifest.entries if e.path == "b").kind == "hard"
    assert max(ref.size for ref in taken.manifest.packs) <= PACK_BYTES
    target = tmp_path / "target"
    target.mkdir()
    restore(taken.ref, blobs, target)
    assert described(target) == described(source)


@pytest.mark.parametrize(
    ("limits", "words"),
    [
        (SnapshotLimits(files=5), "5 files"),
        (SnapshotLimits(bytes=300), "300 bytes"),
        (SnapshotLimits(depth=1), "directories in each other"),
    ],
)
def test_what_is_too_much_is_refused(tmp_path: Path, limits: SnapshotLimits, words: str) -> None:
    """By number, by size (a hole counts as what it would become), by depth."""
    source = filled(tmp_path / "source", 4)
    (source / "a" / "b" / "c").mkdir(parents=True)
    with (source / "hole").open("wb") as file:
        file.truncate(10**12)
    with pytest.raises(TooLarge, match=words):
        take(source, MemoryBlobs(), limits=limits)


def test_a_snapshot_goes_into_an_empty_directory_only(tmp_path: Path) -> None:
    """Nothing is mixed with what is there."""
    source, blobs = filled(tmp_path / "source", 3), MemoryBlobs()
    taken = take(source, blobs)
    with pytest.raises(NotEmpty):
        restore(taken.ref, blobs, source)


def test_content_that_is_not_what_it_says_is_noticed(tmp_path: Path) -> None:
    """A pack that lies, a manifest that is gone."""
    source, blobs = filled(tmp_path / "source", 3), MemoryBlobs()
    taken = take(source, blobs)
    target = tmp_path / "target"
    target.mkdir()
    entries = tuple(e.model_copy(update={"sha256": "0" * 64}) if e.sha256 else e for e in taken.manifest.entries)
    lying = store(taken.manifest.model_copy(update={"entries": entries}), blobs)
    with pytest.raises(Corrupt, match="not what it says"):
        restore(lying, blobs, target)
    with pytest.raises(Corrupt, match="missing"):
        load(taken.ref, MemoryBlobs())
    with pytest.raises(Corrupt, match="manifest"):
        load(taken.manifest.packs[0], blobs)


def a_directory(path: str) -> Entry:
    return Entry(path=path, kind="directory", mode=0o700, modified_ns=0)


LINK = Entry(path="a", kind="link", mode=0o777, modified_ns=0, target="/tmp")
SECOND_NAME = Entry(path="a", kind="hard", mode=0o600, modified_ns=0, target="/etc/passwd")


@pytest.mark.parametrize(
    "entries",
    [
        [a_directory("../out")],
        [a_directory("/etc/out")],
        [a_directory("a/../../out")],
        [a_directory("%2e%2e/out")],
        [LINK, a_directory("a/b")],
        [SECOND_NAME],
        [a_directory("a"), a_directory("a")],
    ],
    ids=["up", "absolute", "up again", "written otherwise", "through a link", "a name of another's file", "twice"],
)
def test_a_manifest_that_points_elsewhere_is_refused(tmp_path: Path, entries: list[Entry]) -> None:
    """Before anything is made."""
    blobs = MemoryBlobs()
    ref = store(Manifest(packs=(), entries=tuple(entries)), blobs)
    with pytest.raises(Corrupt, match="cannot be restored"):
        restore(ref, blobs, tmp_path)
    assert not list(tmp_path.iterdir())
