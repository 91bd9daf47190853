"""Declared files and nothing else: what a grader is handed."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from gym_bus.blobs import MemoryBlobs
from providers.sandboxes.snapshots import BadPattern, Selection, SnapshotLimits, TooLarge, restore, take
from providers.sandboxes.snapshots.handing_in import LOOKED_AT_MAX, MISSING_MAX, missing_of


@pytest.mark.parametrize(
    ("pattern", "path", "wanted"),
    [
        ("out.txt", "out.txt", True),
        ("out.txt", "a/out.txt", False),
        ("out", "out/a/b.txt", True),
        ("out/", "out/a/b.txt", True),
        ("out/*.txt", "out/a.txt", True),
        ("out/*.txt", "out/a/b.txt", False),
        ("out/*", "out/a/b.txt", True),
        ("**/*.py", "a.py", True),
        ("**/*.py", "a/b/c.py", True),
        ("src/**/test_?.py", "src/x/y/test_1.py", True),
        ("src/**/test_?.py", "src/test_12.py", False),
        ("**", "anything/at/all", True),
        ("[ab]/c", "a/c", True),
    ],
)
def test_patterns_are_over_components(pattern: str, path: str, wanted: bool) -> None:
    """A star never crosses a slash; a directory stands for all that is in it; and no directory on the way is passed by."""
    selection = Selection([pattern])
    assert selection.wants(path) == wanted
    if wanted:
        parts = path.split("/")
        assert all(selection.may_hold("/".join(parts[:n])) for n in range(1, len(parts)))


@pytest.mark.parametrize("pattern", ["", "/etc/passwd", "../x", "a/../../x", "a//b", "./a"])
def test_patterns_stay_inside(pattern: str) -> None:
    """What points elsewhere is refused before anything is read."""
    with pytest.raises(BadPattern):
        Selection([pattern])


def test_what_is_handed_on_is_what_it_seems_to_be(tmp_path: Path) -> None:
    """Links, pipes and devices are left out and named; a second name is a file of its own; nothing undeclared comes along."""
    source, target, blobs = tmp_path / "source", tmp_path / "target", MemoryBlobs()
    (source / "out" / "empty").mkdir(parents=True)
    (source / "other").mkdir()
    target.mkdir()
    (source / "out" / "answer.txt").write_text("42")
    (source / "notes.txt").write_text("mine")
    (source / "other" / "x").write_text("not wanted")
    (source / "out" / "passwd").symlink_to("/etc/passwd")
    (source / "out" / "up").symlink_to("..")
    os.link(source / "notes.txt", source / "out" / "second")
    os.mkfifo(source / "out" / "pipe")
    taken = take(source, blobs, only=Selection(["out", "other/*.log"]))
    assert [(e.path, e.kind) for e in taken.manifest.entries] == [
        ("out", "directory"), ("out/answer.txt", "file"), ("out/empty", "directory"), ("out/second", "file"),
    ]  # fmt: skip
    assert {(o.path, o.reason) for o in taken.manifest.left_out} == {
        ("out/passwd", "link"), ("out/up", "link"), ("out/pipe", "pipe"),
    }  # fmt: skip
    restore(taken.ref, blobs, target)
    assert (target / "out" / "second").read_text() == "mine"
    assert (target / "out" / "second").stat().st_nlink == 1


def test_a_bomb_is_bounded(tmp_path: Path) -> None:
    """A hole of a terabyte, and more files than are wanted by anybody."""
    with (tmp_path / "hole").open("wb") as file:
        file.truncate(10**12)
    with pytest.raises(TooLarge):
        take(tmp_path, MemoryBlobs(), only=Selection(["hole"]), limits=SnapshotLimits(bytes=10**9))
    for n in range(20):
        (tmp_path / f"f{n}").touch()
    with pytest.raises(TooLarge):
        take(tmp_path, MemoryBlobs(), only=Selection(["f*"]), limits=SnapshotLimits(files=10))


@pytest.mark.parametrize(
    ("patterns", "missing"),
    [
        (("a/b.txt", "a", "a/"), ()),
        (("a/c.txt", "b"), ("a/c.txt", "b")),
        (("*.md", "a/*.txt", "**"), ("*.md",)),
        (("a[[]1].txt", "b[[]1].txt"), ("b[1].txt",)),
        ((), ()),
    ],
)
def test_what_is_asked_for_and_not_there_is_named(patterns: tuple[str, ...], missing: tuple[str, ...]) -> None:
    """A path as it is, a pattern as it was written; all files that there are may be none."""
    assert missing_of(patterns, ["a", "a/b.txt", "a[1].txt"]) == missing


def test_few_are_named_and_not_very_many_are_looked_for() -> None:
    many = tuple(f"f{n}" for n in range(LOOKED_AT_MAX + 5))
    assert missing_of(many, ()) == many[:MISSING_MAX]
    assert missing_of(many, many[:LOOKED_AT_MAX]) == ()
