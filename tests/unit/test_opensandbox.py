"""An OpenSandbox server's machines through its own client, against a double that speaks its protocol."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from gym_bus.blobs import MemoryBlobs
from gym_bus.errors import Permanent
from providers.sandboxes import Box, BoxLost, CreateFailed, SandboxUnavailable
from providers.sandboxes.capabilities import WithEgress
from providers.sandboxes.opensandbox.box import NetworkedOpenSandboxBox
from providers.sandboxes.opensandbox.provider import OpenSandboxProvider
from providers.sandboxes.remote.ownership import BOOT, HOST, LABEL, OWNER
from schemas.sandboxes import OpenSandbox, SandboxLimits
from tests.support.box_server import SERVING
from tests.support.sandbox_doubles.faults import KEY, Fault
from tests.support.sandbox_doubles.opensandbox import OpenSandboxDouble, opensandbox_double

MAKE, RUN = "POST /v1/sandboxes", "POST /to/"


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """The client logs what it raises, with its whole way there."""
    logging.getLogger("opensandbox").setLevel(logging.CRITICAL)
    yield
    logging.getLogger("opensandbox").setLevel(logging.NOTSET)


@pytest.fixture
def double(tmp_path: Path) -> Iterator[tuple[str, OpenSandboxDouble]]:
    with opensandbox_double(tmp_path / "machines") as served:
        yield served


@pytest.fixture
def kept(double: tuple[str, OpenSandboxDouble]) -> OpenSandboxDouble:
    return double[1]


@pytest.fixture
async def make(double: tuple[str, OpenSandboxDouble], tmp_path: Path) -> AsyncIterator[Any]:
    providers: list[OpenSandboxProvider] = []

    def make(api_key: str | None = KEY, **given: Any) -> OpenSandboxProvider:
        base = {"image": "any:1", "domain": double[0], "request_timeout_s": 5, "create_timeout_s": 10}
        config = OpenSandbox(**{**base, "limits": SandboxLimits(output_bytes=4096), **given})
        providers.append(OpenSandboxProvider(config, tmp_path / "boxes", api_key))
        return providers[-1]

    yield make
    for provider in providers:
        await provider.aclose()


@pytest.fixture
async def box(make: Any) -> NetworkedOpenSandboxBox:
    return await make().create("r.1.b1")


async def said(box: Box, command: str) -> str:
    return (await box.exec(command, key="k", timeout_s=10)).output


@pytest.mark.parametrize(
    "content",
    [
        "",
        "\n",
        "\n\n",
        "no end",
        "a\n\nb\n",
        "\r\n",
        "one\rtwo\r\n",
        "tab\tand é",
        "\x01\x02\x7f",
        "x" * 3000 + "\nend",
    ],
)
async def test_output_comes_out_byte_by_byte(box: NetworkedOpenSandboxBox, content: str) -> None:
    """Though the server's daemon tells lines only, and not how they ended."""
    octal = "".join(f"\\{byte:03o}" for byte in content.encode())
    result = await box.exec(f"printf '{octal}'", key="k", timeout_s=10)
    assert (result.output, result.output_bytes) == (content, len(content.encode()))


async def test_a_machine_says_whose_it_is_and_what_it_may_use(make: Any, kept: OpenSandboxDouble) -> None:
    provider = make(
        team="lab one/two",
        user="ada",
        workload="eval",
        resource_limits={"cpu": "2", "memory": "1Gi"},
        resource_requests={"cpu": "500m"},
    )
    await provider.create("r" * 70 + ".1.b1")
    (one,) = kept.kept.values()
    assert one.asked["resourceLimits"] == {"cpu": "2", "memory": "1Gi"}
    assert one.asked["resourceRequests"] == {"cpu": "500m"}
    assert (one.metadata["user"], one.metadata["workload"]) == ("ada", "eval")
    assert one.metadata["team"].startswith("h"), "no label's value, so a name for it"
    assert KEY not in str(one.asked)
    with pytest.raises(CreateFailed, match="exists already"):
        await make().create("r" * 70 + ".1.b1")


