# ruff: noqa: ASYNC240  tests look at what is left on this machine
"""What is made of the next bubblewrap box before anybody asks: it is of use, and where it is of none, nothing of it stays."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path

import pytest

from providers.sandboxes import CreateFailed, SandboxUnavailable, bubblewrap, bubblewrap_spare
from providers.sandboxes.bubblewrap import BubblewrapProvider
from providers.sandboxes.control_groups import BoxGroup, memory_hierarchy
from schemas.sandboxes import Bubblewrap


@pytest.fixture
async def provider(tmp_path: Path) -> AsyncIterator[BubblewrapProvider]:
    """A provider that has made two boxes already, without which there is no next one."""
    provider = BubblewrapProvider(Bubblewrap(), tmp_path / "boxes")
    try:
        for _ in range(2):
            await provider.check()
    except SandboxUnavailable as error:
        pytest.skip(str(error))
    yield provider
    await provider.aclose()


def rooms_of(provider: BubblewrapProvider) -> list[Path]:
    return [path for path in provider._rooms.own.iterdir() if path.is_dir()]


def groups_of(provider: BubblewrapProvider) -> list[Path]:
    hierarchy = memory_hierarchy() if os.getuid() == 0 else None
    return list(hierarchy.parent.glob(f"*{provider._rooms.own.name}/*/")) if hierarchy else []


def waiting() -> list[str]:
    """Return the processes of this one that wait to become a box."""
    found = []
    for pid in Path(f"/proc/{os.getpid()}/task/{os.getpid()}/children").read_text().split():
        words = Path(f"/proc/{pid}/cmdline").read_bytes()
        found += [pid] if b"read -r go" in words else []
    return found


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not condition():
            await asyncio.sleep(0.01)


async def test_what_nobody_asks_for_is_cleared_away_and_made_again_when_somebody_does(
    provider: BubblewrapProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A host knows a provider for each configuration, of which a set of tasks may have hundreds."""
    monkeypatch.setattr(bubblewrap_spare, "IDLE_S", 0.3)
    for label in ("a", "b"):
        box = await provider.create(label)
        await until(lambda: len(rooms_of(provider)) == 2)
        await box.destroy()
        await until(lambda: not rooms_of(provider))
        await until(lambda: not groups_of(provider))
        assert not waiting()
        assert str(provider._rooms.own) not in Path("/proc/self/mounts").read_text()


async def test_nothing_is_made_ahead_for_a_configuration_that_was_used_once(tmp_path: Path) -> None:
    provider = BubblewrapProvider(Bubblewrap(), tmp_path / "boxes")
    await provider.create("a")
    assert provider._spare._next is None
    await provider.create("b")
    assert provider._spare._next is not None
    await provider.aclose()


async def test_what_could_not_be_made_ahead_leaves_nothing(
    provider: BubblewrapProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither its room nor its group nor the process that was to become it; and boxes are made all the same."""
    first = provider._spare._next
    assert first
    await asyncio.wait([first])
    box = await provider.create("a")
    tried: list[Sequence[int]] = []

    def refuse(group: BoxGroup, pids: Sequence[int]) -> None:
        tried.append(pids)
        raise OSError("no room in the group")

    with monkeypatch.context() as patched:
        patched.setattr(BoxGroup, "add", refuse)
        if groups_of(provider):
            await until(lambda: bool(tried))
        await until(lambda: len(rooms_of(provider)) == 1)
        await until(lambda: len(groups_of(provider)) <= 1)
        assert not waiting()
    other = await provider.create("b")
    assert (await other.exec("echo hi", key="k", timeout_s=10)).output == "hi\n"
    await box.destroy()


async def test_closing_while_the_next_is_made_leaves_nothing(tmp_path: Path) -> None:
    for pause_s in (0, 0.006, 0.02):
        provider = BubblewrapProvider(Bubblewrap(), tmp_path / "boxes")
        for label in ("a", "b"):
            await provider.create(label)
        own = provider._rooms.own
        await asyncio.sleep(pause_s)
        await provider.aclose()
        assert not own.exists()
        assert not waiting()


async def test_one_that_was_stopped_is_left_aside(
    provider: BubblewrapProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever stopped it: the box is made anew, and nothing is left of the other."""
    monkeypatch.setattr(bubblewrap, "SPARE_STARTS_WITHIN_S", 0.5)
    await until(lambda: len(waiting()) == 1)
    await until(lambda: provider._spare._next is not None and provider._spare._next.done())
    (stopped,) = waiting()
    os.kill(int(stopped), signal.SIGSTOP)
    async with asyncio.timeout(20):
        box = await provider.create("a")
    assert (await box.exec("echo here", key="k", timeout_s=10)).output == "here\n"
    assert not Path(f"/proc/{stopped}").exists()


async def test_a_provider_that_is_closed_meanwhile_has_no_box_left(tmp_path: Path) -> None:
    """What was being made is waited for and destroyed; what comes later is refused."""
    provider = BubblewrapProvider(Bubblewrap(), tmp_path / "boxes")
    making = [asyncio.create_task(provider.create(label)) for label in ("a", "b")]
    await asyncio.sleep(0)
    await provider.aclose()
    assert [box.is_alive for box in await asyncio.gather(*making)] == [False, False]
    assert not provider._rooms.own.exists() or not rooms_of(provider)
    with pytest.raises(CreateFailed, match="is closed"):
        await provider.create("c")
