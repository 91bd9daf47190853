"""A host: any mix of actors in one process.

    python -m actors.host --kinds collector,harness,sandbox,verifier
    python -m actors.host --kinds projector

Settings come from `GYM_BUS_*`. A host's id is a lock under the data directory: it is kept over restarts, so that work tied to the place
finds its host again, and two hosts never share one.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import logging
import os
import secrets
import signal
import sys
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

import structlog

from actors.collector.room import Room
from actors.ended_runs import is_run_over
from actors.open_files import allow_many_files
from actors.reaper import reap_boxes, reap_places
from actors.services import Services
from actors.wiring import Surroundings, make_worker
from gym_bus.blobs import DirectoryBlobs
from gym_bus.clock import SystemClock
from gym_bus.codec import Codec
from gym_bus.errors import GymBusError, Permanent, Retryable
from gym_bus.locks import try_lock, write_owner
from gym_bus.nats_bus import NatsBus, connect
from gym_bus.provision import ensure_consumer, places_of
from gym_bus.redaction import Redactor
from gym_bus.runtime.presence import Presence, incarnation
from gym_bus.runtime.pulse import pulse
from gym_bus.runtime.worker import Worker
from gym_bus.secrets_store import SecretsStore
from gym_bus.server import BusAddress, EmbeddedServer
from gym_bus.settings import Settings, load_settings
from gym_bus.topology import FULL_SHARE, event_stream, place_of
from schemas.ids import WORKER_KINDS, WorkerKind

log = structlog.get_logger(__name__)

BUS_WAIT_S: Final = 60.0
TOLD_AFTER_S: Final = 2.0
MAX_HOSTS: Final = 256
ALONE: Final = frozenset({"projector", "gateway"})
DRAIN_ORDER: Final = ("collector", "harness", "verifier", "sandbox")


@dataclass(frozen=True, slots=True)
class Identity:
    """Who this process is: the host id, held by a lock, and a boot id that no other life of the host has."""

    host_id: str
    boot_id: str

    @property
    def worker(self) -> str:
        """Return the incarnation's name."""
        return incarnation(self.host_id, self.boot_id)


def take_host_id(hosts: Path, wanted: str | None) -> str:
    """Return a host id whose lock this process holds until it ends: `wanted`, or the first free of h0, h1 and so on."""
    candidates = [wanted] if wanted else [f"h{n}" for n in range(MAX_HOSTS)]
    for host_id in candidates:
        lock = try_lock(hosts / host_id / "lock")
        if lock is not None:
            write_owner(lock, f"host {host_id} pid {os.getpid()}")
            return host_id
    msg = f"host id {wanted or 'h0…'} is taken by another process under {hosts}"
    raise Permanent(msg)


async def find_bus(settings: Settings) -> BusAddress:
    """Return the bus's address: the configured one, or the embedded server's as soon as it runs."""
    server = EmbeddedServer(settings.data_dir / "bus")
    if settings.bus_url:
        return BusAddress(
            settings.bus_url, dict.fromkeys((*WORKER_KINDS, "model", "projector", "cli"), settings.bus_password or "")
        )
    began = asyncio.get_running_loop().time()
    is_told = False
    while (waited_s := asyncio.get_running_loop().time() - began) < BUS_WAIT_S:
        if address := server.address():
            return address
        if waited_s > TOLD_AFTER_S and not is_told:
            is_told = True
            log.info("waiting_for_bus", data_dir=str(settings.data_dir), up_to_s=BUS_WAIT_S, start_it="gym-bus bus up")
        await asyncio.sleep(0.01)
    msg = f"no bus under {settings.data_dir} after {BUS_WAIT_S:.0f} s: `gym-bus bus up` starts one"
    raise Retryable(msg)


