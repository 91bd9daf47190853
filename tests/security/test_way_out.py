"""The one way out of a sandbox: to the model gateway, and to nothing else."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shlex
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import cast

import pytest

from actors.gateway.serve import listening, server_for
from gym_bus.reach import REACHED, probe
from gym_bus.settings import Settings
from providers.sandboxes import Box, BoxLost, ExecResult
from providers.sandboxes.bubblewrap import BubblewrapBox, BubblewrapProvider
from providers.sandboxes.capabilities import WithWayOut
from providers.sandboxes.way_out import PORT
from schemas.conversation import Reply, Text, TokenUsage
from schemas.events import ModelCallCompleted
from schemas.sandboxes import Bubblewrap
from tests.support.boxes import DOCKER, PODMAN, provider_of
from tests.support.gateway_place import GatewayPlace, gateway_place
from tests.support.own_address import own_address

ASK = """
import json, sys, urllib.request
url, token, streamed = sys.argv[1], sys.argv[2], sys.argv[3] == "1"
body = {"model": "m", "stream": streamed, "messages": [{"role": "user", "content": "hello " * int(sys.argv[4])}]}
call = urllib.request.Request(url + "/v1/chat/completions", json.dumps(body).encode(), {"authorization": "Bearer " + token})
call.add_header("content-type", "application/json")
print(urllib.request.urlopen(call, timeout=20).read().decode())
"""
LOOK = """
import socket, sys
for where in sys.argv[1:]:
    host, port = where.rsplit(":", 1)
    try:
        socket.create_connection((host, int(port)), 2).close()
        print("REACHED", where)
    except OSError as error:
        print("no", where, error)
"""


def descriptors() -> int:
    """Return how many files this process has open."""
    return len(list(Path("/proc/self/fd").iterdir()))


async def run(box: BubblewrapBox, script: str, *arguments: str) -> ExecResult:
    command = shlex.join(["python3", "-c", script, *arguments])
    return await box.exec(command, key=os.urandom(4).hex(), timeout_s=30)


async def way_out_of(box: WithWayOut, gateway: Path) -> str:
    return await box.open_way_out(gateway, PORT)


@asynccontextmanager
async def boxes(tmp_path: Path, count: int = 1) -> AsyncIterator[list[BubblewrapBox]]:
    provider = BubblewrapProvider(Bubblewrap(), tmp_path / "boxes")
    try:
        yield [await provider.create(f"r.{n}.b1") for n in range(count)]
    finally:
        await provider.aclose()


@asynccontextmanager
async def gateway_on_a_socket(tmp_path: Path) -> AsyncIterator[tuple[GatewayPlace, Path, str]]:
    """Give a gateway, its unix socket, and its TCP address on this machine."""
    async with gateway_place() as place:
        usage = TokenUsage(input_tokens=3, output_tokens=2)
        said = (Text(text="hi there"),)
        place.upstream.answers = [
            Reply(dialect="chat", id="r", model="up", parts=said, stop_reason="stop", usage=usage)
        ]
        with listening(Settings(data_dir=tmp_path), tmp_path / "gw") as (sockets, where):
            server = server_for(place.gateway)
            serving = asyncio.create_task(server.serve(sockets=sockets))
            try:
                yield place, Path(where["socket"]), where["url"]
            finally:
                server.should_exit = True
                await serving


async def test_a_client_in_the_box_asks_the_model_and_the_log_has_it(tmp_path: Path) -> None:
    """Whole and streamed, small and large; the address is an ordinary one to every SDK."""
    async with gateway_on_a_socket(tmp_path) as (place, gateway, _), boxes(tmp_path) as (box,):
        url = await way_out_of(box, gateway)
        assert url == "http://127.0.0.1:8089"
        for streamed, size in ((False, 1), (True, 1), (False, 200_000)):
            answer = await run(box, ASK, url, place.token, str(int(streamed)), str(size))
            assert answer.exit_code == 0, answer.output
            assert "hi there" in answer.output or '"hi there"' in answer.output
            assert ("data: " in answer.output) == streamed
        assert len(place.events(ModelCallCompleted)) == 3
        found = await box.exec(probe(url), key="probe", timeout_s=20)
        assert found.output.strip() == REACHED
        refused = await run(box, ASK, url, "gbt.x.y", "0", "1")
        assert "401" in refused.output


async def test_there_is_no_other_way(tmp_path: Path) -> None:
    """Not this machine's services, not its other addresses, not the metadata of a cloud, not another box, not anything outside."""
    async with gateway_on_a_socket(tmp_path) as (_, gateway, url), boxes(tmp_path, 2) as (box, other):
        await way_out_of(box, gateway)
        tcp_port = url.rpartition(":")[2]
        with socket.create_server(("0.0.0.0", 0)) as anywhere:  # as careless services listen
            port = anywhere.getsockname()[1]
            own = own_address()
            tried = [f"127.0.0.1:{tcp_port}", f"127.0.0.1:{port}", f"{own}:{port}", "169.254.169.254:80", "1.1.1.1:53"]
            found = await run(box, LOOK, *tried)
        assert len(found.output.splitlines()) == len(tried), found.output
        assert "REACHED" not in found.output
        elsewhere = await run(other, LOOK, f"127.0.0.1:{PORT}")
        assert "REACHED" not in elsewhere.output, "the way out is one box's alone"
        with pytest.raises(OSError, match=r"refused"):
            socket.create_connection(("127.0.0.1", PORT), 1)
        files = await box.exec("ls /run /run/gw 2>&1; cat /proc/net/unix | wc -l", key="files", timeout_s=10)
        assert "gateway.sock" not in files.output, "the socket itself is not in the box"


