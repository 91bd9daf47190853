"""Rooms that lie beside all homes go with the directory that they belong to, whoever reaps next; living ones and others stay."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from providers.sandboxes import rooms
from providers.sandboxes.rooms import BELONGS_TO, Rooms

LEAVES = """
import os, sys
from pathlib import Path
from providers.sandboxes import rooms

rooms.FALLBACK_PARENT = Path(sys.argv[1])
room = rooms.Rooms.reachable(Path(sys.argv[2])).make("box", os.getuid())
(room.work / "file").write_text("x")
print(room.path, flush=True)
os.kill(os.getpid(), 9)
"""


@pytest.fixture
def beside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return what stands for /var/tmp."""
    place = tmp_path / "beside"
    place.mkdir()
    monkeypatch.setattr(rooms, "FALLBACK_PARENT", place)
    return place


def home_of(tmp_path: Path, name: str) -> Path:
    """Return a data directory that nobody else can pass through to."""
    (tmp_path / name).mkdir(mode=0o700)
    return tmp_path / name / "boxes"


def left_by_a_killed_process(beside: Path, work: Path) -> Path:
    done = subprocess.run(
        [sys.executable, "-c", LEAVES, beside, work], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == -9, done.stderr
    return Path(done.stdout.strip())


def test_who_removes_a_data_directory_leaves_nothing(tmp_path: Path, beside: Path) -> None:
    gone, there, mine = (home_of(tmp_path, name) for name in ("gone", "there", "mine"))
    deserted, kept = (left_by_a_killed_process(beside, work) for work in (gone, there))
    shutil.rmtree(gone.parent)
    assert (deserted / "box" / "file").exists()
    assert Rooms.reachable(mine).reap() == 0, "only its own count"
    assert not deserted.parents[1].exists()
    assert (kept / "box" / "file").exists(), "its directory is there: who uses that reaps it"
    assert Rooms.reachable(there).reap() == 1
    assert not kept.parent.exists()


def test_what_is_not_known_or_lives_stays(tmp_path: Path, beside: Path) -> None:
    """A living process whose directory was removed keeps its rooms; so does what nobody has marked, or another user could have made."""
    mine, removed = home_of(tmp_path, "mine"), home_of(tmp_path, "removed")
    living = Rooms.reachable(removed)
    room = living.make("box", os.getuid())
    shutil.rmtree(removed.parent)
    unmarked = beside / "gym-bus-0123456789ab" / "p1-01234567"
    unmarked.mkdir(parents=True)
    (beside / "gym-bus-0123456789ac").symlink_to(unmarked.parent)
    elsewhere = beside / "others" / "p1-01234567"
    elsewhere.mkdir(parents=True)
    (elsewhere / BELONGS_TO).write_text(str(removed))
    Rooms.reachable(mine).reap()
    assert room.path.exists()
    assert unmarked.exists()
    assert elsewhere.exists()
    living.close()
    assert not room.path.exists()


def test_a_process_says_where_it_belongs_only_if_it_lies_elsewhere(tmp_path: Path, beside: Path) -> None:
    inside = Rooms(tmp_path / "rooms")
    outside = Rooms.reachable(home_of(tmp_path, "home"))
    assert not (inside.own / BELONGS_TO).exists()
    assert outside.own.parents[1] == beside
    assert (outside.own / BELONGS_TO).read_text() == str(tmp_path / "home" / "boxes")
    inside.close()
    outside.close()
