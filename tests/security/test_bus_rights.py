"""Who may say what on the bus is the server's to enforce; an agent's box reaches none of it, and no secret is written down."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import nats
import pytest
from nats.aio.client import Client

from gym_bus.nats_bus import connect
from gym_bus.provision import provision
from gym_bus.server import BusAddress, EmbeddedServer
from gym_bus.topology import MAY_ASK, USERS, inbox_prefix
from providers.sandboxes import make_provider
from schemas.ids import WORKER_KINDS
from schemas.sandboxes import Bubblewrap
from tests.support.backend import KEY, backend, write_config
from tests.support.checks import check_log, final_table
from tests.support.real_run import RealRun

pytestmark = pytest.mark.filterwarnings(
    "ignore:subprocess:ResourceWarning"
)  # the server outlives its starter on purpose

FACT = "gym.evt.0.r1.0-0.{}.k.some_fact"
CLAIM = "gym.evt.0.r1.0-0.{}.k.claim"
REQUEST = "gym.evt.0.r1.0-0.{}.k.cmd.{}.any"
KINDS = (*USERS, "admin", "somebody")


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BusAddress]:
    """A provisioned bus."""
    server = EmbeddedServer(tmp_path_factory.mktemp("rights") / "bus")
    made = server.ensure()

    async def prepare() -> None:
        async with connect(made.url, "admin", made.passwords["admin"]) as admin:
            await provision(admin, shards=1, max_bytes=64 * 1024**2, ack_wait_s=10)

    asyncio.run(prepare())
    yield made
    server.stop(kill=True)


@dataclass
class Trial:
    """A bare connection of one user, and what the server refused it."""

    client: Client
    refused: list[str] = field(default_factory=list)

    async def publish(self, subject: str, body: bytes = b"") -> bool:
        """Publish; return whether the server let it through."""
        await self.client.publish(subject, body)
        return await self._was_allowed()

    async def subscribe(self, pattern: str) -> bool:
        """Subscribe; return whether the server let it through."""
        subscription = await self.client.subscribe(pattern)
        is_allowed = await self._was_allowed()
        await subscription.unsubscribe()
        return is_allowed

    async def _was_allowed(self) -> bool:
        before = len(self.refused)
        for _ in range(2):  # nats-py sends the first ping ahead of what it has buffered
            await self.client.flush(5)
        await asyncio.sleep(0)
        return len(self.refused) == before


@asynccontextmanager
async def trial(address: BusAddress, user: str) -> AsyncIterator[Trial]:
    """Connect as `user` without any of our own code between it and the server."""
    refused: list[str] = []

    async def on_error(error: Exception) -> None:
        refused.append(str(error))

    client = await nats.connect(
        address.url,
        user=user,
        password=address.passwords[user],
        inbox_prefix=inbox_prefix(user).encode(),
        error_cb=on_error,
        allow_reconnect=False,
    )
    try:
        yield Trial(client, refused)
    finally:
        await client.close()


async def stored(address: BusAddress) -> int:
    """Return how many events there are."""
    async with connect(address.url, "admin", address.passwords["admin"]) as admin:
        return int((await admin.api("STREAM.INFO.GYM_EVT_0"))["state"]["messages"])


async def test_nobody_gets_in_without_a_password(address: BusAddress) -> None:
    """Neither as nobody, nor as somebody with another's password."""
    host, port = address.url.removeprefix("nats://").split(":")
    for who in ({}, {"user": "harness"}, {"user": "harness", "pass": address.passwords["sandbox"]}):
        reader, writer = await asyncio.open_connection(host, int(port))
        await reader.readline()
        writer.write(f"CONNECT {json.dumps({'verbose': False, **who})}\r\nPING\r\n".encode())
        assert b"Authorization Violation" in await reader.readline(), who
        writer.close()
        await writer.wait_closed()
    assert len(set(address.passwords.values())) == len(USERS) + 1


