"""Machines made ready in real sandboxes: what they reach meanwhile they do not reach later, and what goes wrong has its log with it."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from gym_bus.blobs import MemoryBlobs
from projections import violations
from providers.models.base import ModelAnswer, ModelCall
from providers.sandboxes import make_provider
from schemas.config import Retries
from schemas.events import (
    RolloutFinished,
    SandboxCloseRequested,
    SandboxCreated,
    SandboxDestroyed,
    SandboxFailed,
    SandboxInstalled,
    SandboxInstallStarted,
    SandboxRequested,
    ToolCallCompleted,
)
from schemas.readiness import Install
from schemas.sandboxes import Bubblewrap, NetworkPolicy, Reach, SandboxLimits
from tests.support.asker import hand
from tests.support.boxes import DOCKER, config_of, processes_with, unique_sleep, until_gone
from tests.support.fake_model import FakeModel, calls_tools, says, settled, with_model
from tests.support.gateway_process import a_place
from tests.support.logs import project
from tests.support.world import World, config

pytestmark = pytest.mark.filterwarnings("ignore:subprocess:ResourceWarning")  # a server outlives whoever started it

RUN = f"installs{os.getpid()}"
ASKS = r'exec 3<>/dev/tcp/127.0.0.1/8090; printf "GET %s HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n" >&3; head -n 1 <&3'
HOLDS = (
    r'exec 3<>/dev/tcp/127.0.0.1/8090; printf "CONNECT %s HTTP/1.1\r\nHost: x\r\n\r\n" >&3; '
    r"head -n 1 <&3; (cat <&3 >/dev/null; echo cut >/tmp/cut) >/dev/null 2>&1 &"
)


def bash(script: str, word: str) -> str:
    return f"bash -c '{script % word}'"


@asynccontextmanager
async def mirror() -> AsyncIterator[str]:
    """Give the name of a host that answers, and holds a connection as long as it may."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked = await reader.read(1000)
        if asked:
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nhi")
            await writer.drain()
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    try:
        yield f"localhost:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()


async def test_what_is_reached_to_install_is_not_reached_by_the_agent(tmp_path: Path) -> None:
    """The phases' lists are stated and held to, open connections are cut between them, and the log says what was tried in which."""
    async with mirror() as host:
        policy = NetworkPolicy(install=Reach(allow=(host,)), private=(host,))
        install = "; ".join(
            (
                bash(ASKS, f"http://{host}/"),
                bash(ASKS, "http://elsewhere.example:80/"),
                bash(HOLDS, host),
                "echo there >>/tmp/tool",
            )
        )
        world = World(tasks=1)
        provider = make_provider(Bubblewrap(network=policy), tmp_path / "boxes")
        world.provider_for = lambda _: provider  # type: ignore[method-assign]

        def works(call: ModelCall) -> ModelAnswer:
            commands = (
                bash(ASKS, f"http://{host}/"),
                "cat /tmp/tool; for n in 1 2 3 4 5 6 7 8 9; do sleep 0.2; done; cat /tmp/cut",
            )
            return (
                calls_tools(*(json.dumps({"command": command}) for command in commands))
                if call.turn == 1
                else says("<answer>1</answer>")
            )

        with_model(world, FakeModel(works))
        world.start_host()
        try:
            sandbox = Bubblewrap(network=policy)
            await world.request_run(RUN, config(sandbox=sandbox, install=Install(command=install, timeout_s=30)))
            await world.finished(RUN, 60)
            await settled(world)
        finally:
            await provider.aclose()
    data = [e.data for e in world.events()]
    (began,) = [d for d in data if isinstance(d, SandboxInstallStarted)]
    (done,) = [d for d in data if isinstance(d, SandboxInstalled)]
    assert (began.phase, began.allow) == (done.phase, done.allow) == ("install", (host,))
    assert [line.split()[1] for line in done.output.splitlines()] == ["200", "403", "200"], done.output
    (created,) = [d for d in data if isinstance(d, SandboxCreated)]
    assert (created.phase, created.allow) == ("agent", ())
    said = [d.output for d in data if isinstance(d, ToolCallCompleted)]
    assert said[0].startswith("HTTP/1.1 403")
    assert said[1] == "there\ncut\n"
    port = int(host.partition(":")[2])
    assert {(t.host, t.port, t.is_allowed, t.phase) for t in done.network} >= {
        ("localhost", port, True, "install"),
        ("elsewhere.example", 80, False, "install"),
    }
    (gone,) = [d for d in data if isinstance(d, SandboxDestroyed)]
    assert ("localhost", port, False, "agent") in {(t.host, t.port, t.is_allowed, t.phase) for t in gone.network}
    database = project(list(world.server.events), MemoryBlobs())
    rows = database.execute(
        "select distinct phase, is_allowed from network_attempts where host = 'localhost' order by 1"
    )
    assert rows.fetchall() == [("agent", False), ("install", True)]
    assert violations(database) == {}