async def test_the_way_ends_with_the_box(tmp_path: Path) -> None:
    """A destroyed box leaves no port, no connection and no helper; a dead one cannot be given a way."""
    async with gateway_on_a_socket(tmp_path) as (_, gateway, _), boxes(tmp_path) as (box,):
        await way_out_of(box, gateway)
        before = descriptors()
        await box.exec(f"(exec 3<>/dev/tcp/127.0.0.1/{PORT}; sleep 100) & true", key="hold", timeout_s=5)
        await box.destroy()
        with pytest.raises(BoxLost):
            await way_out_of(box, gateway)
        await asyncio.sleep(0.1)
        assert descriptors() < before


async def test_a_gateway_that_comes_back_is_reached_again(tmp_path: Path) -> None:
    """While it is away a connection is closed at once, never left hanging; the box's address stays the same."""
    async with boxes(tmp_path) as (box,):
        gateway = tmp_path / "gw" / "gateway.sock"
        await way_out_of(box, gateway)
        away = await run(box, ASK, f"http://127.0.0.1:{PORT}", "t", "0", "1")
        assert away.exit_code != 0
        assert away.duration_s < 10
        for _ in range(2):
            async with gateway_on_a_socket(tmp_path) as (place, again, _):
                assert again == gateway
                answer = await run(box, ASK, f"http://127.0.0.1:{PORT}", place.token, "0", "1")
                assert "hi there" in answer.output, answer.output


