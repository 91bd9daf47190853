# ruff: noqa: ASYNC240  small files of tests
"""Real machines that were made ahead: as good as fresh ones, noticed when they are dead, and gone with what made them."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from actors.sandbox.admission import Admission
from actors.sandbox.held import HeldBox
from actors.sandbox.warm import Made, WarmPools
from gym_bus.blobs import MemoryBlobs
from providers.sandboxes import SandboxProvider, make_provider
from providers.sandboxes.docker_engine import Engine
from providers.sandboxes.docker_owners import LABEL, OURS
from providers.sandboxes.phases import phase_of
from schemas.sandboxes import Bubblewrap, Docker, NetworkPolicy, Reach, SandboxConfig
from tests.support.boxes import DOCKER
from tests.support.engine import IMAGE, USER

KINDS = ["bubblewrap", DOCKER]
POLICY = NetworkPolicy(agent=Reach(allow=("a.example",)))
RUN = f"warm{os.getpid()}"


def config(kind: str) -> SandboxConfig:
    """Return a configuration with a list of hosts."""
    return Docker(image=IMAGE, user=USER, network=POLICY) if kind == "docker" else Bubblewrap(network=POLICY)


@dataclass
class Place:
    """Pools with a real provider."""

    pools: WarmPools
    provider: SandboxProvider
    sandbox: SandboxConfig
    path: Path

    async def take(self) -> Made:
        """Wait until one is ready, and take it."""
        async with asyncio.timeout(60):
            while (made := await self.pools.take(RUN, self.sandbox, 1)) is None:
                await asyncio.sleep(0.05)
        return made

    async def ready(self) -> None:
        """Wait until one is ready."""
        async with asyncio.timeout(60):
            while not any(pool.ready for pool in self.pools._pools.values()):
                await asyncio.sleep(0.05)


async def never(run_id: str) -> bool:
    """Say of no run that it is over."""
    assert run_id == RUN
    return False


@asynccontextmanager
async def a_place(kind: str, path: Path) -> AsyncGenerator[Place]:
    """Run pools, and end them."""
    path.chmod(0o755)
    sandbox = config(kind)
    provider = make_provider(sandbox, path / "boxes")
    pools = WarmPools(lambda _: provider, Admission(), "h0.b1", never)
    running = asyncio.create_task(pools.run())
    await asyncio.sleep(0)
    try:
        yield Place(pools, provider, sandbox, path)
    finally:
        running.cancel()
        with suppress(asyncio.CancelledError):
            await running
        await provider.aclose()


async def containers() -> list[str]:
    """Return the labels of the containers of these tests."""
    engine = Engine(None)
    try:
        listed = await engine.client.containers.list(all=True, filters={"label": [f"{OURS}=1"]})
        return [label for c in listed if (label := c["Labels"].get(LABEL, "")).startswith(f"{RUN}.")]
    finally:
        await engine.aclose()


async def killed(kind: str, made: Made) -> None:
    """Kill a machine from outside, without telling anybody."""
    if kind == "bubblewrap":
        box: Any = made.box
        box._shell._process.kill()
        return
    engine = Engine(None)
    try:
        (container,) = await engine.client.containers.list(filters={"label": [f"{LABEL}={made.label}"]})
        await container.kill()
    finally:
        await engine.aclose()


async def said(held: HeldBox, command: str) -> str:
    """Return what a command prints."""
    return (await held.box.exec(command, key="k", timeout_s=20)).output


@pytest.mark.parametrize("kind", KINDS)
async def test_one_that_was_made_ahead_is_as_a_fresh_one(kind: str, tmp_path: Path) -> None:
    """Empty, with the files of a snapshot when they are restored, and with the list of hosts of its phase."""
    blobs = MemoryBlobs()
    async with a_place(kind, tmp_path) as place:
        fresh = HeldBox(await place.provider.create(f"{RUN}.0-0.b1"), blobs, f"{RUN}.0-0.b1")
        await said(fresh, "mkdir a && echo kept >a/file && chmod 600 a/file")
        checkpoint = await fresh.keep("q")
        made = await place.take()
        held = HeldBox(made.box, blobs, made.label, is_warm=True)
        look = "ls -A /box /tmp; echo ${HTTP_PROXY:-none}; id -u"
        before = (await said(held, look)).splitlines()
        assert before[:-1] == (await said(fresh, "rm -r a; " + look)).splitlines()[:-1]
        await held.restore(checkpoint.snapshot)
        assert await said(held, "cat a/file; ls -l a | grep -c rw-------") == "kept\n1\n"
        change = phase_of(place.sandbox, "agent")
        assert change
        await held.enter(change)
        assert "127.0.0.1:8090" in await said(held, "echo $HTTP_PROXY")
        again = await held.keep("q2")
        assert again.files == 1
        await fresh.box.destroy()
        await held.box.destroy()


@pytest.mark.parametrize("kind", KINDS)
async def test_a_dead_one_is_not_given_out(kind: str, tmp_path: Path) -> None:
    """It was killed idly: who asks next is told that there is none, and another is made."""
    async with a_place(kind, tmp_path) as place:
        assert await place.pools.take(RUN, place.sandbox, 1) is None
        await place.ready()
        (pool,) = place.pools._pools.values()
        dead = pool.ready[0]
        await killed(kind, dead)
        assert await place.pools.take(RUN, place.sandbox, 1) is None
        made = await place.take()
        assert made.label != dead.label
        assert (await made.box.exec("echo well", key="k", timeout_s=20)).output == "well\n"


@pytest.mark.parametrize("kind", KINDS)
async def test_nothing_is_left_of_what_nobody_got(kind: str, tmp_path: Path) -> None:
    """When the pools end: no directory, no container; what was given stays its owner's."""
    async with a_place(kind, tmp_path) as place:
        made = await place.take()
        await place.ready()
        left = _left(kind, place)
        assert len(await left()) == 2
        running = next(task for task in asyncio.all_tasks() if "WarmPools.run" in repr(task))
        running.cancel()
        await asyncio.wait([running])
        found = await left()
        assert len(found) == 1
        assert kind == "bubblewrap" or made.label in found[0]
        assert (await made.box.exec("echo mine", key="k", timeout_s=20)).output == "mine\n"


def _left(kind: str, place: Place) -> Callable[[], Any]:
    rooms: Any = place.provider

    async def left() -> list[str]:
        own = rooms._rooms.own
        found = sorted(path.name for path in own.iterdir() if path.is_dir() and not (path / "spare").exists())
        if kind == "docker":
            assert len(await containers()) == len(found)
        return found

    return left