async def test_a_machine_is_waited_for_within_bounds(make: Any, kept: OpenSandboxDouble) -> None:
    kept.slow_polls = 3
    assert await said(await make().create("r.1.b1"), "echo ready") == "ready\n"
    kept.slow_polls = 10_000
    began = time.monotonic()
    with pytest.raises(CreateFailed):
        await make(create_timeout_s=1).create("r.2.b1")
    assert time.monotonic() - began < 8
    assert [one.metadata[LABEL] for one in kept.kept.values()] == ["r.1.b1"]


async def test_only_this_hosts_orphans_are_reaped(make: Any, kept: OpenSandboxDouble) -> None:
    provider = make()
    for n, change in enumerate(({OWNER: "1-1"}, {BOOT: "another"}, {HOST: "another", OWNER: "1-1"}, {})):
        await provider.create(f"r.{n}.b1")
        list(kept.kept.values())[-1].metadata.update(change)
    assert await make().reap() == 2
    assert [one.metadata[LABEL] for one in kept.kept.values()] == ["r.2.b1", "r.3.b1"]
    assert await make().remove_run("r") == 1
    assert [one.metadata[LABEL] for one in kept.kept.values()] == ["r.2.b1"], (
        "another host's, of a run of the same name"
    )


async def test_a_machine_that_comes_late_is_no_twin(make: Any, kept: OpenSandboxDouble) -> None:
    kept.faults.planned.append(Fault(MAKE, delay_s=1.5))
    provider = make(create_timeout_s=0.5)
    with pytest.raises(CreateFailed):
        await provider.create("r.1.b1")
    await asyncio.sleep(1.5)
    provider._cloud._config = provider._config = provider._config.model_copy(update={"create_timeout_s": 10})
    assert await said(await provider.create("r.1.b1"), "echo one") == "one\n"
    assert len(kept.kept) == 1


async def test_a_server_that_is_down_or_does_not_know_us_says_so(make: Any) -> None:
    with pytest.raises(SandboxUnavailable, match="does it run"):
        await make(domain="127.0.0.1:9").create("r.1.b1")
    for key in (None, "wrong"):
        with pytest.raises(SandboxUnavailable, match=r"sandbox\.api_key"):
            await make(api_key=key).check()


async def test_check_makes_a_machine_and_leaves_none(make: Any, kept: OpenSandboxDouble) -> None:
    await make().check()
    assert MAKE in kept.faults.seen
    assert not kept.kept


async def test_an_unknown_image_fails_one_machine_only(make: Any) -> None:
    with pytest.raises(CreateFailed, match="nowhere"):
        await make(image="nowhere:1").create("r.1.b1")


@pytest.mark.parametrize("status", [429, 500, 502, 503])
async def test_what_may_be_repeated_is_and_nothing_else(make: Any, kept: OpenSandboxDouble, status: int) -> None:
    kept.faults.planned.append(Fault("GET /v1/sandboxes", status=status, times=3))
    box = await make().create("r.1.b1")
    kept.faults.planned.append(Fault("DELETE /v1/sandboxes", status=status, times=3))
    await box.destroy()
    assert not kept.kept
    made = kept.faults.seen.count(MAKE)
    kept.faults.planned.append(Fault(MAKE, status=status))
    with pytest.raises(CreateFailed):
        await make().create("r.2.b1")
    assert kept.faults.seen.count(MAKE) == made + 1


async def test_a_server_that_hangs_is_not_waited_for(make: Any, kept: OpenSandboxDouble) -> None:
    kept.faults.planned.append(Fault("GET /v1/sandboxes", delay_s=30))
    began = time.monotonic()
    with pytest.raises(SandboxUnavailable):
        await make(request_timeout_s=0.5).create("r.1.b1")
    assert time.monotonic() - began < 10


async def test_a_cut_in_mid_command_loses_the_machine(box: NetworkedOpenSandboxBox, kept: OpenSandboxDouble) -> None:
    kept.faults.planned.append(Fault(RUN, cut_bytes=120))
    with pytest.raises(BoxLost):
        await box.exec("sleep 1; echo x", key="k", timeout_s=10)
    assert not box.is_alive
    await box.destroy()
    assert not kept.kept


