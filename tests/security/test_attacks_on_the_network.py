"""10: out of a box by its allow list: the hosts that it names, and nothing else, however one asks."""

from __future__ import annotations

import asyncio
import shlex
import socket
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from gym_bus.errors import Permanent
from providers.sandboxes import BoxLost, SandboxProvider
from providers.sandboxes.capabilities import WithEgress, WithTerminal
from providers.sandboxes.enclosed_box import EnclosedBox
from schemas.sandboxes import NetworkPolicy
from tests.support.attacked import RUN, RedAgent, provider_of, room_of
from tests.support.egress_place import Upstream, names

ASK = """
import sys, urllib.request, urllib.error
for url in sys.argv[1:]:
    try:
        print(200, urllib.request.urlopen(url, timeout=10).read().decode())
    except urllib.error.HTTPError as error:
        print(error.code, error.read().decode().strip())
    except Exception as error:
        print("no", type(error).__name__, error)
"""
TUNNEL = """
import os, socket, sys
for where in sys.argv[1:]:
    host, port = os.environ["HTTPS_PROXY"].removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), 10) as s:
        s.sendall(f"CONNECT {where} HTTP/1.1\\r\\nHost: {where}\\r\\n\\r\\n".encode())
        head = s.recv(4000)
        print(where, head.split(b" ")[1].decode(), flush=True)
        if b" 200 " in head:
            s.sendall(b"ping")
            print(s.recv(100).decode(), flush=True)
            if sys.argv[1:] == [where]:
                s.settimeout(20)
                print("ended" if s.recv(100) == b"" else "went on")
"""
LOOK_UP = """
import socket, sys
for name in sys.argv[1:]:
    try:
        print("FOUND", name, socket.getaddrinfo(name, 443))
    except OSError as error:
        print("unknown", name)
"""


@pytest.fixture
async def upstream() -> AsyncIterator[Upstream]:
    upstream = Upstream()
    server = await asyncio.start_server(upstream.connected, "127.0.0.1", 0)
    upstream.port = server.sockets[0].getsockname()[1]
    yield upstream
    server.close()


@dataclass
class Boxed:
    """A provider whose names lead to the upstream, which is private."""

    provider: SandboxProvider
    kind: str

    async def agent(self, name: str = "1") -> tuple[RedAgent, EnclosedBox[Any]]:
        """Return an agent and its box."""
        box = await self.provider.create(f"{RUN}.{name}.b1")
        assert isinstance(box, EnclosedBox)
        return RedAgent(box, self.kind), box


@pytest.fixture
async def boxed(tmp_path: Path, upstream: Upstream, kind: str) -> AsyncIterator[Boxed]:
    network = NetworkPolicy(private=(f"a.test:{upstream.port}", f"*.b.test:{upstream.port}"))
    async with provider_of(kind, tmp_path / "boxes", network=network) as provider:
        yield Boxed(provider, kind)


async def allow(box: WithEgress, *hosts: str) -> None:
    await box.allow(hosts)


async def test_ordinary_programs_reach_what_is_allowed_and_nothing_else(boxed: Boxed, upstream: Upstream) -> None:
    """By the variables in their environment, in plain text and through a tunnel; refusals name the host and the reason."""
    red, box = await boxed.agent()
    assert "PROXY" not in (await red.said("env")).upper(), "nothing is open before it is asked for"
    port = upstream.port
    with names({"a.test": ["127.0.0.1"], "x.b.test": ["127.0.0.1"], "c.test": ["127.0.0.1"]}):
        await allow(box, f"a.test:{port}", f"*.b.test:{port}", f"c.test:{port}")
        urls = [f"http://{name}:{port}/" for name in ("a.test", "x.b.test", "b.test", "c.test")] + ["http://a.test/"]
        said = (await red.script(ASK, *urls)).output.splitlines()
        assert [line.split()[0] for line in said] == ["200", "200", "403", "403", "403"], said
        assert f"b.test:{port} is refused: it is not on the list" in said[2]
        assert "127.0.0.1 is loopback" in said[3], "allowed, and not said to be private"
        tunnelled = (await red.script(TUNNEL, f"a.test:{port}", "a.test:22", f"b.test:{port}")).output.split()
        assert tunnelled == [f"a.test:{port}", "200", "ping", "a.test:22", "403", f"b.test:{port}", "403"]
    kept, dropped = box.egress.attempts.take()
    assert dropped == 0
    assert sorted((one.host, one.port == port, one.is_allowed) for one in kept) == [
        ("a.test", False, False), ("a.test", False, False), ("a.test", True, True), ("a.test", True, True),
        ("b.test", True, False), ("b.test", True, False), ("c.test", True, False), ("x.b.test", True, True),
    ]  # fmt: skip


