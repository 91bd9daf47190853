"""A real bus with a log, and processes of ours beside it: gateways, hosts, and what opens sessions."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import AbstractContextManager, asynccontextmanager, contextmanager, suppress
from pathlib import Path

import httpx

from actors.gateway.grants import Grant, gateway_key, mint
from gym_bus.blobs import DirectoryBlobs
from gym_bus.clock import SystemClock
from gym_bus.codec import Codec
from gym_bus.event_log import Draft, EventLog
from gym_bus.nats_bus import connect
from gym_bus.provision import provision
from gym_bus.server import BusAddress, EmbeddedServer
from gym_bus.subjects import aggregate
from schemas.base import Event
from schemas.config import ScriptedModel, SimpleAgent
from schemas.envelope import Envelope
from schemas.events import SessionRequested
from schemas.sandboxes import Inline
from schemas.tasks import TaskInput
from schemas.values import Message, Sampling

ROOT = Path(__file__).resolve().parents[2]


class Place:
    """A bus with a log, and what opens sessions in it."""

    def __init__(self, data_dir: Path, address: BusAddress) -> None:
        self.data_dir = data_dir
        self.address = address
        self.codec = Codec(DirectoryBlobs(data_dir / "blobs"))

    async def open_session(self, rollout_id: str, model: ScriptedModel) -> str:
        """Open a session; return its token."""
        async with connect(self.address.url, "collector", self.address.passwords["collector"]) as bus:
            log = EventLog(bus, self.codec, SystemClock(), worker="h9.x", patience_s=5)
            writer = await log.claim(aggregate("r1", rollout_id, "collector", "_"), 1, None)
            assert writer is not None
            data = SessionRequested(
                task=TaskInput(task_id="sum/0", messages=(Message(role="user", content="What is 2 + 3?"),)),
                repeat=0, agent=SimpleAgent(), model=model, sandbox=Inline(), sampling=Sampling(),
            )  # fmt: skip
            await log.append(writer, Draft(data, None))
        return mint(gateway_key(self.data_dir / "keys"), Grant(aggregate("r1", rollout_id, "model", "s1"), 1))

    async def events(self, *kinds: type[Event]) -> list[Envelope]:
        """Return the log's events of some types."""
        async with connect(self.address.url, "admin", self.address.passwords["admin"]) as bus:
            found = [self.codec.decode(s.subject, s.body, s.sequence) async for s in bus.read("gym.evt.0.>")]
        return [e for e in found if isinstance(e.data, kinds)]

    def gateway(self, host_id: str = "g0", **environ: str) -> AbstractContextManager[subprocess.Popen[bytes]]:
        """Run a gateway's process."""
        return self.process("gateway", host_id, **environ)

    @contextmanager
    def process(self, kinds: str, host_id: str, **environ: str) -> Iterator[subprocess.Popen[bytes]]:
        """Run a host of `kinds` until it is left; its settings are ours, with `environ`."""
        kept = {k: v for k, v in os.environ.items() if not k.startswith("GYM_BUS_")}
        output = (self.data_dir / f"{host_id}.log").open("ab")
        process = subprocess.Popen(
            [sys.executable, "-m", "actors.host", "--kinds", kinds, "--host-id", host_id],
            cwd=ROOT, env={**kept, "GYM_BUS_DATA_DIR": str(self.data_dir), **environ}, stdout=output, stderr=output,
        )  # fmt: skip
        try:
            yield process
        finally:
            process.kill()
            process.wait()
            output.close()

    async def where(self, host_id: str = "g0") -> dict[str, str]:
        """Return where a gateway listens, as soon as it does."""
        path = self.data_dir / "hosts" / host_id / "gateway.json"
        async with asyncio.timeout(30):
            while True:
                if path.exists():
                    found: dict[str, str] = json.loads(path.read_text())
                    with suppress(httpx.HTTPError):
                        async with httpx.AsyncClient() as http:
                            if (await http.get(f"{found['url']}/healthz")).json() == {"status": "ok"}:
                                return found
                await asyncio.sleep(0.05)


@asynccontextmanager
async def a_place(tmp_path: Path) -> AsyncIterator[Place]:
    server = EmbeddedServer(tmp_path / "bus")
    address = server.ensure()
    try:
        async with connect(address.url, "admin", address.passwords["admin"]) as admin:
            await provision(admin, shards=1, max_bytes=64 * 1024**2, ack_wait_s=5)
        yield Place(tmp_path, address)
    finally:
        server.stop()