async def test_a_machine_that_vanished_or_was_restarted_is_lost(make: Any, kept: OpenSandboxDouble) -> None:
    provider = make()
    gone, other = await provider.create("r.1.b1"), await provider.create("r.2.b1")
    first, second = kept.kept.values()
    await asyncio.to_thread(second.machine.restart)
    kept.end(first.id)
    with pytest.raises(BoxLost):
        await gone.exec("echo x", key="k", timeout_s=10)
    with pytest.raises(BoxLost, match="restarted"):
        await other.exec("echo x", key="k", timeout_s=10)
    await gone.destroy()


async def test_a_machine_lives_while_it_is_renewed(make: Any, kept: OpenSandboxDouble) -> None:
    await make(lifetime_s=5).create("r.1.b1")
    one = next(iter(kept.kept.values()))
    first = one.ends_at
    async with asyncio.timeout(10):
        while one.ends_at == first:
            await asyncio.sleep(0.05)
    assert 4 < one.ends_at - time.time() <= 5


async def test_files_and_workspaces_go_in_and_out(box: NetworkedOpenSandboxBox, make: Any, tmp_path: Path) -> None:
    content = bytes(range(256)) * 8192
    (tmp_path / "in").write_bytes(content)
    await box.put(tmp_path / "in", "deep/file", mode=0o640)
    assert await box.get("deep/file", tmp_path / "out", max_bytes=len(content)) == len(content)
    assert (tmp_path / "out").read_bytes() == content
    blobs = MemoryBlobs()
    taken = await box.snapshot(blobs)
    other = await make().create("r.2.b1")
    await other.restore(taken.ref, blobs)
    assert await said(other, "stat -c '%a %s' deep/file") == f"640 {len(content)}\n"
    assert await said(other, "ls -A /tmp | wc -l") == "1\n", "this command's own"


async def test_commands_run_as_named_users(box: NetworkedOpenSandboxBox) -> None:
    for user in ("root", "user", "other"):
        assert (await box.exec_as(user, "id -un", key="k", timeout_s=10)).output == f"{user}\n"
    with pytest.raises(Permanent, match="no user nobody-here"):
        await box.exec_as("nobody-here", "id", key="k", timeout_s=10)


async def test_what_is_reached_is_said_anew(box: NetworkedOpenSandboxBox, kept: OpenSandboxDouble) -> None:
    (one,) = kept.kept.values()
    assert one.asked["networkPolicy"] == {"defaultAction": "deny", "egress": []}
    await box.allow(["example.org", "*.example.net:443"])
    await box.allow(["example.org", "example.com"])
    assert one.rules == [{"action": "allow", "target": name} for name in ("example.org", "example.com")]
    await box.allow([])
    assert one.rules == []
    with pytest.raises(Permanent, match="443"):
        await box.allow(["example.org:22"])


async def test_without_a_policy_nothing_can_be_said_about_it(make: Any, kept: OpenSandboxDouble) -> None:
    provider = make(allow_hosts=None)
    box = await provider.create("r.1.b1")
    assert "egress" not in provider.capabilities
    assert not isinstance(box, WithEgress)
    assert "networkPolicy" not in next(iter(kept.kept.values())).asked


async def test_pausing_stops_everything_where_it_is(box: NetworkedOpenSandboxBox, kept: OpenSandboxDouble) -> None:
    await said(box, "(while :; do echo x >>file; sleep 0.01; done) & sleep 0.1")
    await box.pause()
    await box.pause()
    path = kept._directory / next(iter(kept.kept)) / "root/box/file"
    size = path.stat().st_size
    await asyncio.sleep(0.3)
    assert path.stat().st_size == size
    await box.resume()
    await box.resume()
    await asyncio.sleep(0.3)
    assert path.stat().st_size > size
    assert await said(box, "echo on") == "on\n"


async def test_a_paused_machine_is_renewed_too(make: Any, kept: OpenSandboxDouble) -> None:
    box = await make(lifetime_s=5).create("r.1.b1")
    await box.pause()
    one = next(iter(kept.kept.values()))
    first = one.ends_at
    async with asyncio.timeout(10):
        while one.ends_at == first:
            await asyncio.sleep(0.05)


async def test_a_port_is_reached_by_its_address(box: NetworkedOpenSandboxBox) -> None:
    port = int((await box.exec(SERVING, key="k", timeout_s=30)).output)
    async with httpx.AsyncClient(timeout=10) as client:
        answer = await client.get(f"{await box.address_of(port)}/index.html")
    assert answer.text == "hello\n"
