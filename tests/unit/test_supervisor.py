"""The supervisor keeps its processes alive, adopts what runs, and ends everything when told to."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from gym_bus.errors import Retryable
from gym_bus.kept_bus import KeptBus
from gym_bus.kept_process import Backoff, KeptProcess, children_environment, open_log, owner_pid, spawn_detached
from gym_bus.locks import try_lock
from gym_bus.server import BusAddress
from gym_bus.settings import Settings
from gym_bus.status_file import host_lock, read_status
from gym_bus.supervisor import Supervisor, take_lock

ROOT = Path(__file__).resolve().parents[2]
CHILD = """
import os, signal, sys, time
sys.path.insert(0, {root!r})
from pathlib import Path
from gym_bus.locks import try_lock, write_owner
lock = try_lock(Path(sys.argv[1]))
if lock is None: sys.exit(1)
write_owner(lock, f"host x pid {{os.getpid()}}")
if {stubborn}: signal.signal(signal.SIGTERM, signal.SIG_IGN)
else: signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
time.sleep(60)
"""


class FakeServer:
    """A server in memory; `says` is what its health check says."""

    def __init__(self) -> None:
        self.is_up = False
        self.starts = 0
        self.stops = 0
        self.says = (True, "ok")
        self.refuses = 0
        self.size: tuple[int, int] | None = None

    def ensure(self, store_max_bytes: int | None = None) -> BusAddress:
        """Start it, or refuse as often as told to."""
        if self.refuses:
            self.refuses -= 1
            raise Retryable("the port is taken")
        self.starts += not self.is_up
        self.is_up = True
        return BusAddress("nats://here", {}, None, 1)

    def address(self) -> BusAddress | None:
        """Return an address while it is up."""
        return BusAddress("nats://here", {}, None, 1) if self.is_up else None

    def health(self) -> tuple[bool, str]:
        """Return what it was told to say."""
        return self.says

    def fill(self) -> tuple[int, int] | None:
        """Return what it was told to hold."""
        return self.size

    def stop(self, *, kill: bool = False) -> bool:
        """End it."""
        self.stops += 1
        self.is_up = False
        return True


async def no_provision(_: BusAddress) -> None:
    """There is nothing to create."""


async def until(condition: Callable[[], object], timeout_s: float = 10.0) -> None:
    async with asyncio.timeout(timeout_s):
        while not condition():
            await asyncio.sleep(0.005)


def child(lock: Path, *, stubborn: bool = False) -> Sequence[str]:
    return (sys.executable, "-c", CHILD.format(root=str(ROOT), stubborn=stubborn), str(lock))


def starter(lock: Path, log: Path, *, stubborn: bool = False) -> Callable[[], subprocess.Popen[bytes]]:
    return lambda: spawn_detached(child(lock, stubborn=stubborn), os.environ, log)


@asynccontextmanager
async def kept(tmp_path: Path, *, stubborn: bool = False) -> AsyncIterator[KeptProcess]:
    lock = tmp_path / "lock"
    process = KeptProcess("x", lock, starter(lock, tmp_path / "x.log", stubborn=stubborn))
    keeping = asyncio.ensure_future(process.keep())
    try:
        await until(lambda: owner_pid(lock))
        yield process
    finally:
        await process.stop(0.2)
        await asyncio.wait_for(keeping, 10)


def settings(tmp_path: Path, **values: Any) -> Settings:
    return Settings(data_dir=tmp_path, hosts=1, drain_s=1, **values)


def test_backoff_doubles_and_is_bounded() -> None:
    """What falls over at once is started ever more slowly, never faster than every 0.2 s."""
    backoff = Backoff()
    waits = [backoff.after(0.1, 1) for _ in range(9)]
    assert waits == [0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 10.0, 10.0, 10.0]


@pytest.mark.parametrize(("lived_s", "code", "wanted"), [(31, 1, 0.2), (5, 1, 0.8), (5, -9, 0.2), (0.1, -9, 0.8)])
def test_backoff_is_short_again_after_a_life(lived_s: float, code: int, wanted: float) -> None:
    """Thirty seconds of life, or two if it was killed from outside, are enough."""
    backoff = Backoff()
    backoff.after(0.1, 1)
    backoff.after(0.1, 1)
    assert backoff.after(lived_s, code) == wanted


@pytest.mark.alone
async def test_a_killed_process_is_started_again_soon(tmp_path: Path) -> None:
    """Within 0.3 s there is another one."""
    async with kept(tmp_path) as process:
        first = process.pid
        assert first
        os.kill(first, signal.SIGKILL)
        killed_at = time.monotonic()
        await until(lambda: process.pid not in {first, None})
        assert time.monotonic() - killed_at < 0.6
        assert process.restarts == 1
        assert process.last_exit == -signal.SIGKILL


async def test_a_running_process_is_adopted_and_not_doubled(tmp_path: Path) -> None:
    """A new supervisor finds what the old one left by its lock, and starts it again only when it ends."""
    lock = tmp_path / "lock"
    orphan = starter(lock, tmp_path / "x.log")()
    await until(lambda: owner_pid(lock))
    async with kept(tmp_path) as process:
        await until(lambda: process.pid)
        assert (process.pid, process.state) == (orphan.pid, "running (adopted)")
        orphan.kill()
        orphan.wait()
        await until(lambda: process.state == "running")
        assert process.restarts == 1


@pytest.mark.alone
async def test_who_does_not_drain_is_killed(tmp_path: Path) -> None:
    """Stopping is bounded."""
    async with kept(tmp_path, stubborn=True) as process:
        began = time.monotonic()
        await process.stop(0.3)
        assert 0.3 <= time.monotonic() - began < 3
    assert owner_pid(tmp_path / "lock") is None


def test_children_see_settings_and_no_secrets(tmp_path: Path) -> None:
    """Hosts read keys by name; a sandbox started by one cannot find them in its environment."""
    environ = {"GYM_BUS_BUS_PASSWORD": "p", "OPENAI_API_KEY": "k", "HF_TOKEN": "t", "PATH": "/bin", "AWS_SECRET_X": "s"}
    seen = children_environment(environ, tmp_path)
    assert seen == {"GYM_BUS_BUS_PASSWORD": "p", "PATH": "/bin", "GYM_BUS_DATA_DIR": str(tmp_path)}


def test_a_large_log_is_set_aside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Logs do not grow for ever."""
    monkeypatch.setattr("gym_bus.kept_process.LOG_MAX_BYTES", 10)
    path = tmp_path / "h0.log"
    path.write_text("x" * 11)
    os.close(open_log(path))
    assert path.read_text() == ""
    assert (tmp_path / "h0.log.1").read_text() == "x" * 11


