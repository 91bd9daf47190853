"""Daytona's machines by its REST API, against a stand-in."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from gym_bus.blobs import MemoryBlobs
from gym_bus.errors import Permanent
from providers.sandboxes import BoxLost, CreateFailed, SandboxUnavailable
from providers.sandboxes.daytona.box import DaytonaBox
from providers.sandboxes.daytona.provider import DaytonaProvider
from providers.sandboxes.remote.ownership import BOOT, HOST, LABEL, OWNER
from schemas.sandboxes import Daytona, SandboxLimits
from tests.support.box_server import SERVING
from tests.support.sandbox_doubles.daytona import DaytonaDouble, daytona_double
from tests.support.sandbox_doubles.faults import KEY, Fault

MAKE = "POST /api/sandbox"


@pytest.fixture
def double(tmp_path: Path) -> Iterator[tuple[str, DaytonaDouble]]:
    with daytona_double(tmp_path / "machines") as served:
        yield served


@pytest.fixture
def kept(double: tuple[str, DaytonaDouble]) -> DaytonaDouble:
    return double[1]


@pytest.fixture
async def make(double: tuple[str, DaytonaDouble], tmp_path: Path) -> AsyncIterator[Any]:
    providers: list[DaytonaProvider] = []

    def make(api_key: str | None = KEY, **given: Any) -> DaytonaProvider:
        base = {"api_url": double[0], "request_timeout_s": 5, "create_timeout_s": 10}
        config = Daytona(**{**base, "limits": SandboxLimits(output_bytes=4096), **given})
        providers.append(DaytonaProvider(config, tmp_path / "boxes", api_key))
        return providers[-1]

    yield make
    for provider in providers:
        await provider.aclose()


@pytest.fixture
async def box(make: Any) -> DaytonaBox:
    return await make().create("r.1.b1")


async def test_a_machine_is_made_as_it_is_wanted(make: Any, kept: DaytonaDouble) -> None:
    kept.slow_polls = 2
    await make(snapshot="mine", cpu=2, memory_gib=4, lifetime_s=90, max_age_s=600).create("r.1.b1")
    asked = next(iter(kept.kept.values())).asked
    plain = {name: value for name, value in asked.items() if name != "labels"}
    assert plain == {
        "snapshot": "mine",
        "cpu": 2,
        "memory": 4,
        "autoStopInterval": 2,
        "autoDeleteInterval": 0,
        "ttlMinutes": 12,
        "networkBlockAll": True,
    }
    assert KEY not in str(asked)


async def test_only_this_hosts_orphans_are_reaped(make: Any, kept: DaytonaDouble) -> None:
    provider = make()
    for n, change in enumerate(({OWNER: "1-1"}, {BOOT: "another"}, {HOST: "another", OWNER: "1-1"}, {})):
        await provider.create(f"r.{n}.b1")
        list(kept.kept.values())[-1].labels.update(change)
    assert await make().reap() == 2
    assert [one.labels[LABEL] for one in kept.kept.values()] == ["r.2.b1", "r.3.b1"]


async def test_a_machine_that_comes_late_is_no_twin(make: Any, kept: DaytonaDouble) -> None:
    kept.faults.planned.append(Fault(MAKE, delay_s=1.0))
    provider = make(create_timeout_s=0.4)
    with pytest.raises(CreateFailed, match="no answer"):
        await provider.create("r.1.b1")
    await asyncio.sleep(1.0)
    provider._config = provider._config.model_copy(update={"create_timeout_s": 10})
    await provider.create("r.1.b1")
    assert len(kept.kept) == 1


async def test_what_goes_wrong_is_told_apart(make: Any, kept: DaytonaDouble) -> None:
    with pytest.raises(SandboxUnavailable, match="does it run"):
        await make(api_url="http://127.0.0.1:9").create("r.1.b1")
    for key in (None, "wrong"):
        with pytest.raises(SandboxUnavailable, match=r"sandbox\.api_key"):
            await make(api_key=key).create("r.1.b1")
    with pytest.raises(CreateFailed, match="nowhere"):
        await make(snapshot="nowhere").create("r.1.b1")
    await make().check()
    assert not kept.kept


@pytest.mark.parametrize("status", [429, 500, 502, 503])
async def test_what_may_be_repeated_is_and_nothing_else(make: Any, kept: DaytonaDouble, status: int) -> None:
    kept.faults.planned.append(Fault("GET /api/sandbox", status=status, times=3))
    box = await make().create("r.1.b1")
    kept.faults.planned.append(Fault("DELETE /api/sandbox", status=status, times=3))
    await box.destroy()
    assert not kept.kept
    made = kept.faults.seen.count(MAKE)
    kept.faults.planned.append(Fault(MAKE, status=status))
    with pytest.raises(CreateFailed):
        await make().create("r.2.b1")
    assert kept.faults.seen.count(MAKE) == made + 1


async def test_a_service_that_hangs_is_not_waited_for(make: Any, kept: DaytonaDouble) -> None:
    kept.faults.planned.append(Fault("GET /api/sandbox", delay_s=30))
    began = time.monotonic()
    with pytest.raises(SandboxUnavailable):
        await make(request_timeout_s=0.5).create("r.1.b1")
    assert time.monotonic() - began < 10


async def test_a_machine_that_vanished_was_restarted_or_was_cut_off_is_lost(make: Any, kept: DaytonaDouble) -> None:
    provider = make()
    gone, other, cut = [await provider.create(f"r.{n}.b1") for n in range(3)]
    first, second, _ = kept.kept.values()
    await asyncio.to_thread(second.machine.restart)
    kept.end(first.id)
    with pytest.raises(BoxLost):
        await gone.exec("echo x", key="k", timeout_s=10)
    with pytest.raises(BoxLost, match="restarted"):
        await other.exec("echo x", key="k", timeout_s=10)
    kept.faults.planned.append(Fault("POST /toolbox", cut_bytes=5))
    with pytest.raises(BoxLost):
        await cut.exec("echo x", key="k", timeout_s=10)
    assert not cut.is_alive


async def test_a_machine_lives_while_it_is_used(make: Any, kept: DaytonaDouble) -> None:
    kept.minute_s = 5
    box = await make(lifetime_s=5).create("r.1.b1")
    await asyncio.sleep(6)
    assert (await box.exec("echo on", key="k", timeout_s=10)).output == "on\n"


async def test_files_and_workspaces_go_in_and_out(box: DaytonaBox, make: Any, tmp_path: Path) -> None:
    content = bytes(range(256)) * 4096
    (tmp_path / "in").write_bytes(content)
    await box.put(tmp_path / "in", "deep/file", mode=0o640)
    assert await box.get("deep/file", tmp_path / "out", max_bytes=len(content)) == len(content)
    assert (tmp_path / "out").read_bytes() == content
    blobs = MemoryBlobs()
    taken = await box.snapshot(blobs)
    other = await make().create("r.2.b1")
    await other.restore(taken.ref, blobs)
    done = await other.exec("stat -c '%a %s' deep/file", key="k", timeout_s=10)
    assert done.output == f"640 {len(content)}\n"


async def test_what_is_reached_is_said_anew(box: DaytonaBox, kept: DaytonaDouble) -> None:
    (one,) = kept.kept.values()
    await box.allow(["example.org", "*.example.net:443"])
    assert (one.asked["networkBlockAll"], one.asked["domainAllowList"]) == (False, "example.org,*.example.net")
    await box.allow([])
    assert one.asked["networkBlockAll"] is True
    with pytest.raises(Permanent, match="443"):
        await box.allow(["example.org:22"])


async def test_a_port_is_reached_by_its_address(box: DaytonaBox) -> None:
    port = int((await box.exec(SERVING, key="k", timeout_s=30)).output)
    async with httpx.AsyncClient(timeout=10) as client:
        answer = await client.get(f"{await box.address_of(port)}/index.html")
    assert answer.text == "hello\n"
