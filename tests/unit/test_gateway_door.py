"""A machine's door to the gateway: which address it gets, that it is proved from inside, and what is said when there is none."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from actors.gateway.serve import listening
from actors.sandbox.door import PROBES, Doors, GatewayUnreachable
from gym_bus.gateway_file import GatewayAddress, gateway_directory, read_address, write_address
from gym_bus.settings import Settings
from providers.sandboxes.base import Box, BoxLost, ExecResult
from providers.sandboxes.egress.way import PORT
from schemas.readiness import PROXY_PORT, GatewayDoor
from schemas.sandboxes import E2B, Apptainer, Bubblewrap, Enroot, Inline, SandboxConfig, UnsafeLocal

REMOTE_URL = "http://10.0.0.5:8089"


class DoorBox(Box):
    """A machine in which the probe ends as it is told to, one time after the other; it says where it was led."""

    is_alive = True

    def __init__(self, *codes: int) -> None:
        self.codes = list(codes)
        self.asked: list[tuple[str, str]] = []

    async def exec(self, command: str, *, key: str, timeout_s: float) -> ExecResult:
        """Do as told."""
        del timeout_s
        if not self.codes:
            msg = "the box is gone"
            raise BoxLost(msg)
        self.asked.append((command, key))
        code = self.codes.pop(0)
        said = "could not connect" if code else "gateway reached"
        return ExecResult(code, said, len(said), truncated=False, ended_by="exit", duration_s=0.1)

    async def destroy(self) -> None:
        """Leave nothing."""


class EnclosedDoorBox(DoorBox):
    """One that has a way out."""

    way: tuple[Path, int] | None = None

    async def open_way_out(self, gateway: Path, port: int) -> str:
        """Remember it."""
        self.way = (gateway, port)
        return f"http://127.0.0.1:{port}"


@asynccontextmanager
async def gateway(data_dir: Path, remote_url: str | None = REMOTE_URL) -> AsyncIterator[None]:
    """Listen at the gateway's socket, and say where else it is."""
    directory = gateway_directory(data_dir)
    directory.mkdir(parents=True)
    write_address(directory, GatewayAddress("http://127.0.0.1:4000", str(directory / "gateway.sock"), remote_url))
    server = await asyncio.start_unix_server(lambda _, writer: writer.close(), str(directory / "gateway.sock"))
    async with server:
        yield


def doors(data_dir: Path) -> Doors:
    return Doors(data_dir, waits_s=0.3, probed_again_after_s=0.01)


async def opened(data_dir: Path, box: DoorBox, sandbox: SandboxConfig, port: int = 9000) -> str:
    return await doors(data_dir).open(box, sandbox, GatewayDoor(port=port), "q")


@pytest.mark.parametrize(
    ("sandbox", "url"),
    [
        (UnsafeLocal(), "http://127.0.0.1:4000"),
        (Apptainer(image="i", network="host"), "http://127.0.0.1:4000"),
        (Enroot(image="i", network="host"), "http://127.0.0.1:4000"),
        (E2B(), REMOTE_URL),
    ],
)
async def test_what_has_a_network_is_led_to_an_address_of_the_host(
    tmp_path: Path, sandbox: SandboxConfig, url: str
) -> None:
    """This host's own network sees the loopback; a machine elsewhere gets the address for others. Each is asked once."""
    async with gateway(tmp_path):
        box = DoorBox(0)
        assert await opened(tmp_path, box, sandbox) == url
    ((command, key),) = box.asked
    assert f"{url}/healthz" in command
    assert key == "q/gateway-1"


async def test_what_has_none_is_given_a_way_out(tmp_path: Path) -> None:
    """A port of its own loopback, behind which is the gateway's socket."""
    async with gateway(tmp_path):
        box = EnclosedDoorBox(0)
        assert await opened(tmp_path, box, Bubblewrap()) == "http://127.0.0.1:9000"
    assert box.way == (tmp_path / "hosts/g0/gateway.sock", 9000)


@pytest.mark.parametrize(
    ("sandbox", "advice"),
    [(Inline(), "sandbox.type"), (Apptainer(image="i"), "sandbox.network=host"), (Enroot(image="i"), "network=host")],
)
async def test_what_can_have_neither_is_refused(tmp_path: Path, sandbox: SandboxConfig, advice: str) -> None:
    """At once, with what to choose instead; nothing is run in it."""
    box = DoorBox(0)
    with pytest.raises(GatewayUnreachable, match=advice) as caught:
        await opened(tmp_path, box, sandbox)
    assert f"of type {sandbox.type} has no way" in str(caught.value)
    assert box.asked == []


