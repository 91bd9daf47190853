"""A gateway is kept while one is wanted, by whichever supervisor there is, and by none afterwards."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from gym_bus.gateway_file import GATEWAY
from gym_bus.kept_bus import KeptBus
from gym_bus.kept_gateway import KeptGateway, ask_for_gateway, give_up_gateway, is_gateway_wanted
from gym_bus.kept_process import KeptProcess, owner_pid
from gym_bus.status_file import host_lock, read_status
from gym_bus.supervisor import HOST_KINDS, Supervisor, host_command
from tests.unit.test_supervisor import FakeServer, child, no_provision, settings, starter, until


@asynccontextmanager
async def followed(tmp_path: Path) -> AsyncIterator[KeptGateway]:
    gateway = KeptGateway(tmp_path, starter(host_lock(tmp_path, GATEWAY), tmp_path / "g0.log"), 1)
    following = asyncio.ensure_future(gateway.follow())
    try:
        yield gateway
    finally:
        await gateway.stop()
        following.cancel()


def pid_of(tmp_path: Path) -> int | None:
    return owner_pid(host_lock(tmp_path, GATEWAY))


async def test_there_is_one_while_it_is_wanted(tmp_path: Path) -> None:
    """Not before, also after it was killed, and not when it was given up; it may be asked for again."""
    async with followed(tmp_path) as gateway:
        await asyncio.sleep(0.3)
        assert (pid_of(tmp_path), gateway.status()) == (None, {})
        for _ in range(2):
            ask_for_gateway(tmp_path)
            ask_for_gateway(tmp_path)
            await until(lambda: pid_of(tmp_path))
            first = pid_of(tmp_path)
            assert first is not None
            os.kill(first, signal.SIGKILL)
            await until(lambda first=first: pid_of(tmp_path) not in {first, None})  # type: ignore[misc]
            assert gateway.status()[GATEWAY]["restarts"] == 1
            give_up_gateway(tmp_path)
            give_up_gateway(tmp_path)
            await until(lambda: gateway.status() == {})
            assert pid_of(tmp_path) is None


async def test_one_that_runs_is_adopted(tmp_path: Path) -> None:
    """The next supervisor finds the wish, and the process."""
    lock = host_lock(tmp_path, GATEWAY)
    orphan = starter(lock, tmp_path / "g0.log")()
    await until(lambda: owner_pid(lock))
    ask_for_gateway(tmp_path)
    async with followed(tmp_path) as gateway:
        await until(lambda: gateway.status().get(GATEWAY, {}).get("pid") == orphan.pid)
        assert gateway.status()[GATEWAY]["state"] == "running (adopted)"
    orphan.wait()
    assert pid_of(tmp_path) is None


async def test_one_that_nobody_asked_for_is_left_alone(tmp_path: Path) -> None:
    """It was started by hand."""
    lock = host_lock(tmp_path, GATEWAY)
    process = starter(lock, tmp_path / "g0.log")()
    await until(lambda: owner_pid(lock))
    async with followed(tmp_path) as gateway:
        await asyncio.sleep(0.3)
        assert gateway.status() == {}
    assert process.poll() is None
    process.kill()
    process.wait()


async def test_what_was_told_to_stop_while_it_waits_is_not_started_again(tmp_path: Path) -> None:
    """Between two lives there is a wait, in which the end may come."""
    starts = 0

    def falls() -> None:
        nonlocal starts
        starts += 1
        raise FileNotFoundError

    process = KeptProcess("x", tmp_path / "lock", falls)  # type: ignore[arg-type]
    keeping = asyncio.ensure_future(process.keep())
    await until(lambda: starts)
    await process.stop(0.1)
    await asyncio.wait_for(keeping, 5)
    assert starts == 1


def test_the_gateway_is_started_as_itself() -> None:
    """The table of the supervisor's children."""
    kinds = {name: host_command(name)[4] for name in ("h0", "h7", "p0", "g0")}
    assert kinds == {"h0": HOST_KINDS, "h7": HOST_KINDS, "p0": "projector", "g0": "gateway"}


@pytest.mark.parametrize("is_idle", [True, False])
async def test_a_supervisor_keeps_it_and_ends_it_with_the_others(tmp_path: Path, *, is_idle: bool) -> None:
    """Its status has it; the wish outlives a supervisor that was told to end, and ends with one that had nothing to do."""
    ended = asyncio.Event()

    async def idle() -> bool:
        return is_idle and ended.is_set()

    def command(name: str) -> Sequence[str]:
        return child(host_lock(tmp_path, name))

    supervisor = Supervisor(settings(tmp_path, idle_exit_s=1.1), command, idle, os.environ)
    ask_for_gateway(tmp_path)
    running = asyncio.ensure_future(supervisor.run(lambda s: KeptBus(s, FakeServer(), no_provision)))
    await until(lambda: (read_status(tmp_path) or {}).get("processes", {}).get(GATEWAY, {}).get("pid"))
    ended.set()
    if not is_idle:
        supervisor.stop()
    await asyncio.wait_for(running, 15)
    assert [owner_pid(host_lock(tmp_path, name)) for name in ("h0", "p0", "g0")] == [None] * 3
    assert is_gateway_wanted(tmp_path) != is_idle
