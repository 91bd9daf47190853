# ruff: noqa: ASYNC240  what is measured here may block
"""What boxes do once they are there: commands, files in and out, checkpoints; beside the engine's own API, in the same run."""

from __future__ import annotations

import asyncio
import io
import os
import secrets
import tarfile
import tempfile
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from statistics import median
from typing import Any, Final, cast

from gym_bus.blobs import DirectoryBlobs
from gym_bus.clock import SystemClock
from gym_bus.event_log import Draft, EventLog
from gym_bus.nats_bus import connect
from gym_bus.subjects import aggregate
from providers.sandboxes import Box, SandboxProvider, make_provider
from providers.sandboxes.capabilities import WithFiles, WithSnapshots
from providers.sandboxes.docker_engine import Engine
from providers.sandboxes.docker_owners import LABEL
from schemas.events import SandboxCloseRequested, SandboxCreated, SandboxRequested, ToolCallCompleted, ToolCallRequested
from schemas.sandboxes import Bubblewrap, Docker, SandboxConfig, SandboxLimits
from tests.bench.stage import stage
from tests.support.engine import IMAGE, USER

MIB: Final = 1024 * 1024
COMMANDS: Final = 200
FILES: Final = 1_000
LARGE_MIB: Final = 200
HELD: Final = 200
LIMITS: Final = SandboxLimits(file_mib=512, disk_mib=None, cpu_s=600)
MANY: Final = f"mkdir many; i=0; while [ $i -lt {FILES} ]; do echo $i-$i-$i >many/$i; i=$((i + 1)); done"
LARGE: Final = f"head -c {LARGE_MIB * MIB} /dev/urandom >large"


class WorkBox(Box, WithFiles, WithSnapshots):
    """What is measured."""


def _config(kind: str) -> SandboxConfig:
    return Docker(image=IMAGE, user=USER, limits=LIMITS) if kind == "docker" else Bubblewrap(limits=LIMITS)


@asynccontextmanager
async def _box(kind: str) -> AsyncGenerator[tuple[WorkBox, Path, str]]:
    with tempfile.TemporaryDirectory(prefix="gym-bus-bench-", dir="/var/tmp") as directory:
        path = Path(directory)
        path.chmod(0o755)
        provider = make_provider(_config(kind), path / "boxes")
        label = f"bench.{secrets.token_hex(8)}"
        try:
            yield cast("WorkBox", await provider.create(label)), path, label
        finally:
            await provider.aclose()


async def _s(work: Callable[[], Awaitable[Any]]) -> float:
    began = time.perf_counter()
    await work()
    return time.perf_counter() - began


async def _run(box: Box, command: str) -> None:
    done = await box.exec(command, key="k", timeout_s=120)
    assert done.exit_code == 0, done


async def _commands(box: Box) -> float:
    """Return the median milliseconds of a command in the shell that stands in the box."""
    return median([await _s(lambda: _run(box, "true")) * 1e3 for _ in range(COMMANDS)])


async def _files(box: WorkBox, path: Path) -> tuple[float, float]:
    """Return MiB a second in and out, of one file."""
    source, target = path / "source", path / "target"
    source.write_bytes(os.urandom(LARGE_MIB * MIB))
    put_s = await _s(lambda: box.put(source, "put"))
    get_s = await _s(lambda: box.get("put", target, max_bytes=LARGE_MIB * MIB))
    assert target.stat().st_size == LARGE_MIB * MIB
    source.unlink()
    target.unlink()
    await _run(box, "rm put")
    return LARGE_MIB / put_s, LARGE_MIB / get_s


async def _checkpoints(box: WorkBox, provider_of: Callable[[], Awaitable[WorkBox]], path: Path) -> dict[str, float]:
    """Return the seconds of a first checkpoint, of one without news, and of restoring it: many small files, and one large."""
    found: dict[str, float] = {}
    blobs = DirectoryBlobs(path / "blobs")
    for name, command in (("1000_files", MANY), ("200_mb", LARGE)):
        await _run(box, f"rm -rf many large; {command}")
        began = time.perf_counter()
        taken = await box.snapshot(blobs)
        found[f"checkpoint_{name}_s"] = time.perf_counter() - began
        found[f"checkpoint_again_{name}_s"] = await _s(lambda: box.snapshot(blobs, taken.manifest))  # noqa: B023  at once
        fresh = await provider_of()
        found[f"restore_{name}_s"] = await _s(lambda: fresh.restore(taken.ref, blobs))  # noqa: B023  at once
        await fresh.destroy()
    return found


