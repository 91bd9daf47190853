"""The embedded server: one on each store, the same port for ever, nothing lost by a kill; and what is provisioned on it."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import subprocess
import sys
from collections.abc import AsyncGenerator, Callable, Generator
from pathlib import Path
from typing import Any

import pytest

from gym_bus import server as server_module
from gym_bus.blobs import MemoryBlobs
from gym_bus.bus import Delivery, Slots
from gym_bus.clock import SystemClock
from gym_bus.codec import Codec
from gym_bus.errors import Corrupt, Permanent, Retryable
from gym_bus.event_log import Draft, EventLog
from gym_bus.locks import try_lock, write_owner
from gym_bus.nats_bus import NatsBus, connect
from gym_bus.provision import ensure_consumer, ensure_stream, places_of, provision
from gym_bus.server import EmbeddedServer
from gym_bus.subjects import aggregate
from gym_bus.topology import event_stream_config, queue_stream_config
from schemas.ids import WORKER_KINDS
from tests.support.examples import EXAMPLES

# The server outlives whoever started it, on purpose: Popen complains about that when it is collected.
pytestmark = pytest.mark.filterwarnings("ignore:subprocess:ResourceWarning")

MIB = 1024**2
STREAMS = ["GYM_EVT_0", *(f"GYM_CMD_{kind.upper()}" for kind in WORKER_KINDS)]


@pytest.fixture
def server(tmp_path: Path) -> Generator[EmbeddedServer]:
    made = EmbeddedServer(tmp_path / "bus")
    yield made
    made.stop(kill=True)


@pytest.fixture
async def admin(server: EmbeddedServer) -> AsyncGenerator[NatsBus]:
    address = server.ensure()
    async with connect(address.url, "admin", address.passwords["admin"]) as bus:
        yield bus


async def make(admin: NatsBus, **options: Any) -> None:
    """Provision as `gym-bus bus up` does."""
    await provision(admin, **{"shards": 1, "max_bytes": 64 * MIB, "ack_wait_s": 0.5, **options})


async def config_of(admin: NatsBus, stream: str) -> dict[str, Any]:
    config: dict[str, Any] = (await admin.api(f"STREAM.INFO.{stream}"))["config"]
    return config


async def ask(log: EventLog, number: int) -> int:
    """Ask the harness for the session of rollout `<number>-0`; return the request's sequence."""
    where = aggregate("r1", f"{number}-0", "collector", "_")
    return (await log.append_alone(where, 1, Draft(EXAMPLES["session_requested.v1"], None))).sequence


def log_on(bus: NatsBus) -> EventLog:
    return EventLog(bus, Codec(MemoryBlobs()), SystemClock(), worker="h0.b1", patience_s=30)


# -- one server ----------------------------------------------------------------------------------------------------------------


def test_asking_for_the_address_starts_nothing(tmp_path: Path) -> None:
    """Whoever only looks leaves no trace."""
    found = EmbeddedServer(tmp_path / "bus")
    assert found.address() is None
    assert found.health() == (False, "not running")
    assert not found.stop()
    assert list(tmp_path.iterdir()) == []


def test_ensuring_twice_gives_one_server(server: EmbeddedServer) -> None:
    """The running server is found, well, by whoever asks."""
    first = server.ensure()
    assert EmbeddedServer(server.directory).ensure() == first
    assert EmbeddedServer(server.directory).address() == first
    assert server.health() == (True, "ok")


def test_processes_that_start_it_at_once_get_one_server(server: EmbeddedServer) -> None:
    """Of many that find none running, one starts it, and all are given the same."""
    code = (
        "import sys; from pathlib import Path; from gym_bus.server import EmbeddedServer\n"
        "a = EmbeddedServer(Path(sys.argv[1])).ensure(); print(a.url, a.pid, a.passwords['cli'])"
    )
    root = str(Path(__file__).resolve().parents[2])
    command = [sys.executable, "-W", "ignore", "-c", code, str(server.directory)]
    starting = [
        subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": root})
        for _ in range(3)
    ]
    found = {process.communicate(timeout=60)[0] for process in starting}
    assert len(found) == 1
    address = server.address()
    assert address
    assert found == {f"{address.url} {address.pid} {address.passwords['cli']}\n"}


