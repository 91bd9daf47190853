"""A whole gym-bus in one process: a `MemoryServer`, hosts that can be killed, scripted models, and a ledger outside of all of them."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import json
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from actors.collector.room import Room
from actors.harness.remote_http import AskAgent, ask_agent
from actors.reaper import reap_places
from actors.wiring import Surroundings, make_worker
from adapters.benchmarks.base import Grade
from gym_bus import boundary
from gym_bus.blobs import MemoryBlobs
from gym_bus.codec import Codec
from gym_bus.errors import GymBusError
from gym_bus.event_log import Draft, EventLog
from gym_bus.memory_bus import Faults, MemoryBus, MemoryServer
from gym_bus.runtime.presence import Presence, incarnation
from gym_bus.runtime.worker import Worker
from gym_bus.settings import Settings
from gym_bus.subjects import CONTROL, aggregate
from providers.models import make_model
from providers.models.base import Model
from providers.sandboxes import make_provider
from providers.sandboxes.base import SandboxProvider
from schemas.base import Event
from schemas.config import ModelConfig, ReasoningGymDataset, ReasoningGymTaskset, RunConfig, ScriptedModel
from schemas.envelope import Envelope
from schemas.events import RunCancelRequested, RunFinished, RunRequested, RunResumeRequested
from schemas.ids import WORKER_KINDS, WorkerKind
from schemas.sandboxes import Inline
from schemas.tasks import Evidence, Task, TaskInput
from schemas.values import Message

CURRENT_HOST: contextvars.ContextVar[SimHost | None] = contextvars.ContextVar("current_host", default=None)


class Killed(BaseException):
    """A simulated SIGKILL: nothing of the host runs after it."""


class LoopClock:
    """Wall time derived from the loop's, so that both jump together."""

    def now(self) -> datetime:
        """Return a moment in 2026."""
        return datetime(2026, 1, 1, tzinfo=UTC) + timedelta(milliseconds=int(self.monotonic() * 1000))

    def monotonic(self) -> float:
        """Return the loop's time."""
        return asyncio.get_running_loop().time()


class SumGrader:
    """Grades `a + b` by comparing the answer's last number."""

    version = "sum-1"

    async def grade(self, verifier: str, verifier_data: dict[str, Any], evidence: Evidence) -> Grade:
        """Compare with the expected sum."""
        assert verifier == "sum"
        answer = (evidence.answer or "").rpartition("<answer>")[2].partition("</answer>")[0].strip()
        is_right = answer == str(verifier_data["answer"])
        return Grade(1.0 if is_right else 0.0, failure_reason=None if is_right else f"got {answer!r}")


def sum_tasks(count: int) -> list[Task]:
    """Return `count` additions."""
    return [
        Task(
            index=i,
            input=TaskInput(
                task_id=f"sum/{i}", messages=(Message(role="user", content=f"What is {i} + {i * 7 + 1}?"),)
            ),
            verifier="sum",
            verifier_data={"answer": i + i * 7 + 1},
        )
        for i in range(count)
    ]


def with_follow_ups(task: Task, count: int) -> Task:
    """Return a sum with `count` further ones asked for after it; what is graded is the answer to the last."""
    sums = [(task.index + n, 10 * n) for n in range(1, count + 1)]
    inputs = tuple((Message(role="user", content=f"And what is {a} + {b}?"),) for a, b in sums)
    data = {"answer": sum(sums[-1])} if sums else task.verifier_data
    given = task.input.model_copy(update={"follow_ups": inputs})
    return task.model_copy(update={"input": given, "verifier_data": data})


def config(**changes: Any) -> RunConfig:
    """Return a small run's configuration."""
    base: dict[str, Any] = {
        "taskset": ReasoningGymTaskset(datasets=(ReasoningGymDataset(name="chain_sum", size=1),)),
        "sandbox": Inline(),
        "model": ScriptedModel(error_rate=0.3),
        "num_samples_in_parallel": 8,
    }
    return RunConfig(**{**base, **changes})


