# ruff: noqa: ASYNC240  tests look at /proc and at control groups
"""`pause`: everything in a machine stops where it is and goes on later; on each provider that declares it."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import cast

import pytest

from gym_bus.errors import Permanent
from providers.sandboxes import Box, BoxLost, SandboxProvider
from providers.sandboxes.capabilities import WithDetached, WithFiles, WithPause
from providers.sandboxes.freezing import SignalFreezer
from providers.sandboxes.processes import children, descendants, kill
from tests.support.boxes import PAUSABLE, processes_with, provider_of, unique_sleep, until_gone
from tests.support.groups import groups_of

LABEL = f"pause.{os.getpid()}.b1"
TICK = "n=0; while :; do n=$((n + 1)); echo $n; sleep 0.02; done"


class PausableBox(Box, WithPause, WithDetached, WithFiles):
    """What the tests talk to."""


@pytest.fixture(params=[*PAUSABLE, "bubblewrap without groups"])
async def provider(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[SandboxProvider]:
    if request.param == "bubblewrap without groups":
        for name in ("standing_shell.unified_hierarchy", "bubblewrap.memory_hierarchy"):
            monkeypatch.setattr(f"providers.sandboxes.{name}", lambda: None)
    provider = await provider_of(request.param.partition(" ")[0], tmp_path / "boxes")
    assert "pause" in provider.capabilities
    yield provider
    await provider.aclose()


@pytest.fixture
async def box(provider: SandboxProvider) -> PausableBox:
    box = await provider.create(LABEL)
    assert isinstance(box, WithPause)
    return cast("PausableBox", box)


async def ticks(box: WithDetached, job: str) -> int:
    return (await box.status(job)).output_bytes


async def test_everything_stops_and_goes_on_where_it_was(box: PausableBox) -> None:
    """Not a step is made meanwhile, by nothing in the box; afterwards not one is missing. Any number of times."""
    job = await box.start(TICK, key="k", timeout_s=60)
    for _ in range(3):
        before = await ticks(box, job)
        async with asyncio.timeout(10):
            while await ticks(box, job) == before:
                await asyncio.sleep(0.02)
        await box.pause()
        await box.pause()
        await asyncio.sleep(0.1)  # what was printed before arrives
        stopped = await ticks(box, job)
        await asyncio.sleep(0.5)
        assert await ticks(box, job) == stopped
        await box.resume()
        await box.resume()
        async with asyncio.timeout(10):
            while await ticks(box, job) == stopped:
                await asyncio.sleep(0.02)
    await box.stop(job)
    lines = (await box.output_of(job)).decode().splitlines()
    assert lines == [str(n) for n in range(1, len(lines) + 1)]
    assert (await box.exec("echo on", key="k", timeout_s=10)).output == "on\n"


async def test_who_starts_processes_all_the_time_is_stopped_as_well(box: PausableBox) -> None:
    await box.start("while :; do (:) & (: | :) & wait; echo; done", key="k", timeout_s=60)
    job = await box.start("while :; do (sleep 0.01 &); sleep 0.01; echo; done", key="k", timeout_s=60)
    await asyncio.sleep(0.3)
    await box.pause()
    await asyncio.sleep(0.1)
    stopped = await ticks(box, job)
    await asyncio.sleep(0.4)
    assert await ticks(box, job) == stopped
    await box.resume()
    async with asyncio.timeout(10):
        while await ticks(box, job) == stopped:
            await asyncio.sleep(0.02)


async def test_who_had_stopped_before_stays_stopped(box: PausableBox) -> None:
    """To resume is not to continue what the agent itself had stopped."""
    job = await box.start(f"({TICK}) & echo pid $!; kill -STOP $!; sleep 60", key="k", timeout_s=60)
    await asyncio.sleep(0.5)
    stopped = await ticks(box, job)
    await box.pause()
    await box.resume()
    await asyncio.sleep(0.5)
    assert await ticks(box, job) == stopped
    pid = next(line for line in (await box.output_of(job)).decode().splitlines() if "pid" in line).split()[1]
    assert (await box.exec(f"kill -CONT {pid}", key="k", timeout_s=10)).exit_code == 0
    async with asyncio.timeout(10):
        while await ticks(box, job) == stopped:
            await asyncio.sleep(0.02)


async def test_what_is_asked_meanwhile_is_refused_clearly(box: PausableBox, tmp_path: Path) -> None:
    await box.pause()
    (tmp_path / "source").write_text("x")
    for asked in (
        box.exec("touch seen", key="k", timeout_s=5),
        box.start("touch seen", key="k", timeout_s=5),
        box.put(tmp_path / "source", "seen"),
        box.get("seen", tmp_path / "target", max_bytes=10),
    ):
        with pytest.raises(Permanent, match=r"is paused.*resume it first"):
            await asked
    assert box.is_alive
    await box.resume()
    assert (await box.exec("ls", key="k", timeout_s=10)).output == ""


async def test_what_waits_for_a_command_is_refused_if_a_pause_comes_between(box: PausableBox, tmp_path: Path) -> None:
    """A file that is the first to go beside commands, asked for before the pause: refused or carried, and the box goes on."""
    (tmp_path / "source").write_text("x")
    running = asyncio.ensure_future(box.exec("sleep 0.5", key="k", timeout_s=10))
    await asyncio.sleep(0.1)
    paused, carried = asyncio.ensure_future(box.pause()), asyncio.ensure_future(box.put(tmp_path / "source", "file"))
    await asyncio.gather(running, paused)
    await box.resume()
    [result] = await asyncio.gather(carried, return_exceptions=True)
    assert result is None or (isinstance(result, Permanent) and "is paused" in str(result))
    assert (await box.exec("echo on", key="k", timeout_s=10)).output == "on\n"


async def test_it_waits_for_the_command_that_runs(box: PausableBox) -> None:
    running = asyncio.ensure_future(box.exec("sleep 0.5; echo whole", key="k", timeout_s=10))
    await asyncio.sleep(0.1)
    await box.pause()
    assert running.done()
    assert (await running).output == "whole\n"
    await box.resume()


async def test_a_paused_box_can_be_destroyed(provider: SandboxProvider, box: PausableBox) -> None:
    sleep = unique_sleep()
    await box.exec(f"{sleep} >/dev/null 2>&1 &", key="k", timeout_s=10)
    await box.pause()
    async with asyncio.timeout(8):
        await box.destroy()
    assert await until_gone(sleep)
    for asked in (box.pause(), box.resume(), box.exec("true", key="k", timeout_s=5)):
        with pytest.raises(BoxLost):
            await asked
    assert (await (await provider.create(LABEL)).exec("true", key="k", timeout_s=10)).exit_code == 0


PAUSED_OWNER = """
import asyncio, sys
from pathlib import Path
from providers.sandboxes import make_provider
from schemas.sandboxes import Bubblewrap