async def test_two_directions_end_by_themselves(tmp_path: Path) -> None:
    """The end of what is sent is passed on, and the answer still comes; as HTTP/1.0 and `nc` do it."""
    path = tmp_path / "echo.sock"

    async def count(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        size = len(await reader.read(-1))
        writer.write(json.dumps({"bytes": size}).encode())
        await writer.drain()
        writer.close()

    server = await asyncio.start_unix_server(count, str(path))
    script = (
        "import socket;s=socket.create_connection(('127.0.0.1',8089));s.sendall(b'x'*3000000);"
        "s.shutdown(1);print(s.recv(1000).decode())"
    )
    async with boxes(tmp_path) as (box,):
        await way_out_of(box, path)
        found = await run(box, script)
        assert json.loads(found.output) == {"bytes": 3_000_000}
    server.close()
    with contextlib.suppress(Exception):
        await server.wait_closed()


async def test_a_port_is_given_once(tmp_path: Path) -> None:
    """What the box itself listens on is not taken from it."""
    async with boxes(tmp_path) as (box,):
        await way_out_of(box, tmp_path / "a.sock")
        with pytest.raises(BoxLost, match="in use"):
            await way_out_of(box, tmp_path / "b.sock")
        assert box.is_alive


# -- containers: an image without Python, so nc asks -----------------------------------------------------------------


class BoxWithWayOut(Box, WithWayOut):
    """What the tests talk to."""


@asynccontextmanager
async def containers(kind: str, tmp_path: Path, count: int = 1) -> AsyncIterator[list[BoxWithWayOut]]:
    provider = await provider_of(kind, tmp_path / "boxes")
    assert "way_out" in provider.capabilities
    try:
        yield [cast("BoxWithWayOut", await provider.create(f"way.{os.getpid()}.{n}")) for n in range(count)]
    finally:
        await provider.aclose()


async def said(box: Box, command: str) -> str:
    return (await box.exec(command, key=os.urandom(4).hex(), timeout_s=30)).output


@pytest.mark.parametrize("kind", [DOCKER, PODMAN])
async def test_a_container_asks_the_model_and_reaches_nothing_else(kind: str, tmp_path: Path) -> None:
    """Its first process is known to the engine; what listens on this machine, outside, or in another container is not reached."""
    async with gateway_on_a_socket(tmp_path) as (place, gateway, tcp), containers(kind, tmp_path, 2) as (box, other):
        url = await way_out_of(box, gateway)
        assert url == f"http://127.0.0.1:{PORT}"
        asked = json.dumps({"model": "m", "messages": [{"role": "user", "content": "hello"}]})
        request = (
            f"POST /v1/chat/completions HTTP/1.0\r\nauthorization: Bearer {place.token}\r\ncontent-type: application/json\r\n"
            f"content-length: {len(asked)}\r\n\r\n{asked}"
        )
        ask = f"(printf %s {shlex.quote(request)}; sleep 2) | nc -w 20 127.0.0.1 {PORT}"  # it hangs up at the end of its input
        assert "hi there" in await said(box, ask)
        assert len(place.events(ModelCallCompleted)) == 1
        with socket.create_server(("0.0.0.0", 0)) as anywhere:
            port, own = anywhere.getsockname()[1], own_address()
            for host, number in (
                ("127.0.0.1", tcp.rpartition(":")[2]),
                ("127.0.0.1", port),
                (own, port),
                ("169.254.169.254", 80),
                ("1.1.1.1", 53),
            ):
                assert await said(box, f"nc -w 2 {host} {number} </dev/null >/dev/null 2>&1 || echo no") == "no\n", host
        assert await said(other, f"nc -w 2 127.0.0.1 {PORT} </dev/null >/dev/null 2>&1 || echo no") == "no\n"
        assert "gateway.sock" not in await said(box, "find / -xdev -name '*.sock' 2>/dev/null; cat /proc/net/unix")
        with pytest.raises(BoxLost, match="in use"):
            await way_out_of(box, gateway)


@pytest.mark.parametrize("kind", [DOCKER, PODMAN])
async def test_a_containers_way_ends_with_it(kind: str, tmp_path: Path) -> None:
    async with containers(kind, tmp_path) as (box,):
        before = descriptors()
        await way_out_of(box, tmp_path / "gateway.sock")
        await box.destroy()
        with pytest.raises(BoxLost, match="gone"):
            await way_out_of(box, tmp_path / "gateway.sock")
        await asyncio.sleep(0.1)
        assert descriptors() <= before