@dataclass
class SimHost:
    """One host: its workers on clients that die with it."""

    world: World
    host_id: str
    kinds: Sequence[WorkerKind]
    boot: int
    buses: dict[str, MemoryBus] = field(default_factory=dict)
    workers: dict[str, Worker] = field(default_factory=dict)
    task: asyncio.Task[None] | None = None
    is_dead: bool = False

    def kill(self) -> None:
        """End it at once: its clients never get another answer, its tasks are cancelled."""
        self.is_dead = True
        for bus in self.buses.values():
            bus.is_dead = True
        if self.task and self.task is not asyncio.current_task():
            asyncio.get_running_loop().call_soon(self.task.cancel)

    async def run(self) -> None:
        """Run the workers until killed."""
        CURRENT_HOST.set(self)
        world = self.world
        worker_name = incarnation(self.host_id, f"b{self.boot}")
        presence = Presence(world.clock, worker_name, world.settings.lease_s)
        world.server.on_kill.append(presence.reset)
        self.buses = {
            user: MemoryBus(world.server, user, latency_s=world.latency_s) for user in (*WORKER_KINDS, "model")
        }
        around = Surroundings(
            bus_for=self.buses.__getitem__,
            codec=world.codec,
            blobs=world.blobs,
            clock=world.clock,
            settings=world.settings,
            worker=worker_name,
            host_id=self.host_id,
            presence=presence,
            model_for=world.model_for,
            provider_for=world.provider_for,
            grader=SumGrader(),
            load_tasks=world.load_tasks,
            look_at_log=world.look_at_log,
            places=world.places,
            ask_agent=world.ask_agent,
        )
        try:
            async with asyncio.TaskGroup() as group:
                for kind in self.kinds:
                    worker, places = make_worker(kind, around)
                    self.workers[kind] = worker
                    group.create_task(worker.run(places))
                    if kind == "sandbox":
                        group.create_task(self._reap(worker, presence))
                group.create_task(self._beat(worker_name, presence))
        except BaseExceptionGroup as error:
            if not self.is_dead or error.subgroup(AssertionError):
                raise
        except asyncio.CancelledError:
            if not self.is_dead:
                raise

    async def _reap(self, worker: Worker, presence: Presence) -> None:
        await reap_places(worker, presence, self.host_id, self.world.places, self.world.settings.lease_s)

    async def _beat(self, worker_name: str, presence: Presence) -> None:
        bus = self.buses[self.kinds[0]]
        async with bus.hear("gym.hb.>", lambda _, body: presence.heard(body.decode())):
            while True:
                with contextlib.suppress(GymBusError):
                    await bus.tell(f"gym.hb.{self.kinds[0]}.{self.host_id}", worker_name.encode())
                await asyncio.sleep(self.world.settings.heartbeat_s)


