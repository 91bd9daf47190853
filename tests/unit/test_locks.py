"""Locks that last as long as the processes that hold them, and not a moment longer."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from gym_bus.locks import is_locked, try_lock, write_owner

ROOT = Path(__file__).resolve().parents[2]
HOLD = """
import subprocess, sys
from pathlib import Path
from gym_bus.locks import try_lock
lock = try_lock(Path(sys.argv[1]))
assert lock is not None
if sys.argv[2] == "hand on":
    child = subprocess.Popen(["sleep", "60"], pass_fds=(lock,), stdout=subprocess.DEVNULL)
    print(child.pid, flush=True)
else:
    child = subprocess.Popen(["sleep", "60"], stdout=subprocess.DEVNULL)
    print(child.pid, flush=True)
    sys.stdin.read()
"""


@contextmanager
def holder(path: Path, how: str) -> Generator[tuple[subprocess.Popen[str], int]]:
    """Have another process take the lock; yield it and the process that it started."""
    process = subprocess.Popen(
        [sys.executable, "-W", "ignore", "-c", HOLD, str(path), how],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert process.stdout
    child = int(process.stdout.readline())
    try:
        yield process, child
    finally:
        process.kill()
        process.communicate()
        with suppress(ProcessLookupError):
            os.kill(child, signal.SIGKILL)


def test_a_lock_is_held_by_one(tmp_path: Path) -> None:
    """Whoever comes second is told so at once; a free lock can be taken again."""
    path = tmp_path / "deep" / "lock"
    assert not is_locked(path)
    first = try_lock(path)
    assert first is not None
    assert try_lock(path) is None
    assert is_locked(path)
    os.close(first)
    assert not is_locked(path)
    second = try_lock(path)
    assert second is not None
    os.close(second)


def test_looking_takes_nothing(tmp_path: Path) -> None:
    """Asking whether a lock is held makes no file and leaves it free."""
    path = tmp_path / "lock"
    assert not is_locked(path)
    assert not path.exists()


def test_a_lock_ends_with_a_killed_holder(tmp_path: Path) -> None:
    """SIGKILL frees it although a child of the holder lives: the child did not inherit it."""
    path = tmp_path / "lock"
    with holder(path, "keep") as (process, child):
        assert is_locked(path)
        process.kill()
        process.wait()
        os.kill(child, 0)
        assert not is_locked(path)


def test_a_lock_that_was_handed_on_lasts_as_long_as_the_heir(tmp_path: Path) -> None:
    """The one that started the heir may end; the heir's end frees it."""
    path = tmp_path / "lock"
    with holder(path, "hand on") as (process, child):
        process.wait()
        assert is_locked(path)
        pidfd = os.pidfd_open(child)
        os.kill(child, signal.SIGKILL)
        ending = select.poll()
        ending.register(pidfd, select.POLLIN)
        assert ending.poll(10_000), "it does not end"
        os.close(pidfd)
        assert not is_locked(path)


def test_the_owner_is_written_whole(tmp_path: Path) -> None:
    """A shorter text leaves nothing of a longer one."""
    path = tmp_path / "lock"
    lock = try_lock(path)
    assert lock is not None
    write_owner(lock, "a long description of the owner")
    write_owner(lock, "pid 7")
    assert path.read_text() == "pid 7"
    os.close(lock)


def test_a_lock_is_for_this_user_only(tmp_path: Path) -> None:
    """Others cannot hold up this user's processes."""
    path = tmp_path / "held" / "lock"
    mask = os.umask(0)
    try:
        lock = try_lock(path)
    finally:
        os.umask(mask)
    assert lock is not None
    os.close(lock)
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.parent.stat().st_mode & 0o777 == 0o700


def test_a_directory_in_its_place_is_an_error(tmp_path: Path) -> None:
    """It is not taken for a lock that is held."""
    with pytest.raises(OSError, match="directory"):
        try_lock(tmp_path)