async def main():
    provider = make_provider(Bubblewrap(), Path(sys.argv[1]))
    box = await provider.create("paused.b1")
    await box.exec(f"({sys.argv[2]} >/dev/null 2>&1 &)", key="k", timeout_s=10)
    await box.pause()
    print("ready", flush=True)
    await asyncio.sleep(60)

asyncio.run(main())
"""


async def test_a_paused_box_dies_with_its_owner_and_leaves_no_group(tmp_path: Path) -> None:
    sleep, root = unique_sleep(), Path(__file__).resolve().parents[2]
    provider = await provider_of("bubblewrap", tmp_path / "boxes")
    owner = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", PAUSED_OWNER, str(tmp_path / "boxes"), sleep),
        cwd=root,
        stdout=subprocess.PIPE,
        env={"PYTHONPATH": str(root)},
    )
    assert owner.stdout is not None
    assert await owner.stdout.readline() == b"ready\n"
    assert processes_with(sleep)
    owner.kill()
    await owner.wait()
    assert await until_gone(sleep)
    assert await provider.reap() == 1
    await provider.aclose()
    assert groups_of(owner.pid) == []


async def test_signals_stop_and_continue_exactly_what_they_stopped() -> None:
    """On processes of our own: one that was stopped before, one that runs, one that forks."""
    script = "sleep 60 & kill -STOP $!; (while :; do (:); done) & exec sleep 60"
    process = await asyncio.create_subprocess_exec("/bin/sh", "-c", script)
    try:
        await asyncio.sleep(0.3)
        [stopped, forking] = children(process.pid)
        freezer = SignalFreezer(lambda: [process.pid, *descendants(process.pid)])
        await freezer.freeze()
        assert {state(pid) for pid in (process.pid, *descendants(process.pid))} <= {"T", "Z"}
        await freezer.thaw()
        await asyncio.sleep(0.1)
        assert (state(stopped), state(process.pid)) == ("T", "S")
        assert state(forking) != "T"
    finally:
        for pid in (*descendants(process.pid), process.pid):
            kill(pid)
        await process.wait()


def state(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