class World:
    """Everything there is."""

    def __init__(
        self,
        *,
        tasks: int = 4,
        faults: Faults | None = None,
        settings: Settings | None = None,
        latency_s: float = 0.0005,
        ledger: Path | None = None,
    ) -> None:
        self.settings = settings or Settings(ack_wait_s=2.0, lease_s=1.5, reread_s=0.5, append_patience_s=600)
        self.server = MemoryServer(ack_wait_s=self.settings.ack_wait_s, faults=faults)
        self.blobs = MemoryBlobs()
        self.codec = Codec(self.blobs)
        self.clock = LoopClock()
        self.tasks = sum_tasks(tasks)
        self.latency_s = latency_s
        self.ledger = ledger
        self.hosts: dict[str, SimHost] = {}
        self.all_hosts: list[SimHost] = []
        self.boots = 0
        self.room = Room()
        self.hits: Counter[str] = Counter()
        self.models: dict[str, Model] = {}
        self.ask_agent: AskAgent = ask_agent

    async def look_at_log(self) -> Room:
        """Return how much room the log has."""
        return self.room

    async def load_tasks(self, _: Any) -> list[Task]:
        """Return the tasks."""
        return self.tasks

    async def places(self) -> Sequence[str]:
        """Return the places that have a queue."""
        return sorted({name.split(".")[3] for name in self.server.queue_names() if name.startswith("gym.cmd.sandbox.")})

    def model_for(self, model: ModelConfig) -> Model:
        """Return the model, made once."""
        key = model.model_dump_json()
        if key not in self.models:
            self.models[key] = make_model(model, None, 64)
        return self.models[key]

    def provider_for(self, sandbox: Any) -> SandboxProvider:
        """Return a provider that belongs to the current host."""
        return make_provider(sandbox, Path("/nonexistent"))

    def start_host(self, host_id: str = "h0", kinds: Sequence[WorkerKind] = WORKER_KINDS) -> SimHost:
        """Start a host in the background."""
        self.boots += 1
        host = SimHost(self, host_id, kinds, self.boots)
        self.hosts[host_id] = host
        self.all_hosts.append(host)
        host.task = asyncio.get_running_loop().create_task(host.run(), context=contextvars.copy_context())
        return host

    def cli_log(self) -> EventLog:
        """Return the log as the command line."""
        return EventLog(MemoryBus(self.server, "cli"), self.codec, self.clock, worker="cli.0", patience_s=60)

    async def request_run(self, run_id: str, run_config: RunConfig) -> None:
        """Do what `eval run` does."""
        data = RunRequested(config=run_config, config_digest="digest", output_dir="/nonexistent", versions={})
        await self.cli_log().append_alone(aggregate(run_id, "_", "cli", "start"), 1, Draft(data, None))

    async def control(self, run_id: str, data: RunCancelRequested | RunResumeRequested, nonce: str) -> None:
        """Do what `eval cancel` and `eval resume` do."""
        where = aggregate(run_id, "_", "cli", f"ctl-{nonce}")
        await self.cli_log().append_alone(where, 1, Draft(data, None, place=CONTROL))

    def events(self, kind: type[Event] | None = None) -> list[Envelope]:
        """Return the log, or the events of one type."""
        decoded = [self.codec.decode(s.subject, s.body, s.sequence) for s in self.server.events]
        return [e for e in decoded if kind is None or isinstance(e.data, kind)]

    async def finished(self, run_id: str, timeout_s: float = 3600) -> RunFinished:
        """Wait for a run's end."""
        async with asyncio.timeout(timeout_s):
            while True:
                for host in self.hosts.values():
                    if host.task and host.task.done() and not host.is_dead:
                        await host.task
                        msg = f"host {host.host_id} stopped by itself"
                        raise AssertionError(msg)
                for stored in reversed(self.server.events):
                    if stored.subject.endswith(".run_finished") and f".{run_id}." in stored.subject:
                        data = self.codec.decode(stored.subject, stored.body, stored.sequence).data
                        assert isinstance(data, RunFinished)
                        return data
                await asyncio.sleep(0.05)

    async def quiet(self, timeout_s: float = 600) -> None:
        """Wait until every request is acknowledged."""
        async with asyncio.timeout(timeout_s):
            while self.server.pending():
                await asyncio.sleep(0.1)

    async def stop(self) -> None:
        """End every host."""
        for host in self.all_hosts:
            host.kill()
        await asyncio.gather(*(h.task for h in self.all_hosts if h.task), return_exceptions=True)


def kill_at(world: World, targets: Sequence[tuple[str, int]], then: Callable[[SimHost], None]) -> None:
    """Kill the host that reaches the first target's boundary for its n-th time, call `then`, and go on to the next target."""
    left = list(targets)
    count = 0

    def hook(reached: str) -> None:
        nonlocal count
        host = CURRENT_HOST.get()
        world.hits[reached] += 1
        if not left or reached != left[0][0] or host is None or host.is_dead:
            return
        count += 1
        if count == left[0][1]:
            left.pop(0)
            count = 0
            host.kill()
            then(host)
            raise Killed(reached)

    boundary.install(hook)


def read_ledger(path: Path) -> list[dict[str, Any]]:
    """Return the lines of an outside ledger."""
    return [json.loads(line) for line in path.read_text().split("\n") if line] if path.exists() else []
