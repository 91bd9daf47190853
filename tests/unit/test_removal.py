"""Removing directories that somebody made so that they could not be removed."""

from __future__ import annotations

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from providers.sandboxes.removal import remove_tree
from tests.support.gateway_process import ROOT

REMOVES = """
import os, sys
from pathlib import Path
from providers.sandboxes.removal import remove_tree

uid = int(sys.argv[1])
os.setgroups([])
os.setresgid(uid, uid, uid)
os.setresuid(uid, uid, uid)
remove_tree(Path(sys.argv[2]))
"""
"""A process of its own, and no fork of this one: that has threads, whose locks a fork may hold for ever."""


def test_depth_does_not_matter(tmp_path: Path) -> None:
    """Far deeper than a path can be long, than Python recurses, and than files can be open."""
    top = tmp_path / "top"
    top.mkdir()
    here = os.open(top, os.O_RDONLY)
    for _ in range(25_000):
        os.mkdir("d", dir_fd=here)
        below = os.open("d", os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = below
    os.close(os.open("file", os.O_CREAT, dir_fd=here))
    os.close(here)
    remove_tree(top)
    assert not top.exists()


def test_links_lead_nowhere(tmp_path: Path) -> None:
    """What they point to stays, with its rights, whether it is a file, a directory or the way up."""
    kept = tmp_path / "kept"
    kept.mkdir(mode=0o755)
    (kept / "file").write_text("mine")
    top = tmp_path / "top"
    (top / "a" / "b").mkdir(parents=True)
    for place in (top, top / "a", top / "a" / "b"):
        (place / "out").symlink_to(kept)
        (place / "up").symlink_to("..")
        os.link(kept / "file", place / "second")
    os.mkfifo(top / "a" / "pipe")
    remove_tree(top)
    assert not top.exists()
    assert (kept / "file").read_text() == "mine"
    assert kept.stat().st_mode & 0o777 == 0o755


def test_a_top_that_is_a_link_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "kept").mkdir()
    (tmp_path / "kept" / "file").write_text("mine")
    (tmp_path / "link").symlink_to(tmp_path / "kept")
    with pytest.raises(OSError, match=r"irectory|symbolic"):
        remove_tree(tmp_path / "link")
    assert (tmp_path / "kept" / "file").exists()


@pytest.mark.parametrize("uid", [0, 54_321])
@pytest.mark.skipif(os.getuid() != 0, reason="only root can be somebody else")
def test_locks_do_not_matter_to_root_nor_to_the_owner(tmp_path: Path, uid: int) -> None:
    """Directories without any right, in each other; whoever owns them removes them, in a process without other rights."""
    tmp_path.chmod(0o711)
    for parent in tmp_path.parents:
        if not parent.stat().st_mode & 0o001:
            parent.chmod(0o711)
    home = tmp_path / "home"
    top = home / "top"
    (top / "a" / "b" / "c").mkdir(parents=True)
    (top / "a" / "b" / "c" / "file").write_text("x")
    for path in (home, top, *top.rglob("*")):
        os.chown(path, uid, uid)
    for path in (top / "a" / "b" / "c", top / "a" / "b", top / "a", top):
        path.chmod(0)
    done = subprocess.run(
        [sys.executable, "-c", REMOVES, str(uid), top],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert not top.exists()


def test_what_is_gone_is_gone(tmp_path: Path) -> None:
    remove_tree(tmp_path / "never-there")


def test_removals_of_a_directory_and_of_one_inside_it_do_not_disturb_each_other(tmp_path: Path) -> None:
    """A machine's destruction may still be clearing its room when its process clears all of its rooms."""
    for _ in range(30):
        top = tmp_path / "top"
        for number in range(200):
            (top / "room" / "work" / f"d{number}" / "deep" / "deeper").mkdir(parents=True)
            (top / "room" / "work" / f"d{number}" / "file").touch()
        with ThreadPoolExecutor(3) as pool:
            for each in [pool.submit(remove_tree, path) for path in (top / "room", top, top / "room" / "work")]:
                each.result(60)
        assert not top.exists()


def test_a_directory_that_is_filled_without_end_is_an_error_and_no_endless_loop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "top").mkdir()
    rmdir = Path.rmdir

    def refilled(self: Path) -> None:
        (self / "again").touch()
        rmdir(self)

    monkeypatch.setattr(Path, "rmdir", refilled)
    with pytest.raises(OSError, match="goes on writing"):
        remove_tree(tmp_path / "top")