class Host:
    """The actors of one process, their connections and their pulse."""

    def __init__(self, settings: Settings, identity: Identity, kinds: Sequence[WorkerKind]) -> None:
        """Prepare to run `kinds`."""
        self.settings = settings
        self.identity = identity
        self.kinds = kinds
        self.clock = SystemClock()
        self.buses: dict[str, NatsBus] = {}
        self.workers: list[Worker] = []
        self._stopping = asyncio.Event()
        self._connecting: asyncio.Task[None] | None = None

    def stop(self) -> None:
        """Drain and end; a host that still waits for the bus has nothing to drain."""
        self._stopping.set()
        if self._connecting:
            self._connecting.cancel()

    async def run(self) -> None:
        """Run until stopped; raises what a worker cannot deal with."""
        allow_many_files()
        secrets_store = SecretsStore(self.settings.data_dir / "secrets")
        redactor = Redactor(secrets_store.all_values())
        blobs = DirectoryBlobs(self.settings.data_dir / "blobs")
        codec = Codec(blobs, redactor)
        presence = Presence(self.clock, self.identity.worker, self.settings.lease_s)
        async with AsyncExitStack() as stack:
            services = Services(self.settings, self.identity.host_id, secrets_store, redactor)
            stack.push_async_callback(services.aclose)
            self._connecting = asyncio.create_task(self._connect(stack))
            try:
                await self._connecting
            except asyncio.CancelledError:
                if self._stopping.is_set():
                    return
                raise
            finally:
                self._connecting = None
            around = Surroundings(
                bus_for=self.buses.__getitem__,
                codec=codec,
                blobs=blobs,
                clock=self.clock,
                settings=self.settings,
                worker=self.identity.worker,
                host_id=self.identity.host_id,
                presence=presence,
                model_for=services.model_for,
                provider_for=services.provider_for,
                grader=services.grader,
                load_tasks=services.load_tasks,
                look_at_log=self._look_at_log,
                places=self._places,
                note_run=services.ended_runs.add,
            )
            pulse_ = pulse(self._first_bus, self.kinds[0], presence, self.settings.heartbeat_s)
            await stack.enter_async_context(pulse_)
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(services.warm())]
                for kind in self.kinds:
                    worker, places = make_worker(kind, around)
                    self.workers.append(worker)
                    self.buses[kind].on_reconnect(worker.reread_all)
                    tasks.append(group.create_task(worker.run(places)))
                    if kind == "sandbox":
                        clear = partial(services.ended_runs.clear, partial(is_run_over, self.buses[kind]))
                        tasks.append(group.create_task(reap_boxes(services.reap, clear)))
                        reaping = reap_places(
                            worker, presence, self.identity.host_id, self._places, self.settings.lease_s
                        )
                        tasks.append(group.create_task(reaping))
                log.info("host_ready", host=self.identity.host_id, kinds=list(self.kinds), pid=os.getpid())
                await self._stopping.wait()
                log.info("host_draining", host=self.identity.host_id)
                await self._drain()
                for worker in self.workers:
                    worker.stop()
                for task in tasks:
                    task.cancel()

    async def _drain(self) -> None:
        """End what is in hand: runs are left to another host, then sessions end with the machines and verdicts they need."""
        deadline = self.clock.monotonic() + self.settings.drain_s
        workers = {worker.role.kind: worker for worker in self.workers}
        for kind in DRAIN_ORDER:
            if kind in workers:
                left_s = deadline - self.clock.monotonic() if kind != "collector" else 0.0
                await workers[kind].drain(left_s)

    @property
    def _first_bus(self) -> NatsBus:
        return self.buses[self.kinds[0]]

    async def _connect(self, stack: AsyncExitStack) -> None:
        address = await find_bus(self.settings)
        for user in (*self.kinds, *(("model",) if "harness" in self.kinds else ())):
            self.buses[user] = await stack.enter_async_context(
                connect(address.url, user, address.passwords[user], name=f"{self.identity.worker}/{user}")
            )
        await self._await_queues()
        if "sandbox" in self.kinds:
            await ensure_consumer(self.buses["sandbox"], "sandbox", self.identity.host_id, self.settings.ack_wait_s)

    async def _await_queues(self) -> None:
        """Wait until the streams have been provisioned."""
        deadline = self.clock.monotonic() + BUS_WAIT_S
        for kind in self.kinds:
            while "error" in await self.buses[kind].api(f"CONSUMER.INFO.GYM_CMD_{kind.upper()}.any"):
                if self.clock.monotonic() > deadline:
                    msg = f"the queue of {kind} is not there: `gym-bus bus up` creates it"
                    raise Permanent(msg)
                await asyncio.sleep(0.01)

    async def _places(self) -> Sequence[str]:
        return [place_of(name) for name in await places_of(self.buses["sandbox"], "sandbox")]

    async def _look_at_log(self) -> Room:
        """Return how much more the log takes before nothing new may start."""
        answer = await self.buses["collector"].api(f"STREAM.INFO.{event_stream(0)}")
        limit, used = answer["config"]["max_bytes"], answer["state"]["bytes"]
        if limit <= 0:
            return Room()
        left = int(limit * FULL_SHARE) - used
        how = "make room, then `gym-bus bus down` and `up` raise the limit"
        return Room(left, f"the store holds {used:,} of at most {limit:,} bytes: {how}" if left <= 0 else None)