@pytest.mark.parametrize("kind", ["bubblewrap", DOCKER])
@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("echo no such package >&2; exit 4", ("exit code 4", "no such package")),
        ("echo begun; sleep 60", ("was not finished", "begun")),
        ("kill -9 $$", ("exit code 137",)),
        ("yes 'a long log' | head -c 300000; echo the cause; exit 1", ("at the end", "the cause")),
    ],
)
async def test_an_install_that_does_not_end_well(
    kind: str, command: str, words: tuple[str, ...], tmp_path: Path
) -> None:
    """A failure of the machinery with its log in it, as often as is configured, and never a reward."""
    world = World(tasks=1)
    provider = make_provider(config_of(kind), tmp_path / "boxes")
    world.provider_for = lambda _: provider  # type: ignore[method-assign]
    with_model(world, FakeModel(lambda _: calls_tools(json.dumps({"command": "true"}))))
    world.start_host()
    try:
        run = config(install=Install(command=command, timeout_s=2), retries=Retries(max_attempts=2, backoff_s=0.1))
        await world.request_run(RUN, run)
        await world.finished(RUN, 60)
        await settled(world)
    finally:
        await provider.aclose()
    data = [e.data for e in world.events()]
    ends = [d for d in data if isinstance(d, RolloutFinished)]
    assert [(end.state, end.reward) for end in ends] == [("retryable", None), ("exhausted", None)]
    failed = [d for d in data if isinstance(d, SandboxFailed)]
    assert len(failed) == len([d for d in data if isinstance(d, SandboxInstalled)]) == 2
    for failure in (failed[0].failure, ends[0].failure):
        assert failure is not None
        assert failure.kind == "install_failed"
        assert all(word in failure.message for word in words), failure.message
        assert len(failure.message) < 5000


@pytest.mark.parametrize("kind", ["bubblewrap", DOCKER])
async def test_an_install_without_memory(kind: str, tmp_path: Path) -> None:
    """It says so where the memory of a sandbox is bounded as a whole; elsewhere the command fails in its own words."""
    world = World(tasks=1)
    provider = make_provider(config_of(kind, limits=SandboxLimits(memory_mib=64)), tmp_path / "boxes")
    world.provider_for = lambda _: provider  # type: ignore[method-assign]
    with_model(world, FakeModel(lambda _: calls_tools(json.dumps({"command": "true"}))))
    world.start_host()
    try:
        eats = "dd if=/dev/zero of=/dev/null bs=300M count=1"
        run = config(install=Install(command=eats, timeout_s=20), retries=Retries(max_attempts=1))
        await world.request_run(RUN, run)
        await world.finished(RUN, 60)
        await settled(world)
    finally:
        await provider.aclose()
    data = [e.data for e in world.events()]
    (done,) = [d for d in data if isinstance(d, SandboxInstalled)]
    assert kind != "docker" or done.ended_by == "out_of_memory"
    (end,) = [d for d in data if isinstance(d, RolloutFinished)]
    assert end.failure is not None
    assert (end.failure.kind, end.reward) == ("install_failed", None)
    assert ("ran out of memory" in end.failure.message) == (done.ended_by == "out_of_memory")


@pytest.mark.parametrize("kind", ["bubblewrap", DOCKER])
async def test_a_host_killed_in_the_middle_of_an_install(kind: str, tmp_path: Path) -> None:
    """The machine dies with it; the next host's machine installs anew; the log shows that both began and one ended."""
    quick = {"GYM_BUS_LEASE_S": "1.5", "GYM_BUS_ACK_WAIT_S": "3", "GYM_BUS_REREAD_S": "1"}
    sleeps = unique_sleep()
    sandbox = config_of(kind)

    async def until_begun(place: Any, count: int) -> None:
        async with asyncio.timeout(60):
            while len(await place.events(SandboxInstallStarted)) < count or not processes_with(sleeps):
                await asyncio.sleep(0.1)

    async with a_place(tmp_path) as place, hand(place) as asking:
        with place.process("sandbox", "h0", **quick) as first:
            # It lasts until somebody ends it from outside, which only the second one's is.
            request = SandboxRequested(
                sandbox=sandbox, install=Install(command=f"{sleeps} || echo ready", timeout_s=60)
            )
            asked = asyncio.ensure_future(asking.ask(request))
            await until_begun(place, 1)
            first.kill()
            first.wait()
        assert await until_gone(sleeps), "the install dies with its machine"
        with place.process("sandbox", "h0", **quick):
            await until_begun(place, 2)
            end_process(sleeps)
            created = await asked
            assert isinstance(created, SandboxCreated), created
            began = [e.data.number for e in await place.events(SandboxInstallStarted)]
            assert began == [1, 2]
            (done,) = [e.data for e in await place.events(SandboxInstalled)]
            assert isinstance(done, SandboxInstalled)
            assert (done.number, done.exit_code) == (2, 0)
            assert "ready" in done.output
            await asking.ask(SandboxCloseRequested(), created.place)


def end_process(text: str) -> None:
    """End the sleep of an install, and nothing else."""
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                line = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode().strip()
            except OSError:
                continue
            if line == text:
                os.kill(int(entry.name), 15)
