"""What a machine gives for its workspace may be made to harm whoever unpacks it."""

from __future__ import annotations

import io
import os
import tarfile
from pathlib import Path
from typing import Any

import pytest

from gym_bus.blobs import MemoryBlobs
from providers.sandboxes.archived import BadArchive, pack, restore_archived, take_archived, unpack
from providers.sandboxes.snapshots import SnapshotLimits, TooLarge, restore, take

LIMITS = SnapshotLimits(files=50, bytes=1_000_000, depth=5)


def member(
    name: str, kind: bytes = tarfile.REGTYPE, content: bytes = b"", **given: Any
) -> tuple[tarfile.TarInfo, bytes]:
    info = tarfile.TarInfo(name)
    info.type = kind
    info.size = len(content)
    for key, value in given.items():
        setattr(info, key, value)
    return info, content


def archive(*members: tuple[tarfile.TarInfo, bytes]) -> io.BytesIO:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w") as tar:
        for info, content in members:
            tar.addfile(info, io.BytesIO(content))
    file.seek(0)
    return file


SYM, HARD, DIR = tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.DIRTYPE


@pytest.mark.parametrize(
    "members",
    [
        [member("/etc/x", content=b"x")],
        [member("../x", content=b"x")],
        [member("a", DIR), member("a/../../x", content=b"x")],
        [member("a/b", content=b"in no directory")],
        [member("a", SYM, linkname="/tmp"), member("a/x", content=b"through a link")],
        [member("a", SYM, linkname="."), member("a", content=b"twice")],
        [member("a", HARD, linkname="/etc/passwd")],
        [member("a", HARD, linkname="../x")],
        [member("a", SYM, linkname="/etc/passwd"), member("b", HARD, linkname="a")],
        [member("a", DIR), member("a", SYM, linkname="/tmp")],
        [member("a" * 300, content=b"x")],
        [member("a", SYM, linkname="x" * 5000)],
        [member("a", SYM, linkname="")],
    ],
)
def test_nothing_gets_out_of_the_directory(tmp_path: Path, members: list[Any]) -> None:
    root = tmp_path / "deep" / "root"
    root.mkdir(parents=True)
    with pytest.raises(BadArchive):
        unpack(archive(*members), root, LIMITS)
    assert [p.name for p in tmp_path.iterdir()] == ["deep"]
    assert [p.name for p in (tmp_path / "deep").iterdir()] == ["root"]
    assert not [p for p in root.rglob("*") if p.is_file() and not p.is_symlink()]


def test_a_link_that_points_out_is_kept_and_followed_by_nobody(tmp_path: Path) -> None:
    """As on this host: a virtual environment's python is such a link."""
    (tmp_path / "a.tar").write_bytes(archive(member("out", SYM, linkname="/etc/passwd")).getvalue())
    blobs = MemoryBlobs()
    taken = take_archived(tmp_path / "a.tar", blobs, tmp_path / "staging", None, LIMITS)
    assert [(e.path, e.kind, e.target) for e in taken.manifest.entries] == [("out", "link", "/etc/passwd")]
    assert not any(b"root:" in content for content in blobs._content.values())


def test_devices_are_left_out_and_pipes_named(tmp_path: Path) -> None:
    made = archive(member("zero", tarfile.CHRTYPE, devmajor=1, devminor=5), member("pipe", tarfile.FIFOTYPE))
    (tmp_path / "a.tar").write_bytes(made.getvalue())
    taken = take_archived(tmp_path / "a.tar", MemoryBlobs(), tmp_path / "staging", None, LIMITS)
    assert taken.manifest.entries == ()
    assert [(left.path, left.reason) for left in taken.manifest.left_out] == [("pipe", "pipe")]