async def test_the_bus_is_started_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that ended is started, and its trouble is told meanwhile."""
    server, told = FakeServer(), list[str | None]()
    bus = KeptBus(settings(tmp_path), server, no_provision)
    say = bus._say
    monkeypatch.setattr(bus, "_say", lambda state, problem: (told.append(problem), say(state, problem)))
    keeping = asyncio.ensure_future(bus.keep())
    await until(lambda: bus.status()["state"] == "running")
    server.refuses, server.is_up = 1, False
    await until(lambda: server.starts == 2 and bus.status()["state"] == "running")
    assert told == [None, "the bus has ended and is started again", "the port is taken", None]
    keeping.cancel()


@pytest.mark.parametrize(("room", "restarts", "state"), [(0, 1, "full"), (2**60, 0, "full")])
async def test_a_server_that_froze_on_a_full_disk_is_restarted_when_there_is_room(
    tmp_path: Path, room: int, restarts: int, state: str
) -> None:
    """Not before: it would freeze again."""
    server = FakeServer()
    bus = KeptBus(settings(tmp_path, store_min_free_bytes=room), server, no_provision)
    bus.address = server.ensure()
    server.says = (False, "JetStream stream 'GYM_EVT_0' write error: no space left on device")
    await bus.look_at_store()
    assert (server.stops, bus.store["state"]) == (restarts, state)


@pytest.mark.parametrize(("held", "state"), [(899, "ok"), (900, "full"), (1000, "full")])
async def test_a_log_near_its_limit_is_a_full_store(held: int, state: str, tmp_path: Path) -> None:
    """The disk has room and the server is well, and still nothing more can be stored: that is said, with what to do."""
    server = FakeServer()
    bus = KeptBus(settings(tmp_path, store_min_free_bytes=0), server, no_provision)
    bus.address = server.ensure()
    server.size = (held, 1000)
    await bus.look_at_store()
    assert (server.stops, bus.store["state"]) == (0, state)
    assert state == "ok" or f"{held:,} of at most 1,000 bytes" in bus.store["reason"]


async def test_everything_is_kept_and_stopped_in_order(tmp_path: Path) -> None:
    """Hosts, projector and bus come up, the status file says so, and nothing is left after a stop."""
    server = FakeServer()

    async def never_idle() -> bool:
        return False

    def command(name: str) -> Sequence[str]:
        return child(host_lock(tmp_path, name))

    supervisor = Supervisor(settings(tmp_path), command, never_idle, os.environ)
    (tmp_path / "supervisor").mkdir()
    running = asyncio.ensure_future(supervisor.run(lambda s: KeptBus(s, server, no_provision)))
    await until(lambda: all(owner_pid(host_lock(tmp_path, name)) for name in ("h0", "p0")))
    await until(lambda: (read_status(tmp_path) or {}).get("bus", {}).get("state") == "running")
    supervisor.stop()
    await asyncio.wait_for(running, 15)
    assert not server.is_up
    assert [owner_pid(host_lock(tmp_path, name)) for name in ("h0", "p0")] == [None, None]
    status = read_status(tmp_path)
    assert status
    assert status["state"] == "stopped"


async def test_it_ends_when_no_run_has_been_open(tmp_path: Path) -> None:
    """Nobody has to remember to stop it."""
    server = FakeServer()

    async def idle() -> bool:
        return True

    quick = settings(tmp_path, idle_exit_s=1.1)
    supervisor = Supervisor(quick, lambda name: child(host_lock(tmp_path, name)), idle, os.environ)
    (tmp_path / "supervisor").mkdir()
    await asyncio.wait_for(supervisor.run(lambda s: KeptBus(s, server, no_provision)), 15)
    assert not server.is_up


async def test_it_ends_when_there_has_been_no_bus_for_long(tmp_path: Path) -> None:
    """A port or a store that stays taken: it tries for as long as it would wait without work, and not for ever."""

    async def never_idle() -> bool:
        return False

    server = FakeServer()
    server.refuses = 10**6
    quick = settings(tmp_path, idle_exit_s=1.1)
    supervisor = Supervisor(quick, lambda name: child(host_lock(tmp_path, name)), never_idle, os.environ)
    (tmp_path / "supervisor").mkdir()
    await asyncio.wait_for(supervisor.run(lambda s: KeptBus(s, server, no_provision)), 20)
    assert "taken" in str((read_status(tmp_path) or {})["bus"]["problem"])


def test_there_is_one_supervisor_a_data_directory(tmp_path: Path) -> None:
    """The second one gives up after a moment."""
    lock = take_lock(tmp_path)
    assert lock is not None
    assert take_lock(tmp_path) is None
    os.close(lock)
    again = try_lock(tmp_path / "supervisor" / "lock")
    assert again is not None
    os.close(again)
