# ruff: noqa: ASYNC240  tests look at /proc
"""Commands that do their worst, on every provider of this machine: bounded, told what happened, and nothing of them left."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path
from typing import cast

import pytest

from gym_bus.errors import Permanent
from providers.sandboxes import Box, BoxLost, SandboxProvider, SandboxUnavailable, make_provider
from providers.sandboxes.capabilities import WithFiles
from providers.sandboxes.control_groups import memory_hierarchy
from providers.sandboxes.rooms import reachable_parent
from schemas.sandboxes import SandboxLimits, UnsafeLocal
from tests.support.boxes import (
    LOCAL,
    RUN_AS_US,
    config_of,
    process_ids,
    processes_with,
    provider_of,
    unique_sleep,
    until_gone,
)
from tests.support.groups import groups_of

LABEL = f"rough.{os.getpid()}.b1"
LIMITS = SandboxLimits(memory_mib=128, processes=32, file_mib=64, output_bytes=4096)
ROOT = Path(__file__).resolve().parents[2]
BOMBS = ["f() { f | f & f; }; f", "while :; do (sleep 1000 &); done", "f() { setsid sh -c 'sleep 9' & f; }; f"]
BOUNDED_BOMB = "n=0; while [ $n -lt 200 ]; do n=$((n + 1)); (setsid sleep 1000 &); done; sleep 60"


class RoughBox(Box, WithFiles):
    """What the tests talk to."""


@pytest.fixture(params=LOCAL)
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def left_of(work: Path) -> tuple[list[str], list[str], list[str]]:
    """Return the mounts, files and control groups of boxes under `work` that are there now."""
    places = {str(work), str(reachable_parent(work))}
    mounts = [line for line in Path("/proc/self/mounts").read_text().splitlines() if any(p in line for p in places)]
    files = [str(path) for place in places for path in Path(place).glob("p*/*")]
    return mounts, files, [group for group in groups_of(os.getpid()) if Path(group).parent.name.startswith("gym-bus-p")]


@pytest.fixture
async def provider(kind: str, tmp_path: Path) -> AsyncIterator[SandboxProvider]:
    """After each test nothing is there that was not there before: no process of it, mount, directory, control group, open file."""
    descriptors = len(list(Path("/proc/self/fd").iterdir()))
    processes = set(process_ids())
    provider = await provider_of(kind, tmp_path / "boxes", None, LIMITS)
    yield provider
    await provider.aclose()
    assert left_of(tmp_path / "boxes") == ([], [], [])
    async with asyncio.timeout(10):
        while mine := [line for line in children_of_this_process() if line[0] not in processes]:
            await asyncio.sleep(0.05)
    assert not mine
    assert len(list(Path("/proc/self/fd").iterdir())) <= descriptors + 2  # an engine's connections close in a moment


def children_of_this_process() -> list[tuple[str, str]]:
    found = []
    for pid in process_ids():
        with suppress(OSError):
            status = Path(f"/proc/{pid}/stat").read_text()
            state, parent = status.rpartition(")")[2].split()[:2]
            if parent == str(os.getpid()) and state != "Z":
                found.append((pid, status))
    return found


@pytest.fixture
async def box(provider: SandboxProvider) -> RoughBox:
    return cast("RoughBox", await provider.create(LABEL))


async def goes_on(box: Box) -> None:
    done = await box.exec("echo on", key="k", timeout_s=15)
    assert (done.exit_code, done.output) == (0, "on\n")


async def test_200_mb_of_output(box: RoughBox) -> None:
    done = await box.exec("echo first; head -c 200000000 /dev/zero; echo last", key="k", timeout_s=60)
    assert (done.exit_code, done.ended_by, done.truncated, done.output_bytes) == (0, "exit", True, 200_000_011)
    assert (done.output[:6], done.output[-5:]) == ("first\n", "last\n")
    assert len(done.output.encode()) <= LIMITS.output_bytes
    await goes_on(box)


async def test_endless_output(box: RoughBox) -> None:
    done = await box.exec("yes", key="k", timeout_s=1)
    assert (done.exit_code, done.ended_by, done.truncated) == (None, "timeout", True)
    assert done.output_bytes > 10**6
    assert len(done.output.encode()) <= LIMITS.output_bytes
    assert done.duration_s < 10
    await goes_on(box)


@pytest.mark.parametrize("command", ["head -c 3000000 /dev/urandom", "printf '\\000\\377\\033[2J\\r\\b\\xc3'; exit 3"])
async def test_binary_output(box: RoughBox, command: str) -> None:
    """It becomes text within its bound, whatever it was."""
    done = await box.exec(command, key="k", timeout_s=20)
    assert done.exit_code in {0, 3}
    assert len(done.output.encode()) <= LIMITS.output_bytes
    await goes_on(box)


@pytest.mark.parametrize("bomb", BOMBS)
@pytest.mark.alone
async def test_a_fork_bomb(kind: str, box: RoughBox, bomb: str) -> None:
    """Bounded where processes are; where they are not a bomb has an end of its own."""
    if kind in RUN_AS_US:
        bomb = BOUNDED_BOMB
    began = time.monotonic()
    done = await box.exec(bomb, key="k", timeout_s=1)
    assert done.ended_by != "exit" or done.exit_code != 0
    again = await box.exec("while :; do :; done", key="k", timeout_s=0.3)
    assert again.ended_by in {"timeout", "signal"}, "there may be no process for it"
    assert time.monotonic() - began < 40
    await goes_on(box)
    if kind not in RUN_AS_US:
        assert int((await box.exec("ls -d /proc/[0-9]* | wc -l", key="k", timeout_s=10)).output) <= 8


@pytest.mark.skipif(os.getuid() != 0, reason="only root can mount a file system")
async def test_a_full_disk(kind: str, tmp_path: Path) -> None:
    """All files of a workspace together are bounded, many small ones too; that is said, ours are refused, and room can be made."""
    provider = await provider_of(kind, tmp_path / "boxes", None, LIMITS.model_copy(update={"disk_mib": 8}))
    try:
        box = cast("RoughBox", await provider.create(LABEL))
        fill = "for n in 1 2 3 4 5 6 7 8 9 10; do head -c 1000000 /dev/zero | cat >f$n || exit 4; done"
        done = await box.exec(fill, key="k", timeout_s=30)
        assert (done.exit_code, done.ended_by) == (4, "exit")
        assert "No space left on device" in done.output
        (tmp_path / "source").write_bytes(bytes(3_000_000))
        with pytest.raises(Permanent, match="No space left on device"):
            await box.put(tmp_path / "source", "more")
        assert (await box.exec("ls -A | grep gym-bus; rm f1 f2 f3 f4", key="k", timeout_s=10)).output == ""
        await box.put(tmp_path / "source", "more")
        assert (await box.exec("wc -c <more", key="k", timeout_s=10)).output == "3000000\n"
        names = await box.exec("n=0; while :; do n=$((n + 1)); : >s$n || exit 5; done", key="k", timeout_s=60)
        assert names.exit_code in {1, 2, 5}, names
        assert int((await box.exec("ls | wc -l", key="k", timeout_s=10)).output) < 3000
        await goes_on(box)
    finally:
        await provider.aclose()
    assert left_of(tmp_path / "boxes") == ([], [], [])


async def test_a_large_file(box: RoughBox) -> None:
    done = await box.exec("head -c 200000000 /dev/zero >big", key="k", timeout_s=30)
    assert (done.exit_code, done.ended_by) == (153, "signal")
    assert int((await box.exec("wc -c <big", key="k", timeout_s=10)).output) == LIMITS.file_mib * 1024 * 1024
    await goes_on(box)


async def test_a_child_that_daemonises(provider: SandboxProvider, box: RoughBox) -> None:
    """It holds up neither the result nor the next command, and ends with the box."""
    sleep = unique_sleep()
    daemon = f"(setsid sh -c '(trap \"\" HUP TERM; cd /; exec {sleep}) </dev/null >/dev/null 2>&1 &' &)"
    done = await box.exec(f"{daemon}; echo started", key="k", timeout_s=10)
    assert (done.exit_code, done.output) == (0, "started\n")
    await goes_on(box)
    async with asyncio.timeout(5):
        while not processes_with(sleep):
            await asyncio.sleep(0.02)
    await box.destroy()
    assert await until_gone(sleep)
    assert not box.is_alive
    assert await provider.create(LABEL)


async def test_a_hang_that_ignores_all_it_can(box: RoughBox) -> None:
    sleep = unique_sleep()
    done = await box.exec(
        f"trap '' HUP INT TERM QUIT USR1 USR2 PIPE ALRM; echo hangs; {sleep} & while :; do :; done",
        key="k",
        timeout_s=0.5,
    )
    assert (done.exit_code, done.ended_by, done.output) == (None, "timeout", "hangs\n")
    assert done.duration_s < 8
    assert await until_gone(sleep)
    await goes_on(box)


async def test_no_two_endings_look_alike(kind: str, box: RoughBox) -> None:
    """A missing command, a signal, want of memory, a deadline, a failure, and a sandbox that is dead."""
    is_memory_bounded = kind not in RUN_AS_US and (
        kind != "bubblewrap" or (os.getuid() == 0 and memory_hierarchy() is not None)
    )
    memory = "head -c 400000000 /dev/zero | tail >/dev/null; exit 137"
    endings = [
        (done.ended_by, done.exit_code)
        for done in [
            await box.exec("no-such-command", key="k", timeout_s=10),
            await box.exec("kill -SEGV $$", key="k", timeout_s=10),
            await box.exec("sleep 60", key="k", timeout_s=0.2),
            await box.exec("exit 1", key="k", timeout_s=10),
            *([] if not is_memory_bounded else [await box.exec(memory, key="k", timeout_s=30)]),
        ]
    ]
    wanted: list[tuple[str, int | None]] = [
        ("exit", 127),
        ("signal", 139),
        ("timeout", None),
        ("exit", 1),
        ("out_of_memory", 137),
    ]
    assert endings == wanted[: len(endings)]
    await box.destroy()
    with pytest.raises(BoxLost):
        await box.exec("true", key="k", timeout_s=10)


OWNER = """
import asyncio, json, sys
from pathlib import Path
from providers.sandboxes import make_provider
from schemas.config import RunConfig

