"""Doors to a real gateway, in real sandboxes on this host and in doubles of remote ones: proved before anybody is told of them."""

from __future__ import annotations

import asyncio
import base64
import json
import shlex
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from gym_bus.gateway_file import GatewayAddress, gateway_directory, write_address
from gym_bus.secrets_store import SecretsStore
from schemas.config import ScriptedModel
from schemas.events import (
    SandboxCloseRequested,
    SandboxCreated,
    SandboxDestroyed,
    SandboxFailed,
    SandboxRequested,
)
from schemas.readiness import GatewayDoor
from schemas.sandboxes import E2B, Daytona, OpenSandbox, SandboxConfig
from tests.support.asker import Asker, asker
from tests.support.boxes import DOCKER, config_of
from tests.support.gateway_process import a_place
from tests.support.own_address import own_address
from tests.support.sandbox_doubles.daytona import daytona_double
from tests.support.sandbox_doubles.e2b import e2b_double
from tests.support.sandbox_doubles.faults import KEY
from tests.support.sandbox_doubles.opensandbox import opensandbox_double

pytestmark = pytest.mark.filterwarnings("ignore:subprocess:ResourceWarning")  # a server outlives whoever started it

ASKED = json.dumps({"model": "m", "max_tokens": 50, "messages": [{"role": "user", "content": "What is 2 + 3?"}]})


def asks(url: str, token: str) -> str:
    """Return a command that asks the model at `url` with whatever the image has: python3, or busybox's nc."""
    path = f"/a/{token}/v1/messages"
    head = f"POST {path} HTTP/1.0\r\ncontent-type: application/json\r\ncontent-length: {len(ASKED)}\r\n\r\n{ASKED}"
    host, _, port = url.partition("://")[2].rpartition(":")
    script = (
        "import sys, urllib.request as u; call = u.Request(sys.argv[1], sys.argv[2].encode()); "
        "call.add_header('content-type', 'application/json'); print(u.urlopen(call, timeout=20).read().decode())"
    )
    python = shlex.join(["python3", "-c", script, url + path, ASKED])
    nc = f"(printf %s {shlex.quote(head)}; sleep 2) | nc -w 20 {host} {port}"
    command = f"if command -v python3 >/dev/null; then {python}; else {nc}; fi"
    # As it is, the token would be masked on its way through the log, which no agent's own requests take.
    return f"printf %s {base64.b64encode(command.encode()).decode()} | base64 -d | sh"


async def asked_until_answered(asking: Asker, command: str, place: str) -> str:
    """Ask as agents do: again, until the gateway is there and has the session."""
    async with asyncio.timeout(60):
        while "end_turn" not in (said := await asking.run(command, place)):
            await asyncio.sleep(0.5)
    return said


@pytest.mark.parametrize("kind", ["bubblewrap", DOCKER, "unsafe_local"])
async def test_a_sandbox_asks_the_model_also_after_the_gateway_was_killed(kind: str, tmp_path: Path) -> None:
    """It is made before the gateway is up; the address stays the same for all of its life."""
    async with a_place(tmp_path) as place, asker(place) as asking:
        token = await place.open_session("0-0", ScriptedModel(error_rate=0))
        asked = asyncio.ensure_future(asking.ask(SandboxRequested(sandbox=config_of(kind), gateway=GatewayDoor())))
        await asyncio.sleep(1)
        assert not asked.done(), "there is no gateway yet"
        with place.gateway() as first:
            created = await asked
            assert isinstance(created, SandboxCreated), created
            own = "http://127.0.0.1:8089" if kind != "unsafe_local" else (await place.where())["url"]
            assert created.gateway_url == own
            command = asks(own, token)
            assert "end_turn" in await asking.run(command, created.place)
            first.kill()
            first.wait()
            assert "end_turn" not in await asking.run(command, created.place)
        with place.gateway():
            await asked_until_answered(asking, command, created.place)
        assert isinstance(await asking.ask(SandboxCloseRequested(), created.place), SandboxDestroyed)


@asynccontextmanager
async def remote(kind: str, tmp_path: Path) -> AsyncIterator[SandboxConfig]:
    """Give machines at a double of `kind`."""
    key = SecretsStore(tmp_path / "secrets").store(KEY)
    if kind == "e2b":
        with e2b_double(tmp_path / "machines") as (url, _):
            yield E2B(api_key=key, api_url=url, sandbox_url=url, allow_hosts=None)
    elif kind == "opensandbox":
        with opensandbox_double(tmp_path / "machines") as (where, _):
            yield OpenSandbox(api_key=key, domain=where, image="any:1", allow_hosts=None)
    else:
        with daytona_double(tmp_path / "machines") as (url, _):
            yield Daytona(api_key=key, api_url=url, allow_hosts=None)


@pytest.mark.parametrize("kind", ["e2b", "opensandbox", "daytona"])
async def test_a_machine_elsewhere_is_led_to_the_address_for_others(kind: str, tmp_path: Path) -> None:
    """With GYM_BUS_DEFAULT_HOST it asks the model; where that address is cut off, the failure names it."""
    async with a_place(tmp_path) as place, asker(place) as asking, remote(kind, tmp_path) as sandbox:
        token = await place.open_session("0-0", ScriptedModel(error_rate=0))
        with place.gateway(GYM_BUS_DEFAULT_HOST=own_address()):
            where = await place.where()
            created = await asking.ask(SandboxRequested(sandbox=sandbox, gateway=GatewayDoor()))
            assert isinstance(created, SandboxCreated), created
            assert created.gateway_url == where["remote_url"]
            assert "end_turn" in await asking.run(asks(where["remote_url"], token), created.place)
            assert isinstance(await asking.ask(SandboxCloseRequested(), created.place), SandboxDestroyed)
            cut_off = f"http://{own_address()}:9"
            write_address(gateway_directory(tmp_path), GatewayAddress(where["url"], where["socket"], cut_off))
            failed = await asking.ask(SandboxRequested(sandbox=sandbox, number=2, gateway=GatewayDoor()))
            assert isinstance(failed, SandboxFailed)
            assert failed.failure.kind == "gateway_unreachable"
            for words in (cut_off, f"type {kind}", "GYM_BUS_DEFAULT_HOST"):
                assert words in failed.failure.message
        with place.gateway():
            await place.where()
            failed = await asking.ask(SandboxRequested(sandbox=sandbox, number=3, gateway=GatewayDoor()))
            assert isinstance(failed, SandboxFailed)
            assert "set GYM_BUS_DEFAULT_HOST" in failed.failure.message


async def test_what_can_have_no_door_is_refused(tmp_path: Path) -> None:
    """And pauses a run, as no other sandbox of it could have one."""
    async with a_place(tmp_path) as place, asker(place) as asking:
        failed = await asking.ask(SandboxRequested(sandbox=config_of("inline"), gateway=GatewayDoor()))
        assert isinstance(failed, SandboxFailed)
        assert (failed.failure.kind, failed.failure.stage) == ("gateway_unreachable", "seed")
        assert "type inline has no way to the model gateway" in failed.failure.message