@pytest.mark.parametrize("user", USERS)
async def test_facts_and_claims_of_others_are_refused(address: BusAddress, user: str) -> None:
    """Each kind writes facts, claims and snapshots of its own kind only; none writes queues or the republished log."""
    before = await stored(address)
    async with trial(address, user) as as_user:
        for other in KINDS:
            if other != user:
                assert not await as_user.publish(FACT.format(other)), other
                assert not await as_user.publish(CLAIM.format(other)), other
                assert not await as_user.publish(f"gym.hb.{other}.h0"), other
        for kind in WORKER_KINDS:
            assert not await as_user.publish(f"gym.cmd.{kind}.any.0.r1.0-0.collector._"), kind
        for subject in ("gym.live.0.r1.0-0.verifier.k.verdict_issued", "gym.evt.0.r1.0-0", "anything"):
            assert not await as_user.publish(subject), subject
        assert await stored(address) == before
        own = await as_user.publish(FACT.format(user), b"{}")
        assert own == (user != "projector"), "the projector only reads"
    assert await stored(address) == before + own


@pytest.mark.parametrize("user", USERS)
async def test_only_those_may_be_asked_that_the_table_says(address: BusAddress, user: str) -> None:
    """A request to any other kind is refused, and so is one in another's name."""
    async with trial(address, user) as as_user:
        for to in KINDS:
            assert await as_user.publish(REQUEST.format(user, to), b"{}") == (to in MAY_ASK[user]), to
        for other in KINDS:
            if other != user:
                for to in WORKER_KINDS:
                    assert not await as_user.publish(REQUEST.format(other, to)), (other, to)


@pytest.mark.parametrize("user", USERS)
async def test_streams_and_queues_of_others_cannot_be_touched(address: BusAddress, user: str) -> None:
    """No user makes, changes, empties or removes streams, nor takes from or acknowledges in another's queue."""
    async with trial(address, user) as as_user:
        for stream in ("GYM_EVT_0", "GYM_CMD_HARNESS", "GYM_CMD_VERIFIER", "MINE"):
            for call in ("CREATE", "UPDATE", "DELETE", "PURGE", "RESTORE", "SNAPSHOT", "MSG.DELETE", "MSG.GET"):
                assert not await as_user.publish(f"$JS.API.STREAM.{call}.{stream}"), (call, stream)
        for kind in WORKER_KINDS:
            if kind == user:
                continue
            queue = f"GYM_CMD_{kind.upper()}"
            for call in (
                f"CONSUMER.CREATE.{queue}.any.gym.cmd.{kind}.any.>",
                f"CONSUMER.CREATE.{queue}",
                f"CONSUMER.DURABLE.CREATE.{queue}.any",
                f"CONSUMER.DELETE.{queue}.any",
                f"CONSUMER.PAUSE.{queue}.any",
                f"CONSUMER.MSG.NEXT.{queue}.any",
            ):
                assert not await as_user.publish(f"$JS.API.{call}"), call
            assert not await as_user.publish(f"$JS.ACK.{queue}.any.1.1.1.1.0", b"+ACK")
        for subject in ("$JS.API.SERVER.REMOVE", "$JS.API.ACCOUNT.PURGE.$G", "$SYS.REQ.SERVER.PING"):
            assert not await as_user.publish(subject), subject
        own = f"GYM_CMD_{user.upper()}"
        assert not await as_user.publish(f"$JS.API.CONSUMER.DELETE.{own}.any")


@pytest.mark.parametrize("user", USERS)
async def test_nobody_listens_to_what_is_not_meant_for_it(address: BusAddress, user: str) -> None:
    """Not to inboxes of others, not to the log as it is written, not to queues, not to everything."""
    async with trial(address, user) as as_user:
        patterns = [f"{inbox_prefix(other)}.>" for other in USERS if other != user]
        patterns += [
            "gym.evt.>",
            "gym.evt.0.r1.0-0.verifier.>",
            "gym.>",
            ">",
            "*.>",
            "_INBOX.>",
            "gym.cmd.>",
            "$JS.>",
            "$SYS.>",
        ]
        for pattern in patterns:
            assert not await as_user.subscribe(pattern), pattern
        assert await as_user.subscribe("gym.live.>") == (user == "cli")
        assert await as_user.subscribe("gym.query") == (user == "projector")
        assert await as_user.subscribe(f"{inbox_prefix(user)}.x")


# -- the box -------------------------------------------------------------------------------------------------------------------


