"""The address by which sandboxes on other engines reach the gateway, and the probe that they run."""

from __future__ import annotations

import asyncio
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from starlette.responses import JSONResponse
from starlette.routing import Route, Router

from actors.gateway.serve import listening
from gym_bus.errors import Permanent
from gym_bus.reach import REACHED, listen_at, probe, reachable, url_of
from gym_bus.settings import Settings
from tests.support.own_address import own_address
from tests.support.upstream import served

TOOLS = ["curl", "wget", "python3", "node", "bash", "nc"]


@pytest.mark.parametrize(
    "host", ["127.0.0.1", "127.9.9.9", "localhost", "::1", "0.0.0.0", "::", "no.such.name.invalid", "", "a b"]
)
def test_what_means_nothing_outside_is_refused(host: str) -> None:
    """Loopback, all addresses at once, and what nobody can look up."""
    with pytest.raises(Permanent, match="default_host"):
        reachable(host)


def test_what_is_not_ours_cannot_be_listened_at() -> None:
    """An address of documentation's network (RFC 5737) is nobody's."""
    with pytest.raises(Permanent, match="cannot listen at default_host"):
        listen_at("192.0.2.7", 0, 1)


def test_a_place_that_is_not_to_be_had_is_said_with_what_names_another(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with (
            pytest.raises(
                Permanent, match=rf"127\.0\.0\.1, port {port}: Address already in use\. GYM_BUS_GATEWAY_PORT"
            ),
            listening(Settings(data_dir=tmp_path, gateway_port=port), tmp_path),
        ):
            pass
    for host in ("no.such.name.invalid", "192.0.2.7", "a" * 70):
        with (
            pytest.raises(Permanent, match=rf"{host}, port 0: .*GYM_BUS_GATEWAY_HOST"),
            listening(Settings(data_dir=tmp_path, gateway_host=host), tmp_path),
        ):
            pass


def test_a_gateway_says_where_others_reach_it(tmp_path: Path) -> None:
    """It listens for its own machine, on the socket, and at the address for others; all three are in its file."""
    own = own_address()
    with listening(Settings(data_dir=tmp_path, default_host=own), tmp_path) as (sockets, where):
        assert len(sockets) == 3
        assert where["remote_url"].startswith(f"http://{own}:")
        assert where["url"].startswith("http://127.0.0.1:")
        assert where["remote_url"] in (tmp_path / "gateway.json").read_text()
    with listening(Settings(data_dir=tmp_path), tmp_path) as (sockets, where):
        assert len(sockets) == 2
        assert "remote_url" not in where


@pytest.mark.parametrize("tool", TOOLS)
async def test_the_probe_works_with_whatever_is_there(tool: str, tmp_path: Path) -> None:
    """With one tool only: it finds a gateway, it notices somebody else, and that nobody is there."""
    found = {"python3": sys.executable, "nc": shutil.which("busybox")}.get(tool) or shutil.which(tool)
    if found is None:
        pytest.skip(f"{tool} is not on this machine")
    for name, path in {tool: found, **{n: shutil.which(n) for n in ("sh", "cat", "env", "timeout", "sleep")}}.items():
        assert path
        (tmp_path / name).symlink_to(Path(path).resolve())  # noqa: ASYNC240  a moment

    def run(url: str) -> subprocess.CompletedProcess[str]:
        command = [str(tmp_path / "sh"), "-c", probe(url)]
        where = {"PATH": str(tmp_path)}
        return subprocess.run(command, env=where, capture_output=True, text=True, timeout=30, check=False)

    async def healthy(_: object) -> JSONResponse:
        return JSONResponse({"status": "ok"})

    async def other(_: object) -> JSONResponse:
        return JSONResponse({"status": "who are you?"})

    for endpoint, is_ours in ((healthy, True), (other, False)):
        async with served(Router(routes=[Route("/healthz", endpoint)])) as url:
            done = await asyncio.to_thread(run, url)
            assert (done.returncode == 0) == is_ours, done.stderr
            assert (done.stdout.strip() == REACHED) == is_ours
    with socket.create_server(("127.0.0.1", 0)) as closed:
        nobody = url_of(closed)
    done = run(nobody)
    assert done.returncode not in {0, 127}
    assert REACHED not in done.stdout