async def _bare_archive(label: str, path: Path) -> dict[str, float]:
    """Return what the engine's own archive calls take with the same files, and its own exec with a command."""
    engine = Engine(None)
    try:
        (container,) = await engine.client.containers.list(filters={"label": [f"{LABEL}={label}"]})

        async def fresh() -> None:
            exec_ = await container.exec(["/bin/sh", "-c", "true"])
            async with exec_.start() as stream:
                while await stream.read_out():
                    pass
            assert (await exec_.inspect())["ExitCode"] == 0

        fresh_ms = median([await _s(fresh) * 1e3 for _ in range(40)])
        archive = io.BytesIO()
        with tarfile.open(fileobj=archive, mode="w") as tar:
            source = path / "source"
            source.write_bytes(os.urandom(LARGE_MIB * MIB))
            tar.add(source, "put")
            source.unlink()
        put_s = await _s(lambda: container.put_archive("/box", archive.getvalue()))
        get_s = await _s(lambda: container.get_archive("/box/put"))
        return {
            "sandbox_exec_fresh_ms_docker": fresh_ms,
            "sandbox_bare_put_mib_s_docker": LARGE_MIB / put_s,
            "sandbox_bare_get_mib_s_docker": LARGE_MIB / get_s,
        }
    finally:
        await engine.aclose()


async def measure(kind: str, *, quick: bool) -> dict[str, float]:
    """Commands, files and checkpoints in a box of `kind`."""
    del quick
    async with _box(kind) as (box, path, label):
        found = {f"sandbox_exec_standing_ms_{kind}": await _commands(box)}
        put, get = await _files(box, path)
        found |= {f"sandbox_put_mib_s_{kind}": put, f"sandbox_get_mib_s_{kind}": get}
        if kind == "docker":
            found |= await _bare_archive(label, path)
        provider = make_provider(_config(kind), path / "others")

        async def another() -> WorkBox:
            return cast("WorkBox", await provider.create(f"bench.{secrets.token_hex(8)}"))

        try:
            more = await _checkpoints(box, another, path)
        finally:
            await provider.aclose()
        return found | {f"{name}_{kind}": value for name, value in more.items()}


async def measure_bubblewrap(*, quick: bool) -> dict[str, float]:
    """See `measure`."""
    return await measure("bubblewrap", quick=quick)


async def measure_docker(*, quick: bool) -> dict[str, float]:
    """See `measure`."""
    return await measure("docker", quick=quick)


async def measure_bus(*, quick: bool) -> dict[str, float]:
    """Return the milliseconds from asking for a command to hearing its result, over the bus, one at a time."""
    async with stage(projector=False) as place, _harness(place) as log:
        where = aggregate("bench", "0-0", "harness", "s1")
        heard: asyncio.Queue[Any] = asyncio.Queue()
        kinds = (SandboxCreated, ToolCallCompleted)
        writer = await log.claim(where, 1, None)
        assert writer is not None
        async with log.bus.listen("gym.live.*.*.*.sandbox.>", heard.put_nowait):

            async def answer(draft: Draft) -> Any:
                asked = await log.append(writer, draft)
                while True:
                    event = log.decode(await asyncio.wait_for(heard.get(), 30))
                    if isinstance(event.data, kinds) and event.data.request_id == asked.event_id:
                        return event.data

            created = await answer(Draft(SandboxRequested(sandbox=Bubblewrap()), None))
            took = []
            for n in range(20 if quick else COMMANDS):
                request = ToolCallRequested(call_id="c", turn=n, index=0, tool="shell", command="true", timeout_s=30)
                began = time.perf_counter()
                done = await answer(Draft(request, None, str(n), place=created.place))
                took.append((time.perf_counter() - began) * 1e3)
                assert done.exit_code == 0
            await log.append(writer, Draft(SandboxCloseRequested(), None, place=created.place))
    return {"sandbox_exec_ms": median(took)}


@asynccontextmanager
async def _harness(place: Any) -> AsyncGenerator[EventLog]:
    address = place.server.address()
    async with connect(address.url, "harness", address.passwords["harness"]) as bus:
        yield EventLog(bus, place.log.codec, SystemClock(), worker="bench.0", patience_s=10)


async def measure_held(*, quick: bool) -> dict[str, float]:
    """Return what 200 bubblewrap boxes held at once cost to make, to use and to hold."""
    count = 50 if quick else HELD
    with tempfile.TemporaryDirectory(prefix="gym-bus-bench-", dir="/var/tmp") as directory:
        Path(directory).chmod(0o755)
        provider: SandboxProvider = make_provider(Bubblewrap(), Path(directory))
        room = asyncio.Semaphore(8)

        async def one(number: int) -> Box:
            async with room:
                return await provider.create(f"held.{number}.b1")

        try:
            free = _available_mib()
            began = time.perf_counter()
            boxes = await asyncio.gather(*(one(n) for n in range(count)))
            made_s = time.perf_counter() - began
            used = free - _available_mib()
            all_s = await _s(lambda: asyncio.gather(*(_run(box, "true") for box in boxes)))
            assert all(box.is_alive for box in boxes)
        finally:
            await provider.aclose()
    return {
        "sandbox_held_boxes": count,
        "sandbox_held_made_s": made_s,
        "sandbox_held_all_run_s": all_s,
        "sandbox_held_mib_each": used / count,
    }


def _available_mib() -> float:
    lines = dict(line.split(":", 1) for line in Path("/proc/meminfo").read_text().splitlines())
    return int(lines["MemAvailable"].split()[0]) / 1024
