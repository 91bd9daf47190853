"""Snapshots of what an agent wrote, taken by somebody who may read more than the agent."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import socket
import threading
import time
from pathlib import Path
from typing import cast

import pytest

from gym_bus.blobs import MemoryBlobs
from providers.sandboxes import Box, BoxLost, SandboxProvider
from providers.sandboxes.bubblewrap import BubblewrapProvider
from providers.sandboxes.capabilities import WithSnapshots
from providers.sandboxes.snapshots import Taken, restore, take
from schemas.sandboxes import Bubblewrap
from tests.support.boxes import LOCAL, RUN_AS_US, provider_of

SECRET = "a secret that only root may read"


class BoxWithSnapshots(Box, WithSnapshots):
    """What the tests talk to."""


async def box_of(provider: SandboxProvider, label: str) -> BoxWithSnapshots:
    box = await provider.create(f"snap.{os.getpid()}.{label}")
    assert isinstance(box, WithSnapshots)
    return cast("BoxWithSnapshots", box)


async def snapshot_of(box: BoxWithSnapshots, blobs: MemoryBlobs) -> Taken:
    return await box.snapshot(blobs)


@pytest.mark.alone
def test_what_is_no_file_is_left_out_and_waited_for_by_nobody(tmp_path: Path) -> None:
    """A pipe, a socket, a device, an endless link: named with a reason, in no time."""
    os.mkfifo(tmp_path / "pipe")
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(tmp_path / "socket"))
    os.mknod(tmp_path / "device", 0o20666, os.makedev(1, 5))  # /dev/zero
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "out").symlink_to("/etc")
    began = time.monotonic()
    taken = take(tmp_path, MemoryBlobs())
    assert time.monotonic() - began < 5
    assert {(o.path, o.reason) for o in taken.manifest.left_out} == {
        ("pipe", "pipe"),
        ("socket", "socket"),
        ("device", "device"),
    }
    assert [(e.path, e.kind) for e in taken.manifest.entries] == [("loop", "link"), ("out", "link")]


def test_a_directory_that_becomes_a_link_leads_nowhere(tmp_path: Path) -> None:
    """While it is being read, names change places with links to a secret as fast as they can; not one byte of it gets in."""
    vault, source = tmp_path / "vault", tmp_path / "source"
    for directory in (vault, source / "real" / "inner"):
        directory.mkdir(parents=True)
    (vault / "secret").write_text(SECRET)
    (vault / "inner").mkdir()
    (vault / "inner" / "secret").write_text(SECRET)
    for n in range(200):
        (source / "real" / "inner" / f"secret{n}").write_text("mine")
    (source / "real" / "secret").write_text("mine")
    (source / "aside").symlink_to(vault)
    ended = threading.Event()

    def swap() -> None:
        while not ended.is_set():
            for one, other in (("real", "tmp"), ("aside", "real"), ("tmp", "aside")):
                (source / one).rename(source / other)

    thread = threading.Thread(target=swap)
    thread.start()
    try:
        blobs = MemoryBlobs()
        for _ in range(200):
            take(source, blobs)
    finally:
        ended.set()
        thread.join()
    assert not [content for content in blobs._content.values() if SECRET.encode() in content]


def test_restoring_into_a_directory_that_changes_writes_nowhere_else(tmp_path: Path) -> None:
    """While files are made, directories just made change places with links out of the workspace; outside nothing is made or changed."""
    vault, source, target = tmp_path / "vault", tmp_path / "source", tmp_path / "target"
    (vault / "b").mkdir(parents=True)
    (vault / "kept").write_text(SECRET)
    (vault / "kept").chmod(0o600)
    for n in range(60):
        (source / "a" / "b" / f"d{n}").mkdir(parents=True)
        for name in ("x", "kept"):
            (source / "a" / "b" / f"d{n}" / name).write_text("from the snapshot")
            (source / "a" / f"{name}{n}").write_text("from the snapshot")
    (source / "a" / "kept").write_text("from the snapshot")
    blobs = MemoryBlobs()
    taken, ended = take(source, blobs), threading.Event()

    def swap() -> None:
        while not ended.is_set():
            with contextlib.suppress(OSError):
                (target / "a").rename(target / "tmp")
                (target / "a").symlink_to(vault)
                time.sleep(0.0002)
                (target / "a").unlink()
                (target / "tmp").rename(target / "a")

    spoilt = 0
    for _ in range(40):
        shutil.rmtree(target, ignore_errors=True)
        target.mkdir()
        ended.clear()
        thread = threading.Thread(target=swap)
        thread.start()
        try:
            restore(taken.ref, blobs, target, uid=54_321 if os.getuid() == 0 else None)
        except OSError:
            spoilt += 1
        finally:
            ended.set()
            thread.join()
    assert spoilt, "the names did change meanwhile"
    assert sorted(path.name for path in vault.rglob("*")) == ["b", "kept"]
    kept = (vault / "kept").stat()
    assert (kept.st_uid, kept.st_mode & 0o777, (vault / "kept").read_text()) == (os.getuid(), 0o600, SECRET)


def test_what_would_run_as_somebody_else_does_not(tmp_path: Path) -> None:
    """Set-uid, set-gid and sticky are not kept; owners are whoever it is restored for."""
    source, target = tmp_path / "source", tmp_path / "target"
    source.mkdir()
    target.mkdir()
    (source / "sh").write_bytes(b"#!/bin/sh\n")
    (source / "sh").chmod(0o6755)
    blobs = MemoryBlobs()
    restore(take(source, blobs).ref, blobs, target, uid=54_321)
    status = (target / "sh").stat()
    assert (status.st_mode & 0o7777, status.st_uid, status.st_gid) == (0o755, 54_321, 54_321)


@pytest.mark.parametrize("kind", LOCAL)
async def test_a_box_is_lost_and_another_one_has_its_files(kind: str, tmp_path: Path) -> None:
    """What commands made is there again, for the new box's own user, with locked directories and names in any script."""
    provider, blobs = await provider_of(kind, tmp_path / "boxes"), MemoryBlobs()
    assert "snapshots" in provider.capabilities
    try:
        first = await box_of(provider, "b1")
        made = await first.exec(
            "mkdir -p a/b locked && echo one > a/b/один && ln -s ../a/b/один a/link && ln a/b/один a/second && "
            "printf '#!/bin/sh\\necho ran' > run && chmod 755 run && echo hidden > locked/file && chmod 000 locked && mkfifo pipe",
            key="k1", timeout_s=20,
        )  # fmt: skip
        assert made.exit_code == 0, made.output
        taken = await snapshot_of(first, blobs)
        await first.destroy()
        with pytest.raises(BoxLost):
            await first.snapshot(blobs)
        second = await box_of(provider, "b1-2")
        await second.restore(taken.ref, blobs)
        found = await second.exec(
            "cat a/b/один a/link a/second && ./run && echo two >> a/second && cat a/b/один && ls -ld locked && chmod 700 locked && "
            "cat locked/file && touch new && test ! -e pipe && id -u",
            key="k2", timeout_s=20,
        )  # fmt: skip
        assert found.exit_code == 0, found.output
        lines = found.output.splitlines()
        assert lines[:6] == ["one", "one", "one", "ran", "one", "two"]
        assert lines[6].startswith("d---------")
        assert lines[7:] == ["hidden", str(os.getuid()) if kind in RUN_AS_US else "1000"]
    finally:
        await provider.aclose()


async def test_a_snapshot_of_a_box_in_which_a_command_runs(tmp_path: Path) -> None:
    """It waits for nothing: the command stands still meanwhile, and goes on as if nothing had been."""
    provider, blobs = BubblewrapProvider(Bubblewrap(), tmp_path / "boxes"), MemoryBlobs()
    try:
        box = await provider.create("r.1.b1")
        running = asyncio.create_task(box.exec("echo a > f; sleep 0.5; echo b >> f", key="k", timeout_s=10))
        await asyncio.sleep(0.1)
        taken = await box.snapshot(blobs)
        assert not running.done()
        (entry,) = taken.manifest.entries
        assert entry.size == 2
        assert (await running).exit_code == 0
        (entry,) = (await box.snapshot(blobs)).manifest.entries
        assert entry.size == 4
    finally:
        await provider.aclose()