def configure_logging() -> None:
    """Write operators' logs to standard error, one JSON object a line."""
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            structlog.processors.JSONRenderer(),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.INFO),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
        cache_logger_on_first_use=True,
    )


async def _main(settings: Settings, identity: Identity, kinds: Sequence[str]) -> None:
    loop = asyncio.get_running_loop()
    if "gateway" in kinds:
        from actors.gateway.serve import run_gateway  # noqa: PLC0415  an HTTP server, which no other host needs

        await run_gateway(settings, identity.host_id, identity.worker, await find_bus(settings))
        return
    if "projector" in kinds:
        from actors.projector import run_projector  # noqa: PLC0415  DuckDB, which no other host needs

        await run_projector(settings, identity.host_id, await find_bus(settings))
        return
    host = Host(settings, identity, [kind for kind in WORKER_KINDS if kind in kinds])
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, host.stop)
    await host.run()


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a host until it is stopped; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m actors.host", description="Run actors until SIGTERM.")
    parser.add_argument(
        "--kinds",
        default=",".join(WORKER_KINDS),
        help="collector,harness,sandbox,verifier (any mix), or projector, or gateway",
    )
    parser.add_argument("--host-id", help="take this id instead of the first free one")
    options = parser.parse_args(arguments)
    kinds = [k.strip() for k in options.kinds.split(",") if k.strip()]
    unknown = [k for k in kinds if k not in {*WORKER_KINDS, *ALONE}]
    if unknown or not kinds or (len(kinds) > 1 and not ALONE.isdisjoint(kinds)):
        parser.error(
            f"--kinds {options.kinds!r}: want any of {', '.join(WORKER_KINDS)}, or one of {', '.join(sorted(ALONE))} alone"
        )
    configure_logging()
    # What is loaded by now lives as long as the process: the collector need not look at it again, nor at every few
    # rollouts' worth of events (with 2,000 rollouts in flight it took a quarter of the time).
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 100)
    try:
        settings = load_settings()
        wanted = options.host_id or {"projector": "p0", "gateway": "g0"}.get(kinds[0])
        identity = Identity(take_host_id(settings.data_dir / "hosts", wanted), secrets.token_hex(4))
        try:
            import uvloop  # noqa: PLC0415  not there on every platform

            factory = uvloop.new_event_loop
        except ImportError:
            factory = None
        with asyncio.Runner(loop_factory=factory) as runner:
            runner.run(_main(settings, identity, kinds))
    except GymBusError as error:
        log.error("host_failed", reason=str(error))  # noqa: TRY400  the message says what to do; a traceback does not
        return 1
    except Exception as error:
        log.exception("host_failed", reason=reason_of(error))
        return 1
    return 0


def reason_of(error: Exception) -> str:
    """Return in a line what ended a host: of a group, the first that is in it."""
    while isinstance(error, ExceptionGroup):
        error = error.exceptions[0]
    return str(error) if isinstance(error, GymBusError) else f"{type(error).__name__}: {error}"


if __name__ == "__main__":
    sys.exit(main())