def test_rights_are_written_down_and_never_given(tmp_path: Path) -> None:
    """While it is staged, nothing has more rights than reading and writing by us."""
    (tmp_path / "root").mkdir()
    members = [member("d", DIR, mode=0o2777), member("d/suid", content=b"x", mode=0o6755), member("none", mode=0)]
    modes = unpack(archive(*members), tmp_path / "root", LIMITS)
    assert modes == {"d": 0o777, "d/suid": 0o755, "none": 0}
    found = {p.name: p.stat().st_mode & 0o7777 for p in (tmp_path / "root").rglob("*")}
    assert found == {"d": 0o700, "suid": 0o600, "none": 0o600}


@pytest.mark.parametrize(
    "members",
    [
        [member(str(n)) for n in range(60)],
        [member("big", content=b"x" * 1_000_001)],
        [member("/".join("d" * n), DIR) for n in range(1, 9)],
    ],
)
def test_what_is_too_much_is_refused(tmp_path: Path, members: list[Any]) -> None:
    with pytest.raises(TooLarge):
        unpack(archive(*members), tmp_path, LIMITS)


def test_a_sparse_bomb_is_counted_as_what_it_becomes(tmp_path: Path) -> None:
    """A few bytes in the archive, gigabytes of holes outside of it."""
    (tmp_path / "in").mkdir()
    with (tmp_path / "in" / "holes").open("wb") as file:
        file.truncate(3_000_000_000)
    assert os.system(f"tar -C {tmp_path}/in -cSf {tmp_path}/a.tar .") == 0
    assert (tmp_path / "a.tar").stat().st_size < 100_000
    (tmp_path / "out").mkdir()
    with (tmp_path / "a.tar").open("rb") as file, pytest.raises(TooLarge):
        unpack(file, tmp_path / "out", LIMITS)


def test_a_header_that_would_fill_our_memory_is_refused(tmp_path: Path) -> None:
    info, content = member("x", tarfile.XHDTYPE, b"0" * 2_000_000)
    with pytest.raises(BadArchive, match="header of 2000000 bytes"):
        unpack(io.BytesIO(info.tobuf() + content + b"\0" * 1024), tmp_path, LIMITS)


@pytest.mark.parametrize(
    "content", [b"", b"no tar", b"\0" * 10_000, archive(member("a", content=b"x" * 5000)).getvalue()[:2000]]
)
def test_what_is_no_archive_harms_nobody(tmp_path: Path, content: bytes) -> None:
    try:
        unpack(io.BytesIO(content), tmp_path, LIMITS)
    except BadArchive:
        return
    assert not list(tmp_path.iterdir())


def test_a_snapshot_is_the_same_after_a_journey(tmp_path: Path) -> None:
    """From a directory into a snapshot, an archive, another directory, and the same snapshot again."""
    home, blobs = tmp_path / "home", MemoryBlobs()
    (home / "a" / "b").mkdir(parents=True)
    (home / "a" / "file").write_bytes(bytes(range(256)) * 100)
    (home / "a" / "b" / os.fsdecode(b"odd \xff\n name")).write_text("x")
    (home / "link").symlink_to("a/file")
    os.link(home / "a" / "file", home / "again")
    (home / "closed").mkdir(mode=0o500)
    os.utime(home / "a" / "file", ns=(1_700_000_000_123_456_789, 1_700_000_000_123_456_789))
    first = take(home, blobs)
    restore_archived(first.ref, blobs, tmp_path / "staging", tmp_path / "a.tar")
    second = take_archived(tmp_path / "a.tar", blobs, tmp_path / "staging", first.manifest, LIMITS)
    assert second.stored_bytes == 0
    plain = {"stamp": None, "pieces": ()}
    assert [e.model_copy(update=plain) for e in second.manifest.entries] == [
        e.model_copy(update=plain) for e in first.manifest.entries
    ]
    (tmp_path / "end").mkdir()
    restore(second.ref, blobs, tmp_path / "end")
    assert (tmp_path / "end" / "again").read_bytes() == bytes(range(256)) * 100
    assert not (tmp_path / "staging").exists()
    with (tmp_path / "b.tar").open("wb") as file:
        pack(second.manifest, tmp_path / "end", file)
