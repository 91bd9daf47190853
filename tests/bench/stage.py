"""A fresh data directory with real processes: a bus, hosts, a projector; all of it gone afterwards, whatever happened."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from gym_bus.client import open_log, query, request_run
from gym_bus.config import config_digest
from gym_bus.event_log import EventLog
from gym_bus.nats_bus import NatsBus, connect
from gym_bus.provision import provision
from gym_bus.server import EmbeddedServer
from gym_bus.settings import Settings, load_settings
from gym_bus.subjects import run_aggregate
from projections.results import MANIFEST
from schemas.config import ReasoningGymDataset, ReasoningGymTaskset, RunConfig, ScriptedModel, SimpleAgent
from schemas.envelope import Envelope
from tests.bench.processes import cpu_s, kill_all, pids_of

ROOT: Final = Path(__file__).resolve().parents[2]
ACTORS: Final = "collector,harness,sandbox,verifier"
PROJECTOR: Final = "p0"
READY_TIMEOUT_S: Final = 30.0
SETTLED_CPU_S: Final = 0.06
RUN: Final = f"bench{os.getpid()}"


def environment(data_dir: Path, extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return the environment of the processes: ours without gym-bus settings, the data directory, and `extra`."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("GYM_BUS_")}
    # Warm, as `eval run` starts hosts: what scoring imports is start-up.
    ours = {"GYM_BUS_DATA_DIR": str(data_dir), "GYM_BUS_WARM": "reasoning_gym", "PYTHONPATH": str(ROOT)}
    return {**kept, **ours, **(extra or {})}


def sums(size: int) -> ReasoningGymTaskset:
    """Return `size` tasks of chain_sum."""
    return ReasoningGymTaskset(datasets=(ReasoningGymDataset(name="chain_sum", size=size),))


def run_config(size: int, in_flight: int, sandbox: Any, **model: Any) -> RunConfig:
    """Return a run of `size` rollouts of two model calls and one tool call each; the ramp does not hold it up."""
    return RunConfig(
        taskset=sums(size),
        agent=SimpleAgent(max_steps=4),
        model=ScriptedModel(error_rate=0.1, **model),
        sandbox=sandbox,
        num_samples_in_parallel=in_flight,
        ramp_per_s=100_000,
    )


@asynccontextmanager
async def data_directory() -> AsyncGenerator[Path]:
    """Give a directory under the system's temporary one; afterwards its processes are killed and it is removed."""
    folder = Path(tempfile.mkdtemp(prefix="gym-bus-bench-"))
    try:
        yield folder
    finally:
        kill_all(folder)
        shutil.rmtree(folder, ignore_errors=True)