async def test_a_probe_may_fail_before_it_succeeds(tmp_path: Path) -> None:
    """What has just been made may need a moment; each try has a key of its own."""
    async with gateway(tmp_path):
        box = EnclosedDoorBox(*[7] * (PROBES - 1), 0)
        await opened(tmp_path, box, Bubblewrap())
    assert [key for _, key in box.asked] == [f"q/gateway-{n}" for n in range(1, PROBES + 1)]


async def test_an_address_that_does_not_answer_is_named(tmp_path: Path) -> None:
    """With the kind of sandbox, what the probe said, and for a machine elsewhere what to set."""
    async with gateway(tmp_path):
        with pytest.raises(GatewayUnreachable) as caught:
            await opened(tmp_path, DoorBox(*[7] * PROBES), E2B(allow_hosts=("a.example",)))
        for words in (REMOTE_URL, "type e2b", "could not connect", "code 7", "GYM_BUS_DEFAULT_HOST", "[a.example]"):
            assert words in str(caught.value)
        with pytest.raises(GatewayUnreachable) as caught:
            await opened(tmp_path, DoorBox(*[1] * PROBES), UnsafeLocal())
        assert "DEFAULT_HOST" not in str(caught.value)


async def test_a_gateway_without_an_address_for_others(tmp_path: Path) -> None:
    """Its loopback means something else to a machine elsewhere: nothing is tried there."""
    box = DoorBox(0)
    async with gateway(tmp_path, remote_url=None):
        with pytest.raises(GatewayUnreachable, match=r"127\.0\.0\.1:4000.*type e2b.*GYM_BUS_DEFAULT_HOST"):
            await opened(tmp_path, box, E2B())
    assert box.asked == []


async def test_a_gateway_that_is_not_up_is_waited_for_and_not_for_ever(tmp_path: Path) -> None:
    """A file that an ended one left is not believed."""
    directory = gateway_directory(tmp_path)
    directory.mkdir(parents=True)
    write_address(directory, GatewayAddress("http://127.0.0.1:4000", str(directory / "gateway.sock")))
    with pytest.raises(GatewayUnreachable, match="gym-bus gateway up"):
        await opened(tmp_path, EnclosedDoorBox(0), Bubblewrap())
    waiting = asyncio.ensure_future(Doors(tmp_path, 10).open(EnclosedDoorBox(0), Bubblewrap(), GatewayDoor(), "q"))
    await asyncio.sleep(0.05)
    with listening(Settings(data_dir=tmp_path), directory):
        assert await asyncio.wait_for(waiting, 5) == "http://127.0.0.1:8089"


async def test_a_machine_that_is_lost_meanwhile_is_lost(tmp_path: Path) -> None:
    """That is no fault of the gateway's."""
    async with gateway(tmp_path):
        with pytest.raises(BoxLost):
            await opened(tmp_path, EnclosedDoorBox(), Bubblewrap())


def test_a_gateway_keeps_its_ports_unless_they_are_taken(tmp_path: Path) -> None:
    """What was told to a sandbox stays true when the next gateway comes; the file is what the kernel says."""

    def ports(**settings: Any) -> str:
        with listening(Settings(data_dir=tmp_path, **settings), tmp_path) as (_, where):
            assert read_address(tmp_path) == GatewayAddress(**where)
            return where["url"].rpartition(":")[2]

    first = ports()
    assert ports() == first
    with listening(Settings(data_dir=tmp_path), tmp_path / "other") as (_, where):
        taken = int(where["url"].rpartition(":")[2])
        write_address(tmp_path, GatewayAddress(f"http://127.0.0.1:{taken}", "s"))
        assert ports() != str(taken)
    write_address(tmp_path, GatewayAddress("nonsense", "s", "x:y"))
    assert ports().isdigit()


@pytest.mark.parametrize("content", ["", "{", "[]", "7", '{"url": "u"}', "\0"])
def test_a_file_that_says_nothing_is_no_address(tmp_path: Path, content: str) -> None:
    (tmp_path / "gateway.json").write_text(content)
    assert read_address(tmp_path) is None


@pytest.mark.parametrize("port", [80, 65_536, PROXY_PORT])
def test_a_port_that_cannot_be_had_is_refused(port: int) -> None:
    """Those of root, those that are none, and the one at which the proxy to hosts is."""
    assert PROXY_PORT == PORT
    with pytest.raises(ValidationError):
        GatewayDoor(port=port)
