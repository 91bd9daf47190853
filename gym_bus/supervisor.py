"""The supervisor of one data directory: keeps its bus, its actor hosts and its projector alive, and its gateway if one is wanted.

    python -m gym_bus.supervisor

The command line starts it when it is missing. It may be killed at any moment: the processes live on, and the next
supervisor adopts them by the locks they hold. Settings come from `GYM_BUS_*`.
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from gym_bus.errors import GymBusError
from gym_bus.gateway_file import GATEWAY
from gym_bus.kept_gateway import KeptGateway, give_up_gateway
from gym_bus.kept_process import KeptProcess, children_environment, spawn_detached
from gym_bus.locks import try_lock, write_owner
from gym_bus.settings import Settings, load_settings
from gym_bus.status_file import host_lock, logs_dir, status_path, supervisor_lock, write_status

STATUS_EVERY_S: Final = 1.0
IDLE_EVERY_S: Final = 15.0
STOP_MARGIN_S: Final = 5.0
PROJECTOR_WAIT_S: Final = 5.0
LOCK_PATIENCE_S: Final = 0.3
PROJECTOR: Final = "p0"
HOST_KINDS: Final = "collector,harness,sandbox,verifier"
Command = Callable[[str], Sequence[str]]


def host_command(host_id: str) -> Sequence[str]:
    """Return the command line of a host, of the projector, or of the gateway."""
    kinds = {PROJECTOR: "projector", GATEWAY: "gateway"}.get(host_id, HOST_KINDS)
    return (sys.executable, "-m", "actors.host", "--kinds", kinds, "--host-id", host_id)


def host_ids(settings: Settings) -> list[str]:
    """Return the ids of the hosts to keep: as many as the settings say, else half as many as there are cores."""
    count = settings.hosts or max(1, len(os.sched_getaffinity(0)) // 2)
    return [f"h{n}" for n in range(count)]


class Bus:
    """The bus as the supervisor needs it; this one is somebody else's (GYM_BUS_BUS_URL)."""

    problem: str | None = None

    def __init__(self, settings: Settings) -> None:
        """Provision once; the server is not ours to keep."""
        self.settings = settings
        self.changed = asyncio.Event()
        self._state = "down"
        self.store: dict[str, Any] = {"state": "unknown", "reason": "the bus is not ours to look at"}

    def status(self) -> dict[str, Any]:
        """Return what is known, for the status file."""
        return {"pid": None, "url": self.settings.bus_url, "state": self._state, "restarts": 0, "problem": self.problem}

    async def keep(self) -> None:
        """Provision, and try again while that fails."""
        from gym_bus.kept_bus import provision_embedded  # noqa: PLC0415  hosts start while this is imported
        from gym_bus.server import BusAddress  # noqa: PLC0415  the same
        from gym_bus.topology import ADMIN  # noqa: PLC0415  the same

        address = BusAddress(self.settings.bus_url or "", {ADMIN: self.settings.bus_password or ""})
        while True:
            try:
                await provision_embedded(address, self.settings)
            except GymBusError as error:
                self.problem = str(error)
                await asyncio.sleep(STATUS_EVERY_S)
            else:
                self.problem, self._state = None, "running"
                self.changed.set()
                return

    async def watch_store(self) -> None:
        """Leave the store to its owner."""

    async def stop(self) -> None:
        """Leave the server running."""


IsIdle = Callable[[], Awaitable[bool]]