def test_the_port_is_the_same_after_a_restart(server: EmbeddedServer) -> None:
    """Stopped or killed: it comes back where its clients look for it."""
    first = server.ensure()
    for is_killed in (False, True):
        assert server.stop(kill=is_killed)
        assert server.address() is None
        again = server.ensure()
        assert (again.url, again.passwords) == (first.url, first.passwords)
        assert again.pid != first.pid


def test_a_taken_port_is_an_error_that_says_what_to_do(server: EmbeddedServer) -> None:
    """Another program on the bus's port is named as the reason; nothing is taken for the server."""
    port = int(server.ensure().url.rpartition(":")[2])
    server.stop()
    with socket.create_server(("127.0.0.1", port)):
        with pytest.raises(Permanent, match=rf"port {port}.*taken.*last_ports\.json"):
            server.ensure()
        assert server.address() is None
    assert server.ensure().url.endswith(f":{port}")


def test_a_store_that_another_process_holds_is_an_error(
    server: EmbeddedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two servers never run on one store: who holds it is named, with what to do."""
    monkeypatch.setattr(server_module, "FOREIGN_TIMEOUT_S", 0.3)
    lock = try_lock(server.directory / "lock")
    assert lock is not None
    write_owner(lock, "something with pid 4711")
    try:
        with pytest.raises(Retryable, match=r"locked by another process \(something with pid 4711\).*--data-dir"):
            server.ensure()
    finally:
        os.close(lock)


def test_a_server_that_cannot_start_says_why(server: EmbeddedServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """The server's own last words are in the error, and the lock is free again."""
    monkeypatch.setattr(EmbeddedServer, "_config", lambda *_: "no configuration {")
    with pytest.raises(Permanent, match="ended at once"):
        server.ensure()
    monkeypatch.undo()
    assert server.ensure()


def test_what_holds_passwords_is_for_this_user_only(server: EmbeddedServer) -> None:
    """Credentials and configuration are 0600 under a directory of 0700, whatever the umask."""
    mask = os.umask(0)
    try:
        server.ensure()
    finally:
        os.umask(mask)
    assert server.directory.stat().st_mode & 0o777 == 0o700
    passwords = server.passwords()
    for path in server.directory.rglob("*"):
        if path.is_file() and any(secret.encode() in path.read_bytes() for secret in passwords.values()):
            assert path.stat().st_mode & 0o777 == 0o600, path
    assert json.loads((server.directory / "credentials.json").read_text()) == passwords
    assert len(set(passwords.values())) == len(passwords)


async def test_a_wrong_password_is_said_to_be_wrong(server: EmbeddedServer) -> None:
    """Another user's password is refused, with words that say so."""
    address = server.ensure()
    with pytest.raises(Permanent, match="password"):
        async with connect(address.url, "harness", address.passwords["sandbox"]):
            pass


class Load:
    """Asks for sessions without an end, and takes what was asked for; before the kill one in seven is left unanswered."""

    def __init__(self, collector: NatsBus, harness: NatsBus) -> None:
        self.log = log_on(collector)
        self.harness = harness
        self.asked: list[int] = []
        self.handed: list[int] = []
        self.has_come_back = False
        self.changed = asyncio.Event()
        self._slots = Slots(16)

    async def ask(self) -> None:
        """Ask until the server has been back for a while."""
        after = 0
        while after < 100:
            self.asked.append(await ask(self.log, len(self.asked)))
            after += self.has_come_back

    async def work(self) -> None:
        """Take requests until cancelled."""
        await self.harness.work("harness", "any", self._slots, self._deliver)

    def _deliver(self, delivery: Delivery) -> None:
        self.handed.append(delivery.stored.sequence)
        if self.has_come_back or len(self.handed) % 7:
            delivery.ack()
        self._slots.give()
        self.changed.set()

    async def until_handed(self, is_enough: Callable[[set[int]], bool]) -> None:
        """Wait until enough has been handed out."""
        async with asyncio.timeout(30):
            while not is_enough(set(self.handed)):
                self.changed.clear()
                await self.changed.wait()


async def test_killed_under_load_it_loses_nothing(server: EmbeddedServer, admin: NatsBus) -> None:
    """SIGKILL with appends and requests in flight: what was acknowledged is there, and every request is handed out."""
    await make(admin)
    address = server.ensure()
    async with (
        connect(address.url, "collector", address.passwords["collector"]) as collector,
        connect(address.url, "harness", address.passwords["harness"]) as harness,
        asyncio.TaskGroup() as group,
    ):
        load = Load(collector, harness)
        asking, working = group.create_task(load.ask()), group.create_task(load.work())
        await load.until_handed(lambda handed: len(handed) >= 100)
        await asyncio.to_thread(server.stop, kill=True)
        unanswered = set(load.handed[6::7])
        again = await asyncio.to_thread(server.ensure)
        assert again.url == address.url
        load.has_come_back = True
        async with asyncio.timeout(30):
            await asking
        await load.until_handed(set(load.asked).issubset)
        await load.until_handed(lambda _: all(load.handed.count(s) > 1 for s in unanswered))
        stored = [s.sequence async for s in collector.read("gym.evt.0.r1.>")]
        assert stored == load.asked, "an event is missing, or there twice"
        assert set(load.handed) == set(stored), "a request was handed out that is not in the log"
        assert collector.reconnects == harness.reconnects == 1
        working.cancel()


# -- what is provisioned -------------------------------------------------------------------------------------------------------


async def test_provisioning_again_changes_nothing(admin: NatsBus) -> None:
    """Streams, queues and consumers are made once; doing it again, or by two at once, finds them as they are."""
    await make(admin)
    first = [await config_of(admin, s) for s in STREAMS]
    names = [await places_of(admin, kind) for kind in WORKER_KINDS]
    assert names == [["any", "ctl"]] * len(WORKER_KINDS)
    await make(admin)
    await asyncio.gather(make(admin), make(admin))
    assert [await config_of(admin, s) for s in STREAMS] == first
    assert [await places_of(admin, kind) for kind in WORKER_KINDS] == names


async def test_a_place_gets_its_own_consumer(admin: NatsBus) -> None:
    """A host's place is made once and found by its name; its `ack_wait` follows the settings."""
    await make(admin)
    for ack_wait_s in (0.5, 0.5, 2.0):
        await ensure_consumer(admin, "sandbox", "h7", ack_wait_s)
    assert await places_of(admin, "sandbox") == ["any", "at-h7", "ctl"]
    info = await admin.api("CONSUMER.INFO.GYM_CMD_SANDBOX.at-h7")
    assert info["config"]["ack_wait"] == 2_000_000_000


FOREIGN: list[tuple[str, dict[str, Any]]] = [
    ("retention", {"retention": "interest"}),
    ("storage", {"storage": "memory"}),
    ("subjects", {"subjects": ["gym.evt.7.only.>"]}),
    ("deny_delete", {"deny_delete": False}),
    ("republish", {"republish": {"src": "gym.evt.7.>", "dest": "elsewhere.>"}}),
]


@pytest.mark.parametrize(("name", "change"), FOREIGN)
async def test_a_stream_with_another_meaning_is_refused(admin: NatsBus, name: str, change: dict[str, Any]) -> None:
    """What is there under the same name and means something else is named, with both values and what to do; it is left alone."""
    wanted = event_stream_config(7, 8 * MIB)
    made = await admin.api("STREAM.CREATE.GYM_EVT_7", {**wanted, **change})
    assert "error" not in made, made
    before = await config_of(admin, "GYM_EVT_7")
    with pytest.raises(
        Permanent, match=rf"GYM_EVT_7 exists with another meaning \({name}: wanted .*, found .*use another"
    ):
        await ensure_stream(admin, dict(wanted))
    assert await config_of(admin, "GYM_EVT_7") == before


async def test_a_queue_with_other_sources_is_refused(admin: NatsBus) -> None:
    """A queue that takes from other streams would miss requests."""
    for shard in (0, 1):
        await ensure_stream(admin, dict(event_stream_config(shard, 8 * MIB)))
    await ensure_stream(admin, dict(queue_stream_config("harness", 1)))
    with pytest.raises(Permanent, match="sources"):
        await ensure_stream(admin, dict(queue_stream_config("harness", 2)))


@pytest.mark.parametrize("wanted", [2 * MIB, 32 * MIB])
async def test_the_limit_of_the_store_follows_the_settings(admin: NatsBus, wanted: int) -> None:
    """More room or less: the limit is migrated, and nothing else."""
    await ensure_stream(admin, dict(event_stream_config(0, 8 * MIB)))
    before = await config_of(admin, "GYM_EVT_0")
    assert not await ensure_stream(admin, dict(event_stream_config(0, wanted)))
    assert await config_of(admin, "GYM_EVT_0") == {**before, "max_bytes": wanted}


async def test_a_missing_queue_beside_a_log_is_an_error(server: EmbeddedServer, admin: NatsBus) -> None:
    """A queue made again hands out all history, so that is done only when asked for; it then does so."""
    await make(admin)
    address = server.ensure()
    async with connect(address.url, "collector", address.passwords["collector"]) as collector:
        asked = [await ask(log_on(collector), number) for number in range(3)]
    assert (await admin.api("STREAM.DELETE.GYM_CMD_HARNESS"))["success"]
    with pytest.raises(Corrupt, match=r"GYM_CMD_HARNESS is missing.*--rebuild-queues"):
        await make(admin)
    await make(admin, rebuild_queues=True)
    arrived: asyncio.Queue[Delivery] = asyncio.Queue()
    async with connect(address.url, "harness", address.passwords["harness"]) as harness:
        working = asyncio.create_task(harness.work("harness", "any", Slots(8), arrived.put_nowait))
        found = [(await asyncio.wait_for(arrived.get(), 5)).stored.sequence for _ in asked]
        working.cancel()
    assert found == asked


async def test_a_missing_queue_beside_an_empty_log_is_made(admin: NatsBus) -> None:
    """With nothing in the log there is no history to hand out."""
    await make(admin)
    await admin.api("STREAM.DELETE.GYM_CMD_HARNESS")
    await make(admin)
    assert await places_of(admin, "harness") == ["any", "ctl"]


async def test_no_event_can_be_deleted(server: EmbeddedServer, admin: NatsBus) -> None:
    """Not even the administrator deletes an event, and the rule itself cannot be lifted."""
    await make(admin)
    address = server.ensure()
    async with connect(address.url, "collector", address.passwords["collector"]) as collector:
        sequence = await ask(log_on(collector), 1)
    deleted = await admin.api("STREAM.MSG.DELETE.GYM_EVT_0", {"seq": sequence})
    assert "error" in deleted
    config = await config_of(admin, "GYM_EVT_0")
    assert "error" in await admin.api("STREAM.UPDATE.GYM_EVT_0", {**config, "deny_delete": False})
    assert (await admin.api("STREAM.INFO.GYM_EVT_0"))["state"]["messages"] == 1


def test_a_data_directory_may_have_any_name(tmp_path: Path) -> None:
    """Letters beyond ASCII, spaces and quotes are no trouble for the server's configuration."""
    server = EmbeddedServer(tmp_path / 'däta "名"' / "bus")
    try:
        assert server.ensure().pid
    finally:
        server.stop(kill=True)


@pytest.mark.parametrize("content", [b"", b"\xff\xfe\x00", b"[1", b"{}", b"null"])
@pytest.mark.parametrize("name", ["last_ports.json", "credentials.json", "id"])
def test_a_small_file_that_is_broken_is_made_anew(server: EmbeddedServer, name: str, content: bytes) -> None:
    """A crash or a full disk may leave it so: the server starts all the same."""
    server.ensure()
    server.stop()
    (server.directory / name).write_bytes(content)
    assert EmbeddedServer(server.directory).ensure().pid