async def test_a_box_reaches_neither_the_bus_nor_its_passwords(address: BusAddress, tmp_path: Path) -> None:
    """Every way to the port fails, and no password is in the environment, in processes, or in a file that can be read."""
    passwords = list(address.passwords.values())
    ports = [int(url.rpartition(":")[2]) for url in (address.url, address.monitoring or "")]
    provider = make_provider(Bubblewrap(), tmp_path / "boxes")
    await provider.check()
    box = await provider.create("r1.0-0.b1")
    try:
        for port in ports:
            for host in ("127.0.0.1", "localhost", "[::1]", "0.0.0.0", os.uname().nodename):
                tried = await box.exec(
                    f"timeout 3 bash -c 'exec 3<>/dev/tcp/{host}/{port} && head -c 9 <&3'", key="k", timeout_s=10
                )
                assert tried.exit_code != 0, (host, port, tried.output)
                assert "INFO" not in tried.output
                assert host != "127.0.0.1" or "refused" in tried.output, "bash itself has to be there"
        find = (
            "env; cat /proc/*/environ /proc/*/cmdline 2>/dev/null | tr '\\0' '\\n'; cat /proc/net/tcp; "
            "ls -la / /root /home /var/tmp /tmp /run 2>&1; "
            "find / -xdev \\( -name 'credentials.j*' -o -name 'nats.con*' -o -name 'last_por*' -o -name '*.duck*' \\) 2>/dev/null; "
            f"find {tmp_path.parent}"
        )
        seen = await box.exec(find, key="k", timeout_s=60)
        assert not seen.truncated
        assert not [p for p in passwords if p in seen.output]
        assert not [
            name for name in ("credentials.json", "nats.conf", "last_ports.json", ".duckdb") if name in seen.output
        ]
        assert f":{ports[0]:04X}" not in seen.output
        searched = await box.exec(
            "grep -rIlsF -e " + " -e ".join(passwords) + " /etc /tmp /run /box /home /root /var /opt /srv /dev/shm",
            key="k",
            timeout_s=60,
        )
        assert not searched.output.strip(), searched.output
    finally:
        await box.destroy()
        await provider.aclose()


def test_the_models_key_is_written_nowhere(tmp_path: Path) -> None:
    """I13: after a run whose backend and whose agent repeat the key, it is in its own file and in no other."""
    run = RealRun(tmp_path)
    canary = KEY
    try:
        with backend(
            tool="env; cat /proc/*/environ; find / -name 's*' -path '*secrets*' 2>/dev/null; echo said: " + canary
        ) as fake:
            config = write_config(tmp_path, fake, tasks=2, agent={"enable_tools": True}, sandbox={"type": "bubblewrap"})
            written = json.loads(config.read_text())
            del written["model"]["policy_api_key"]
            config.write_text(json.dumps(written))
            run.environ = {"MY_CANARY_KEY": canary}
            arguments = ["eval", "run", "--config", str(config), "--run-id", "r1", "--output", str(tmp_path / "out")]
            done = run.cli(*arguments, "--model-api-key", "env:MY_CANARY_KEY")
            assert done.returncode == 0, done.stdout + done.stderr
            assert fake.keys == {f"Bearer {canary}"}
        shown = [done.stdout, done.stderr]
        for command in (
            ["eval", "status", "r1"],
            ["log", "show", "r1", "--json"],
            ["sql", "SELECT * FROM events", "--json"],
        ):
            told = run.cli(*command)
            assert told.returncode == 0, told.stderr
            shown += [told.stdout, told.stderr]
        assert not [text for text in shown if canary in text]
        events = run.events()
        check_log(events)
        assert list(final_table(events).values()) == [("scored", 1.0)] * 2
        tools = [e for e in events if e.type == "tool_call_completed.v1"]
        assert [e.model_dump_json().count("[redacted]") for e in tools] == [1, 1], "only what the agent said itself"
        said = [e.model_dump_json() for e in events]
        assert not [text for text in said if canary in text]
        assert sum("said: [redacted]" in text for text in said) >= 2, "the agent did repeat the key, and it was masked"
        for pid in run.pids():
            assert canary.encode() not in Path(f"/proc/{pid}/environ").read_bytes()
            assert canary.encode() not in Path(f"/proc/{pid}/cmdline").read_bytes()
        assert run.cli("bus", "down").returncode == 0
        files = [p for p in tmp_path.rglob("*") if p.is_file()]
        names = {p.name for p in files}
        assert {"projections.duckdb", "rollouts.jsonl", "h0.log", "nats.log"} <= names
        assert any(p.suffix == ".blk" for p in files), "the stream's own bytes are looked at"
        holders = [p for p in files if canary.encode() in p.read_bytes()]
        [only] = holders
        assert only.parent == run.data_dir / "secrets"
        assert only.stat().st_mode & 0o777 == 0o600
    finally:
        run.stop()
    assert not run.pids()