class Supervisor:
    """See the module. `command` gives each child's command line, `is_idle` says whether no run is open."""

    def __init__(self, settings: Settings, command: Command, is_idle: IsIdle, environ: Mapping[str, str]) -> None:
        """Prepare; nothing is started before `run`."""
        self.settings = settings
        self._is_idle = is_idle
        self._stopping = asyncio.Event()
        self._began = time.time()
        environment = children_environment(environ, settings.data_dir)

        def starter(name: str) -> Callable[[], subprocess.Popen[bytes]]:
            log_path = logs_dir(settings.data_dir) / f"{name}.log"
            return lambda: spawn_detached(command(name), environment, log_path)

        self.processes = [
            KeptProcess(name, host_lock(settings.data_dir, name), starter(name))
            for name in (*host_ids(settings), PROJECTOR)
        ]
        self.gateway = KeptGateway(settings.data_dir, starter(GATEWAY), settings.drain_s)
        self.bus: Any = Bus(settings)

    def stop(self) -> None:
        """Stop everything in order and end."""
        self._stopping.set()

    def status(self) -> dict[str, Any]:
        """Return how everything is."""
        return {
            "pid": os.getpid(),
            "began_at": self._began,
            "state": "stopping" if self._stopping.is_set() else "running",
            "bus": self.bus.status(),
            "store": self.bus.store,
            "processes": {p.name: p.status() for p in self.processes} | self.gateway.status(),
        }

    async def run(self, make_bus: Callable[[Settings], Any] | None = None) -> None:
        """Keep everything alive until stopped or idle. Children are started first: they wait for the bus by themselves.

        A keeper that breaks is a defect and ends the supervisor like a kill: the processes live on for the next one.
        """
        async with asyncio.TaskGroup() as group:
            *hosts, projector = self.processes
            tasks = [group.create_task(host.keep()) for host in hosts]
            await asyncio.sleep(0)
            if make_bus is not None:
                self.bus = make_bus(self.settings)
            works = (self.bus.keep(), self._keep_projector(projector), self.gateway.follow(), self.bus.watch_store())
            tasks += [group.create_task(work) for work in (*works, self._write_status(), self._exit_when_idle())]
            await self._stopping.wait()
            await self._stop_all()
            for task in tasks:
                task.cancel()
        write_status(self.settings.data_dir, {**self.status(), "state": "stopped"})

    async def _keep_projector(self, projector: KeptProcess) -> None:
        """Start the projector when the bus is there: before that it only takes the cores that the hosts need."""
        deadline = time.monotonic() + PROJECTOR_WAIT_S
        while self.bus.status()["state"] != "running" and time.monotonic() < deadline:  # noqa: ASYNC110  another process does it
            await asyncio.sleep(0.01)
        await projector.keep()

    async def _stop_all(self) -> None:
        *hosts, projector = self.processes
        await asyncio.gather(*(host.stop(self.settings.drain_s + STOP_MARGIN_S) for host in hosts))
        await self.gateway.stop()  # the hosts' agents may have needed it to the end
        await projector.stop(self.settings.drain_s)
        await self.bus.stop()

    async def _write_status(self) -> None:
        while True:
            self.bus.changed.clear()
            write_status(self.settings.data_dir, self.status())
            with suppress(TimeoutError):
                async with asyncio.timeout(STATUS_EVERY_S):
                    await self.bus.changed.wait()

    async def _exit_when_idle(self) -> None:
        """End when no run has been open for long; also when there has been no bus for long, without which nobody can do anything."""
        idle_since: float | None = None
        while True:
            await asyncio.sleep(min(IDLE_EVERY_S, self.settings.idle_exit_s / 2))
            has_bus = self.bus.status()["state"] == "running"
            if has_bus and not await self._is_idle():
                idle_since = None
                continue
            idle_since = idle_since or time.monotonic()
            if time.monotonic() - idle_since >= self.settings.idle_exit_s:
                give_up_gateway(self.settings.data_dir)
                self.stop()
                return


async def no_run_is_open(settings: Settings) -> bool:
    """Ask the projector whether no run is open; False if it does not answer, or has not read everything."""
    from gym_bus.client import connect_cli, query  # noqa: PLC0415  long after the start

    try:
        async with connect_cli(settings) as bus:
            answer = await query(bus, "SELECT count(*) FROM runs WHERE finished IS NULL")
    except GymBusError:
        return False
    return answer.rows == [[0]]


def take_lock(data_dir: Path) -> int | None:
    """Take the supervisor's lock, trying for a moment: whoever only looks whether it is free holds it so long."""
    deadline = time.monotonic() + LOCK_PATIENCE_S
    while True:
        lock = try_lock(supervisor_lock(data_dir))
        if lock is not None or time.monotonic() > deadline:
            return lock
        time.sleep(0.01)


async def _main(settings: Settings) -> None:
    def make_bus(settings: Settings) -> Any:
        if settings.bus_url:
            return Bus(settings)
        from gym_bus.kept_bus import embedded_bus  # noqa: PLC0415  hosts start while this is imported

        return embedded_bus(settings)

    supervisor = Supervisor(settings, host_command, lambda: no_run_is_open(settings), os.environ)
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, supervisor.stop)
    await supervisor.run(make_bus)


def main() -> int:
    """Supervise until stopped; return the exit code. Another supervisor of the same data directory is no error."""
    try:
        settings = load_settings()
    except GymBusError as error:
        sys.stderr.write(f"error: {error}\n")
        return 2
    lock = take_lock(settings.data_dir)
    if lock is None:
        return 0
    write_owner(lock, f"supervisor pid {os.getpid()}")
    status_path(settings.data_dir).unlink(missing_ok=True)
    asyncio.run(_main(settings))
    return 0


if __name__ == "__main__":
    sys.exit(main())