async def main():
    config = RunConfig.model_validate({"taskset": {"type": "jsonl", "jsonl_fpath": "none"}, "sandbox": json.loads(sys.argv[1])})
    provider = make_provider(config.sandbox, Path(sys.argv[2]))
    box = await provider.create(sys.argv[4])
    await box.start(f"setsid {sys.argv[3]}", key="k", timeout_s=100)
    await box.exec(f"echo x >file; (setsid {sys.argv[3]} &)", key="k", timeout_s=10)
    print("ready", flush=True)
    await box.exec(f"{sys.argv[3]}", key="k", timeout_s=60)

asyncio.run(main())
"""


async def test_a_killed_owner_leaves_no_mount_no_job_and_no_group(kind: str, tmp_path: Path) -> None:
    """Whatever it held: a bounded workspace, a job that left its session, a command; the next process removes what is not a process."""
    sleep, work = unique_sleep(), tmp_path / "boxes"
    limits = LIMITS.model_copy(update={"disk_mib": 8 if os.getuid() == 0 else None})
    owner = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", OWNER, config_of(kind, None, limits).model_dump_json(), str(work), sleep, LABEL),
        cwd=ROOT,
        stdout=subprocess.PIPE,
        env={"PYTHONPATH": str(ROOT)},
    )
    assert owner.stdout is not None
    assert await owner.stdout.readline() == b"ready\n"
    async with asyncio.timeout(10):
        while sum(line.strip() == sleep for line in processes_with(sleep)) < 3:
            await asyncio.sleep(0.02)
    owner.kill()
    await owner.wait()
    assert await until_gone(sleep), processes_with(sleep)
    provider = make_provider(config_of(kind, None, limits), work)
    assert await provider.reap() == 1
    await provider.aclose()
    assert left_of(work)[:2] == ([], [])
    assert groups_of(owner.pid) == []


@pytest.mark.skipif(os.getuid() == 0, reason="root can")
async def test_only_root_can_bound_a_workspace(tmp_path: Path) -> None:
    provider = make_provider(UnsafeLocal(limits=SandboxLimits(disk_mib=8)), tmp_path)
    with pytest.raises(SandboxUnavailable, match="disk_mib needs root"):
        await provider.create(LABEL)
    await provider.aclose()