async def test_the_way_out_is_not_a_way_in(boxed: Boxed, upstream: Upstream) -> None:
    """Not to this machine by any of its names, not to clouds, not to an engine's socket; and no name is looked up for it."""
    red, box = await boxed.agent()
    with socket.create_server(("127.0.0.1", 0)) as bus, names({}) as looked_up:
        await allow(box, f"a.test:{upstream.port}")
        port = bus.getsockname()[1]
        inside = [
            f"{host}:{port}" for host in ("127.0.0.1", "localhost", "0.0.0.0", "[::1]", "127.1", socket.gethostname())
        ]
        clouds = [
            "169.254.169.254:80",
            "[fd00:ec2::254]:80",
            "metadata.google.internal:80",
            "secret-data.evil.test:443",
        ]
        said = (await red.script(TUNNEL, *inside, *clouds)).output.split()
        assert said[1::2] == ["403"] * (len(inside) + len(clouds))
        bus.settimeout(0.1)
        with pytest.raises(TimeoutError):
            bus.accept()
        assert looked_up == []
        direct = (await red.script(LOOK_UP, "a.test", "example.com", "metadata.google.internal")).output.split()
        assert "FOUND" not in direct
        interfaces = (await red.said("tail -n +3 /proc/net/dev | cut -d: -f1")).split()
        assert interfaces == ["lo"]


async def test_a_list_that_is_taken_back_ends_what_is_open(boxed: Boxed, upstream: Upstream) -> None:
    """In the middle of a command; and programs that still have the address are refused."""
    red, box = await boxed.agent()
    with names({"a.test": ["127.0.0.1"]}):
        await allow(box, f"a.test:{upstream.port}")
        running = asyncio.create_task(red.script(TUNNEL, f"a.test:{upstream.port}"))
        async with asyncio.timeout(20):
            while b"ping" not in upstream.heard:
                await asyncio.sleep(0.01)
        await allow(box)
        done = await asyncio.wait_for(running, 10)
        assert done.output.split() == [f"a.test:{upstream.port}", "200", "ping", "ended"]
        assert (await red.script(TUNNEL, f"a.test:{upstream.port}")).output.split() == [
            f"a.test:{upstream.port}",
            "403",
        ]
        await allow(box, f"a.test:{upstream.port}")
        assert "ping" in (await red.script(TUNNEL, f"a.test:{upstream.port}", "b.test:1")).output


async def test_jobs_and_terminals_find_the_way_as_commands_do(boxed: Boxed, upstream: Upstream) -> None:
    """Also one whose shell stood before anything was allowed; and a shell that was killed is told again."""
    red, box = await boxed.agent()
    await box.start("true", key="first", timeout_s=10)
    with names({"a.test": ["127.0.0.1"]}):
        await allow(box, f"a.test:{upstream.port}")
        job = await box.start(
            f"{red.python()} -c {shlex.quote(TUNNEL)} a.test:{upstream.port} x.test:1", key="j", timeout_s=20
        )
        async with asyncio.timeout(20):
            while (await box.status(job)).is_running:
                await asyncio.sleep(0.02)
        assert b"ping" in await box.output_of(job)
        assert isinstance(box, WithTerminal)
        terminal = await box.terminal("echo proxy=$https_proxy, $(grep Seccomp: /proc/self/status)", key="t")
        shown = b""
        async with asyncio.timeout(20):
            while b"Seccomp" not in shown:
                shown += await terminal.read(within_s=1)
        await terminal.close()
        assert b"proxy=http://127.0.0.1:8090," in shown
        assert b"Seccomp: 2" in shown
        await red.run("kill -9 -1; sleep 20", timeout_s=1)
        assert "ping" in (await red.script(TUNNEL, f"a.test:{upstream.port}", "x.test:1")).output


async def test_each_box_has_its_own_list(boxed: Boxed, upstream: Upstream) -> None:
    """What one may reach another may not; a box's proxy is neither on this machine nor in another box, and ends with it."""
    (red, box), (other, other_box) = await boxed.agent(), await boxed.agent("2")
    with names({"a.test": ["127.0.0.1"]}):
        await allow(box, f"a.test:{upstream.port}")
        refused = await other.script("import socket; socket.create_connection(('127.0.0.1', 8090), 2)")
        assert "refused" in refused.output
        with pytest.raises(OSError, match="refused"):
            socket.create_connection(("127.0.0.1", 8090), 1)
        await allow(other_box, "b.test")
        assert (await other.script(TUNNEL, f"a.test:{upstream.port}")).output.split()[1] == "403"
        assert (await red.script(TUNNEL, f"a.test:{upstream.port}", "x.test:1")).output.split()[1] == "200"
        seen = await red.said("find / -xdev -type s 2>/dev/null; ls /run /run/io 2>&1; cat /proc/net/unix | tail -n +2")
        assert "egress.sock" not in seen
    place = room_of(box).path
    assert (place / "egress.sock").is_socket()
    await box.destroy()
    assert not place.exists()
    with pytest.raises(BoxLost):
        await allow(box, "a.test")


async def test_what_cannot_be_held_to_is_not_taken(boxed: Boxed) -> None:
    """A pattern that says something else, too many of them; nothing changes, and the box goes on."""
    red, box = await boxed.agent()
    for wrong in (["10.0.0.0/8"], ["*"], [f"h{n}.test" for n in range(300)]):
        with pytest.raises(Permanent):
            await allow(box, *wrong)
    assert "PROXY" not in (await red.said("env")).upper()
    listen = "import socket, time; s = socket.create_server(('127.0.0.1', 8090)); open('up', 'w'); time.sleep(60)"
    started = f"{red.python()} -c {shlex.quote(listen)} >/dev/null 2>&1"
    await red.run(f"{started} & until [ -e up ]; do sleep 0.1; done", timeout_s=20)
    with pytest.raises(BoxLost, match="in use"):
        await allow(box, "a.test")
    assert await red.said("echo on") == "on\n"
    assert not (room_of(box).path / "egress.sock").exists()
