"""The projector as a process on a real bus: killed, given a bad file, left without a bus, and right afterwards."""

from __future__ import annotations

import asyncio
import json
import signal
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb
import pytest

from actors.projector import Projector
from gym_bus.blobs import DirectoryBlobs
from gym_bus.boundary import POINTS
from gym_bus.bus import Stored
from gym_bus.nats_bus import NatsBus, connect
from gym_bus.provision import provision
from gym_bus.server import BusAddress, EmbeddedServer
from projections import Ingest, fingerprint, open_store, violations
from tests.support.logs import RUN, finished_log, project
from tests.support.projector_process import start_projector, stop

# The server outlives whoever started it, on purpose: Popen complains about that when it is collected.
pytestmark = pytest.mark.filterwarnings("ignore:subprocess:ResourceWarning")


@dataclass
class Place:
    """A data directory with its bus, and the log of a finished run."""

    data_dir: Path
    server: EmbeddedServer
    address: BusAddress
    stored: list[Stored]
    expected: str

    @property
    def manifest(self) -> Path:
        """Return what the projector writes last of a run's results."""
        return self.data_dir / "out" / "manifest.json"

    @asynccontextmanager
    async def cli(self) -> AsyncGenerator[NatsBus]:
        """Connect as the command line."""
        async with connect(self.address.url, "cli", self.address.passwords["cli"]) as bus:
            yield bus

    async def publish(self, stored: list[Stored]) -> None:
        """Store events as they are."""
        async with connect(self.address.url, "admin", self.address.passwords["admin"]) as admin:
            for s in stored:
                await admin.client.publish(s.subject, s.body)
            await admin.client.flush()


async def ask(cli: NatsBus, subject: str, **question: Any) -> dict[str, Any]:
    """Ask until a projector answers."""
    async with asyncio.timeout(20):
        while True:
            message = await cli.mailbox.ask(subject, json.dumps(question).encode(), 8)
            if message.data:
                found: dict[str, Any] = json.loads(message.data)
                return found
            await asyncio.sleep(0.05)


async def caught_up(place: Place) -> dict[str, Any]:
    async with place.cli() as cli, asyncio.timeout(20):
        while True:
            found = await ask(cli, "gym.query", sql="select count(*) from events", after_seq={"0": len(place.stored)})
            if found["cursor"] == {"0": len(place.stored)}:
                return found


async def appeared(path: Path) -> None:
    async with asyncio.timeout(20):
        while not await asyncio.to_thread(path.exists):
            await asyncio.sleep(0.02)


@pytest.fixture
async def place(tmp_path: Path) -> AsyncGenerator[Place]:
    log, blobs = finished_log()
    there = str(tmp_path / "out").encode()
    stored = [Stored(s.subject, s.body.replace(b"/nonexistent", there), s.sequence) for s in log]
    on_disk = DirectoryBlobs(tmp_path / "blobs")
    for content in blobs._content.values():
        on_disk.put(content)
    server = EmbeddedServer(tmp_path / "bus")
    address = server.ensure()
    async with connect(address.url, "admin", address.passwords["admin"]) as admin:
        await provision(admin, shards=1, max_bytes=256 * 1024**2, ack_wait_s=10)
    yield Place(tmp_path, server, address, stored, fingerprint(project(stored, blobs)))
    server.stop()


def check_file(place: Place) -> None:
    """The file says what a projection from nothing says, and every event is in it once."""
    connection = open_store(place.data_dir / "projections.duckdb")
    assert connection.execute("select count(*), count(distinct seq), max(seq) from events").fetchone() == (
        len(place.stored), len(place.stored), len(place.stored),
    )  # fmt: skip
    assert fingerprint(connection) == place.expected
    assert violations(connection) == {}
    connection.close()


@pytest.mark.parametrize("point", POINTS["projector"])
async def test_killed_at_a_boundary_the_projection_is_whole_after_a_restart(place: Place, point: str) -> None:
    """I9: with SIGKILL at any boundary, the restarted projector has every event once, and the results are written."""
    await place.publish(place.stored)
    process = start_projector(place.data_dir, {"GYM_BUS_FAULT": f"projector.{point}:kill:1"})
    assert await asyncio.to_thread(process.wait, 60) == -signal.SIGKILL
    process = start_projector(place.data_dir)
    try:
        assert (await caught_up(place))["rows"] == [[len(place.stored)]]
        await appeared(place.manifest)
    finally:
        assert stop(process) == 0
    check_file(place)
    assert json.loads(place.manifest.read_text())["counts"]["scored"] == 12