@dataclass
class Stage:
    """What a measurement works with."""

    data_dir: Path
    settings: Settings
    extra: Mapping[str, str]
    server: EmbeddedServer
    admin: NatsBus
    cli: NatsBus
    log: EventLog
    children: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    def spawn(self, host_id: str, kinds: str) -> None:
        """Start a process of actors."""
        logs = self.data_dir / "logs"
        logs.mkdir(exist_ok=True)
        with (logs / f"{host_id}.log").open("ab") as output:
            self.children[host_id] = subprocess.Popen(
                [sys.executable, "-m", "actors.host", "--kinds", kinds, "--host-id", host_id],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
                cwd=ROOT,
                env=environment(self.data_dir, self.extra),
            )

    async def ready(self) -> None:
        """Wait until every process says that it is ready."""
        async with asyncio.timeout(READY_TIMEOUT_S):
            for host_id, child in self.children.items():
                path = self.data_dir / "logs" / f"{host_id}.log"
                while b"_ready" not in path.read_bytes():
                    if child.poll() is not None:
                        msg = f"{host_id} ended: {path.read_text()[-2000:]}"
                        raise RuntimeError(msg)
                    await asyncio.sleep(0.05)

    async def settle(self) -> None:
        """Wait until start-up is over: the grader still imports what it needs after the hosts are ready."""
        async with asyncio.timeout(READY_TIMEOUT_S):
            before = self.cpu_s()
            while True:
                await asyncio.sleep(0.5)
                if (now := self.cpu_s()) - before < SETTLED_CPU_S:
                    return
                before = now

    def pids(self) -> list[int]:
        """Return all processes of this stage."""
        return pids_of(self.data_dir)

    def cpu_s(self) -> float:
        """Return the processor time of all of them."""
        return cpu_s(self.pids())

    async def stream(self) -> dict[str, Any]:
        """Return the state of the event stream."""
        state: dict[str, Any] = (await self.admin.api("STREAM.INFO.GYM_EVT_0"))["state"]
        return state

    async def request(self, config: RunConfig, run_id: str = RUN) -> None:
        """Ask for a run."""
        output = str(self.data_dir / "out" / run_id)
        await request_run(
            self.log, run_id=run_id, config=config, digest=config_digest(config), output_dir=output, versions={}
        )

    async def finished(self, timeout_s: float, run_id: str = RUN, look: Callable[[], None] = lambda: None) -> Envelope:
        """Wait for the end of a run, looking every 0.1 s; return its event. Raises if a rollout was not scored."""
        async with asyncio.timeout(timeout_s):
            while (event := await self.log.last(f"{run_aggregate(run_id).prefix}.run_finished")) is None:
                look()
                await asyncio.sleep(0.1)
        data: Any = event.data
        if data.state != "completed" or data.scored != data.planned:
            msg = f"the run did not go as it should: {data}"
            raise RuntimeError(msg)
        return event

    async def began(self, run_id: str = RUN) -> Envelope:
        """Return the claim of the run's first rollout: the tasks are there, work begins."""
        async for event in self.log.read(f"gym.evt.0.{run_id}.*.collector._.claim"):
            if event.rollout_id != "_":
                return event
        msg = f"run {run_id} has not begun"
        raise RuntimeError(msg)

    async def projected(self, timeout_s: float, run_id: str = RUN) -> None:
        """Wait until the projection holds the whole log and the results are written."""
        last = (await self.stream())["last_seq"]
        async with asyncio.timeout(timeout_s):
            while ((await query(self.cli, "SELECT 1", after_seq={"0": last})).cursor or {}).get("0", 0) < last:
                await asyncio.sleep(0.05)
            while not (self.data_dir / "out" / run_id / MANIFEST).exists():
                await asyncio.sleep(0.05)

    async def seconds(self, end: Envelope, run_id: str = RUN) -> float:
        """Return the time from the first rollout's claim to the run's end, by the log."""
        return (end.recorded_at - (await self.began(run_id)).recorded_at).total_seconds()


@asynccontextmanager
async def stage(
    *, hosts: int = 1, projector: bool = True, extra: Mapping[str, str] | None = None
) -> AsyncGenerator[Stage]:
    """Set up a bus, `hosts` hosts of all actors and a projector, ready to work."""
    async with data_directory() as data_dir, AsyncExitStack() as stack:
        given = {"GYM_BUS_DATA_DIR": str(data_dir), **(extra or {})}
        settings = load_settings({name: value for name, value in given.items() if name.startswith("GYM_BUS_")})
        server = EmbeddedServer(data_dir / "bus")
        address = server.ensure()
        admin = await stack.enter_async_context(connect(address.url, "admin", address.passwords["admin"]))
        await provision(admin, shards=1, max_bytes=8 * 1024**3, ack_wait_s=settings.ack_wait_s)
        cli = await stack.enter_async_context(connect(address.url, "cli", address.passwords["cli"]))
        made = Stage(data_dir, settings, extra or {}, server, admin, cli, open_log(cli, settings))
        for n in range(hosts):
            made.spawn(f"h{n}", ACTORS)
        if projector:
            made.spawn(PROJECTOR, "projector")
        await made.ready()
        await made.settle()
        yield made


def disk_bytes(folder: Path) -> int:
    """Return what a folder takes on disk."""
    return sum(path.stat().st_blocks * 512 for path in folder.rglob("*") if path.is_file())


async def until(is_true: Callable[[], bool], timeout_s: float) -> float:
    """Wait until `is_true`; return the time (`time.time`) at which it was."""
    async with asyncio.timeout(timeout_s):
        while not is_true():
            await asyncio.sleep(0.005)
    return time.time()
