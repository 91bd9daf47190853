"""Machines are let in as long as there is room for what they may use; who waits is told for what."""

from __future__ import annotations

import asyncio

import pytest

from actors.sandbox.admission import Admission
from providers.sandboxes import CreateFailed, SandboxUnavailable
from schemas.sandboxes import E2B, Bubblewrap, Docker, Inline, SandboxConfig, SandboxLimits


def box(memory_mib: int = 100, cpus: float | None = None, disk_mib: int | None = None) -> SandboxConfig:
    return Bubblewrap(limits=SandboxLimits(memory_mib=memory_mib, cpus=cpus, disk_mib=disk_mib))


async def test_without_limits_everybody_is_let_in() -> None:
    """What machines may use is a bound; nobody said what there is."""
    admission = Admission()
    for n in range(1000):
        await admission.enter(f"b{n}", box(10_000, cpus=8))


async def test_who_came_first_is_let_in_first() -> None:
    """A small one does not overtake a large one, which would else wait for ever."""
    admission = Admission(memory_mib=250)
    await admission.enter("a", box(200))
    order: list[str] = []

    async def come(name: str, memory_mib: int) -> None:
        await admission.enter(name, box(memory_mib))
        order.append(name)

    async with asyncio.TaskGroup() as group:
        for name, memory_mib in (("large", 240), ("small", 20), ("tiny", 16)):
            group.create_task(come(name, memory_mib))
        await asyncio.sleep(0.01)
        assert order == []
        admission.leave("a")
        await asyncio.sleep(0.01)
        assert order == ["large"]
        admission.leave("large")
    assert order == ["large", "small", "tiny"]


async def test_memory_of_files_counts_as_well() -> None:
    """A bounded workspace is in memory."""
    with pytest.raises(SandboxUnavailable, match=r"wants 300 MiB of 250 \(GYM_BUS_BOX_MEMORY_MIB\)"):
        await Admission(memory_mib=250).enter("a", box(200, disk_mib=100))


async def test_what_never_fits_is_refused_at_once() -> None:
    """With what it wants, and where the limit is set."""
    admission = Admission(cpus=2)
    with pytest.raises(SandboxUnavailable, match=r"wants 4 processors of 2 \(GYM_BUS_BOX_CPUS\)"):
        await admission.enter("a", Docker(image="x", limits=SandboxLimits(cpus=4)))
    await admission.enter("b", Docker(image="x", limits=SandboxLimits(cpus=2)))


async def test_waiting_has_an_end_that_names_the_cause() -> None:
    """Who gave up, or was cancelled, takes no room."""
    admission = Admission(memory_mib=250, waits_s=0.05)
    await admission.enter("a", box(200))
    with pytest.raises(CreateFailed, match=r"1 sandboxes hold 200 MiB .* with it they want 300 MiB of 250"):
        await admission.enter("b", box(100))
    waiting = asyncio.create_task(admission.enter("c", box(100)))
    await asyncio.sleep(0.01)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    admission.leave("a")
    admission.leave("a")
    await admission.enter("d", box(250))


@pytest.mark.parametrize("elsewhere", [Inline(), E2B()])
async def test_what_is_not_here_needs_nothing_here(elsewhere: SandboxConfig) -> None:
    """Machines at somebody else's, and those that are none."""
    admission = Admission(memory_mib=16, waits_s=0.05)
    for n in range(10):
        await admission.enter(f"b{n}", elsewhere)