async def test_a_log_that_grows_and_a_bus_that_dies(place: Place) -> None:
    """Live events are answered for after a kill -9 of the server in between; nothing is lost or doubled."""
    half = len(place.stored) // 2
    await place.publish(place.stored[:half])
    process = start_projector(place.data_dir)
    try:
        async with place.cli() as cli:
            found = await ask(cli, "gym.query", sql="select count(*) from events", after_seq={"0": half})
            assert (found["rows"], found["lag"]) == ([[half]], 0)
        await asyncio.sleep(
            1.2
        )  # the server syncs once a second: what it has acknowledged only in memory is not at stake here
        await asyncio.to_thread(place.server.stop, kill=True)
        await asyncio.to_thread(place.server.ensure)
        await place.publish(place.stored[half:])
        assert (await caught_up(place))["rows"] == [[len(place.stored)]]
        async with place.cli() as cli:
            async with asyncio.timeout(20):
                while "pending" in (exported := await ask(cli, "gym.export", run_id=RUN, after_seq={"0": 1})):
                    await asyncio.sleep(0.05)
            assert Path(exported["paths"]["manifest.json"]) == place.manifest
            assert "error" in await ask(cli, "gym.export", run_id="nobody")
            assert "error" in await ask(cli, "gym.export", run_id=RUN, after_seq="all")
            assert await ask(cli, "gym.export", run_id=RUN, after_seq={"0": 10**9}) == {"pending": True}
            assert "error" in await ask(cli, "gym.query", sql="select 1; select 2")
    finally:
        assert stop(process) == 0
    check_file(place)


@pytest.mark.parametrize("damage", ["garbage", "other version", "another log", "of nobody"])
async def test_a_file_that_cannot_be_used_is_set_aside_and_rebuilt(place: Place, damage: str) -> None:
    """A corrupt, old or foreign file is kept under another name, and the projection made again from the log."""
    path = place.data_dir / "projections.duckdb"
    if damage == "garbage":
        path.write_bytes(b"not a database" * 5000)
    elif damage == "of nobody":
        with duckdb.connect(str(path)) as connection:
            connection.execute("create table t (a integer)")
    else:
        connection = open_store(path)
        if damage == "other version":
            connection.execute("update projection_meta set version = 0")
        else:
            connection.execute("insert into projection_cursor values (0, 5, 'yesterday')")
        connection.close()
    await place.publish(place.stored)
    process = start_projector(place.data_dir)
    try:
        await caught_up(place)
    finally:
        assert stop(process) == 0
    assert (place.data_dir / "projections.duckdb.aside-1").exists()
    assert b"projection_set_aside" in (place.data_dir / "projector.log").read_bytes()
    check_file(place)


async def test_a_disk_that_refuses_is_waited_for(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """A full disk delays the projection; it goes on by itself when there is room again."""
    refusals = iter([duckdb.IOException("No space left on device")] * 3)
    apply = Ingest.apply

    def refuse(self: Ingest, batch: Any) -> Any:
        if error := next(refusals, None):
            raise error
        return apply(self, batch)

    monkeypatch.setattr(Ingest, "apply", refuse)
    await place.publish(place.stored)
    async with connect(place.address.url, "projector", place.address.passwords["projector"]) as bus:
        projecting = asyncio.create_task(Projector(bus, place.data_dir, "p0").run())
        await caught_up(place)
        projecting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await projecting
    check_file(place)
    assert not (place.data_dir / "projections.duckdb.aside-1").exists(), "nothing was wrong with the file"


async def test_two_projectors_do_not_write_one_file(place: Place) -> None:
    """The second waits for the first one's lock and takes over when it ends."""
    await place.publish(place.stored)
    first = start_projector(place.data_dir)
    await caught_up(place)
    async with connect(place.address.url, "projector", place.address.passwords["projector"]) as bus:
        second = asyncio.create_task(Projector(bus, place.data_dir, "p1").run())
        await asyncio.sleep(0.5)
        assert not second.done()
        assert stop(first) == 0
        await caught_up(place)
        second.cancel()
        with pytest.raises(asyncio.CancelledError):
            await second
    check_file(place)
