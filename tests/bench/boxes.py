# ruff: noqa: ASYNC220, ASYNC240  what is measured here may block
"""From nothing to the first command's result: our sandboxes against the bare tool doing the same, pair by pair.

Both sides get the same limits and the same isolation. Destroying is not measured.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import subprocess
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from statistics import median
from typing import Any, Final

from providers.sandboxes import SandboxProvider, make_provider
from providers.sandboxes.bubblewrap import _find_tools
from providers.sandboxes.bubblewrap_argv import ENVIRONMENT, argv, seen
from providers.sandboxes.docker_container import body_of
from providers.sandboxes.docker_engine import Engine
from providers.sandboxes.own_views import OwnViews
from providers.sandboxes.rooms import Rooms
from schemas.sandboxes import Bubblewrap, Docker
from tests.support.engine import IMAGE, USER

PAIRS: Final = 40
QUICK_PAIRS: Final = 10
UID: Final = int(USER.partition(":")[0])


async def _timed(work: Callable[[], Awaitable[Any]]) -> float:
    began = time.perf_counter()
    await work()
    return (time.perf_counter() - began) * 1e3


async def _ours(provider: SandboxProvider) -> float:
    """Return the milliseconds from asking for a box to its first command's result."""
    began = time.perf_counter()
    box = await provider.create(f"bench.{secrets.token_hex(8)}")
    done = await box.exec("true", key="k", timeout_s=30)
    took = (time.perf_counter() - began) * 1e3
    assert done.exit_code == 0
    await box.destroy()
    return took


async def _compare(
    name: str, provider: SandboxProvider, bare: Callable[[], Awaitable[float]], *, quick: bool
) -> dict[str, float]:
    """Return the ratio of the medians, and both; the first pair warms caches up and does not count."""
    pairs = [(await _ours(provider), await bare()) for _ in range((QUICK_PAIRS if quick else PAIRS) + 1)][1:]
    ours, theirs = median(pair[0] for pair in pairs), median(pair[1] for pair in pairs)
    return {
        f"sandbox_create_ratio_{name}": ours / theirs,
        f"sandbox_create_ms_{name}": ours,
        f"sandbox_bare_create_ms_{name}": theirs,
    }


async def measure_docker(*, quick: bool) -> dict[str, float]:
    """Against the engine's API through the same client: create, start, exec (made, started, read, inspected)."""
    config = Docker(image=IMAGE, user=USER)
    with tempfile.TemporaryDirectory(prefix="gym-bus-bench-", dir="/var/tmp") as directory:
        Path(directory).chmod(0o755)
        rooms, engine = Rooms(Path(directory) / "bare"), Engine(None)
        provider = make_provider(config, Path(directory) / "ours")

        async def bare() -> float:
            room = rooms.make("bare", UID)
            body = {**body_of(config, "bare", room), "Entrypoint": ["sleep", "1000"], "OpenStdin": False, "Labels": {}}
            made: list[Any] = []

            async def work() -> None:
                made.append(container := await engine.client.containers.create(body))
                await container.start()
                exec_ = await container.exec(["/bin/sh", "-c", "true"])
                async with exec_.start() as stream:
                    while await stream.read_out():
                        pass
                assert (await exec_.inspect())["ExitCode"] == 0

            took = await _timed(work)
            await made[0].delete(force=True)
            await rooms.remove(room)
            return took

        try:
            return await _compare("docker", provider, bare, quick=quick)
        finally:
            await provider.aclose()
            await engine.aclose()
            rooms.close()


async def measure_bubblewrap(*, quick: bool) -> dict[str, float]:
    """Against bwrap with the same arguments and views, and a shell in it that runs one command in a shell and says its exit code."""
    config = Bubblewrap()
    with tempfile.TemporaryDirectory(prefix="gym-bus-bench-", dir="/var/tmp") as directory:
        Path(directory).chmod(0o755)
        rooms = Rooms(Path(directory) / "bare")
        provider = make_provider(config, Path(directory) / "ours")
        tools, views = _find_tools(rooms.own, is_root=os.getuid() == 0), OwnViews()

        async def bare() -> float:
            room = rooms.make("bare", UID)
            made: list[subprocess.Popen[bytes]] = []

            async def work() -> None:
                seen_at = views.of(room, [source for source, _ in seen()])
                shown = [(seen_at[source], at) for source, at in seen()]
                box = argv(tools, room, config.limits, shown, views.devices(room))
                command = [*box[:-1], "/bin/sh", "-c", "/bin/sh -c true; echo $?"]
                process = subprocess.Popen(
                    command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, bufsize=0, cwd="/", env=ENVIRONMENT
                )
                made.append(process)
                assert process.stdout is not None
                assert process.stdout.readline() == b"0\n"

            took = await _timed(work)
            made[0].communicate(timeout=30)
            await rooms.remove(room)
            return took

        try:
            return await _compare("bubblewrap", provider, bare, quick=quick)
        finally:
            await provider.aclose()
            await asyncio.to_thread(rooms.close)
