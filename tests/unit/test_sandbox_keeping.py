"""Keeping the files of a machine in which something runs: it stands still for as long as copying takes, and no longer."""

from __future__ import annotations

import asyncio
import itertools
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import cast

import pytest

from gym_bus.blobs import MemoryBlobs
from providers.sandboxes import Box, SandboxProvider
from providers.sandboxes.capabilities import WithDetached, WithSnapshots
from schemas.sandboxes import SandboxLimits
from tests.support.boxes import LOCAL, PAUSABLE, provider_of

LABEL = f"keeping.{os.getpid()}.b1"
FILL = "head -c 30000000 /dev/urandom >large; i=0; while [ $i -lt 300 ]; do echo $i >f$i; i=$((i + 1)); done"
TICK = "n=0; while [ $n -lt 400 ]; do n=$((n + 1)); read -r up rest </proc/uptime; echo $up; echo $n >count; sleep 0.005; done"
TICK_S = 0.02
"""The clock that is read has hundredths; a busy machine takes its time over 5 ms."""


class KeptBox(Box, WithSnapshots, WithDetached):
    """What the tests talk to."""


@pytest.fixture(params=PAUSABLE)
async def provider(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[SandboxProvider]:
    provider = await provider_of(request.param, tmp_path / "boxes", limits=SandboxLimits(output_bytes=1_000_000))
    yield provider
    await provider.aclose()


@pytest.fixture
async def box(provider: SandboxProvider) -> KeptBox:
    return cast("KeptBox", await provider.create(LABEL))


async def keep_once_while_busy(box: KeptBox) -> None:
    """Have the kernel take the box's processes into the group that stops them, which takes its time."""
    job = await box.start("sleep 30", key="k", timeout_s=60)
    await box.snapshot(MemoryBlobs())
    await box.stop(job)


async def test_what_runs_stands_still_for_the_copy_and_no_longer(box: KeptBox) -> None:
    """A process in the machine that looks at the clock all the time finds no longer gap than was told."""
    await box.exec(FILL, key="k", timeout_s=30)
    await keep_once_while_busy(box)
    ticking = asyncio.create_task(box.exec(TICK, key="k", timeout_s=60))
    await asyncio.sleep(0.5)
    taken = await box.snapshot(MemoryBlobs())
    assert not ticking.done(), "it does not wait for the command"
    result = await ticking
    assert result.exit_code == 0
    times = [float(line) for line in result.output.split()]
    assert len(times) == 400
    gap = max(b - a for a, b in itertools.pairwise(times))
    assert taken.paused_s is not None
    assert gap <= taken.paused_s * 1.1 + 5 * TICK_S
    assert gap >= taken.paused_s / 2 - 2 * TICK_S, (
        "what is told has the engine's time to stop it and to let it go as well"
    )
    assert not [entry.path for entry in taken.manifest.entries if entry.was_changing]


async def test_what_has_not_changed_takes_hardly_any_time(box: KeptBox) -> None:
    """The second pause is short: nothing is copied but what is new."""
    await box.exec(FILL, key="k", timeout_s=30)
    blobs = MemoryBlobs()
    job = await box.start("while :; do sleep 0.01; done", key="k", timeout_s=60)
    first = await box.snapshot(blobs)
    second = await box.snapshot(blobs, first.manifest)
    assert first.paused_s is not None
    assert second.paused_s is not None
    assert second.read_bytes == 0
    assert second.paused_s < first.paused_s
    await box.stop(job)
    assert (await box.snapshot(blobs, first.manifest)).paused_s is None, "nothing runs: nothing has to stand still"


@pytest.mark.parametrize("kind", LOCAL)
async def test_two_snapshots_at_once(kind: str, tmp_path: Path) -> None:
    """One waits for the other, and both are whole."""
    provider = await provider_of(kind, tmp_path / "boxes")
    box = cast("KeptBox", await provider.create(LABEL))
    await box.exec("echo 1 >file", key="k", timeout_s=10)
    blobs = MemoryBlobs()
    running = asyncio.create_task(box.exec("sleep 1", key="k", timeout_s=10))
    await asyncio.sleep(0.2)
    one, two = await asyncio.gather(box.snapshot(blobs), box.snapshot(blobs))
    assert one.ref == two.ref
    assert (await running).exit_code == 0
    await provider.aclose()
