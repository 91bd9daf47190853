"""E2B's machines through its own client, against a double that speaks its protocol: what goes wrong, and what is E2B's own."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from gym_bus.blobs import MemoryBlobs
from gym_bus.errors import Permanent
from providers.sandboxes import Box, BoxLost, CreateFailed, SandboxUnavailable
from providers.sandboxes.bubblewrap import BubblewrapProvider
from providers.sandboxes.capabilities import NoSuchFile
from providers.sandboxes.e2b.box import E2BBox
from providers.sandboxes.e2b.provider import E2BProvider
from providers.sandboxes.remote.ownership import BOOT, HOST, LABEL, OWNER, Host
from providers.sandboxes.snapshots import NotEmpty, TooLarge
from schemas.sandboxes import E2B, Bubblewrap, SandboxLimits
from tests.support.box_server import SERVING
from tests.support.sandbox_doubles.e2b import E2BDouble, e2b_double
from tests.support.sandbox_doubles.faults import KEY, Fault

ROOT = Path(__file__).resolve().parents[2]
MAKE = "POST /v2/sandboxes"


@pytest.fixture
def double(tmp_path: Path) -> Iterator[tuple[str, E2BDouble]]:
    with e2b_double(tmp_path / "machines") as served:
        yield served


@pytest.fixture
async def make(double: tuple[str, E2BDouble], tmp_path: Path) -> AsyncIterator[Any]:
    providers: list[E2BProvider] = []

    def make(api_key: str | None = KEY, **given: Any) -> E2BProvider:
        url, _ = double
        config = {"request_timeout_s": 5, "create_timeout_s": 10, "limits": SandboxLimits(output_bytes=4096), **given}
        provider = E2BProvider(E2B(**{"api_url": url, "sandbox_url": url, **config}), tmp_path / "boxes", api_key)
        providers.append(provider)
        return provider

    yield make
    for provider in providers:
        await provider.aclose()


@pytest.fixture
def kept(double: tuple[str, E2BDouble]) -> E2BDouble:
    return double[1]


@pytest.fixture
async def box(make: Any) -> E2BBox:
    return await make().create("r.1.b1")


async def said(box: Box, command: str) -> str:
    return (await box.exec(command, key="k", timeout_s=10)).output


# -- none twice, none forgotten ----------------------------------------------------------------------------------------


async def test_a_machine_says_whose_it_is(box: E2BBox, kept: E2BDouble) -> None:
    (one,) = kept.kept.values()
    assert one.metadata[LABEL] == "r.1.b1"
    assert KEY not in str(one.metadata)


async def test_a_label_of_another_living_process_is_not_made_again(make: Any, box: E2BBox) -> None:
    with pytest.raises(CreateFailed, match="exists already"):
        await make().create("r.1.b1")


async def test_what_a_dead_process_of_this_host_left_is_replaced(make: Any, box: E2BBox, kept: E2BDouble) -> None:
    (stale,) = kept.kept.values()
    stale.metadata[OWNER] = "1-1"
    again = await make().create("r.1.b1")
    assert stale.id not in kept.kept
    assert await said(again, "echo new") == "new\n"
    with pytest.raises(BoxLost):
        await box.exec("echo old", key="k", timeout_s=10)


async def test_only_this_hosts_orphans_are_reaped(make: Any, tmp_path: Path, kept: E2BDouble) -> None:
    provider = make()
    for n, change in enumerate(({OWNER: "1-1"}, {BOOT: "another"}, {HOST: "another", OWNER: "1-1"}, {})):
        await provider.create(f"r.{n}.b1")
        list(kept.kept.values())[-1].metadata.update(change)
    assert await make().reap() == 2
    assert [one.metadata[LABEL] for one in kept.kept.values()] == ["r.2.b1", "r.3.b1"]
    assert await make().reap() == 0


async def test_a_hosts_name_outlives_its_processes(tmp_path: Path) -> None:
    name = Host(tmp_path).name()
    assert Host(tmp_path).name() == name
    assert Host(tmp_path / "other").name() != name


async def test_a_run_can_be_cleared_away(make: Any, kept: E2BDouble) -> None:
    provider = make()
    for label in ("one.1.b1", "one.2.b1", "two.1.b1"):
        await provider.create(label)
    assert await make().remove_run("one") == 2
    assert [one.metadata[LABEL] for one in kept.kept.values()] == ["two.1.b1"]


@pytest.mark.parametrize("late_s", [1.5, 3.0])
async def test_a_machine_that_comes_late_is_no_twin(make: Any, kept: E2BDouble, late_s: float) -> None:
    """The answer does not come in time; the machine does, soon or after we have stopped looking."""
    kept.faults.planned.append(Fault(MAKE, delay_s=late_s))
    provider = make(create_timeout_s=0.5)
    with pytest.raises(CreateFailed, match="no answer"):
        await provider.create("r.1.b1")
    await asyncio.sleep(late_s)
    provider._config = provider._config.model_copy(update={"create_timeout_s": 10})
    box = await provider.create("r.1.b1")
    assert await said(box, "echo one") == "one\n"
    assert len(kept.kept) == 1


async def test_nothing_is_left_of_a_machine_that_cannot_be_used(make: Any, kept: E2BDouble) -> None:
    kept.faults.planned.append(Fault("POST /process.Process/Start", status=500, times=1))
    with pytest.raises(CreateFailed):
        await make().create("r.1.b1")
    assert not kept.kept
    with pytest.raises(CreateFailed, match=r"set sandbox\.workspace|cannot create|exit code"):
        await make(workspace="/dev/null/box").create("r.1.b1")
    assert not kept.kept


# -- what goes wrong -----------------------------------------------------------------------------------------------------


async def test_a_service_that_is_down_says_so(make: Any) -> None:
    with pytest.raises(SandboxUnavailable, match="does it run"):
        await make(api_url="http://127.0.0.1:9").create("r.1.b1")


@pytest.mark.parametrize("key", [None, "wrong"])
async def test_a_key_that_is_missing_or_refused_says_so(make: Any, key: str | None) -> None:
    with pytest.raises(SandboxUnavailable, match=r"sandbox\.api_key"):
        await make(api_key=key).check()
    with pytest.raises(SandboxUnavailable, match=r"sandbox\.api_key"):
        await make(api_key=key).create("r.1.b1")


async def test_check_makes_a_machine_and_leaves_none(make: Any, kept: E2BDouble) -> None:
    await make().check()
    assert MAKE in kept.faults.seen
    assert not kept.kept


async def test_an_unknown_template_fails_one_machine_only(make: Any) -> None:
    with pytest.raises(CreateFailed, match="nowhere"):
        await make(template="nowhere").create("r.1.b1")


@pytest.mark.parametrize("status", [429, 500, 502, 503])
async def test_calls_that_may_be_repeated_survive_a_burst_of_errors(make: Any, kept: E2BDouble, status: int) -> None:
    kept.faults.planned.append(Fault("GET /v2/sandboxes", status=status, times=3))
    box = await make().create("r.1.b1")
    kept.faults.planned.append(Fault("DELETE /sandboxes", status=status, times=3))
    await box.destroy()
    assert not kept.kept


@pytest.mark.parametrize("status", [429, 500, 502, 503])
async def test_a_machine_is_asked_for_once(make: Any, kept: E2BDouble, status: int) -> None:
    kept.faults.planned.append(Fault(MAKE, status=status))
    with pytest.raises(CreateFailed):
        await make().create("r.1.b1")
    assert kept.faults.seen.count(MAKE) == 1


async def test_a_service_that_hangs_is_not_waited_for(make: Any, kept: E2BDouble) -> None:
    kept.faults.planned.append(Fault("GET /v2/sandboxes", delay_s=30))
    began = time.monotonic()
    with pytest.raises(SandboxUnavailable):
        await make(request_timeout_s=0.5).create("r.1.b1")
    assert time.monotonic() - began < 10


async def test_a_cut_in_mid_command_loses_the_machine(make: Any, box: E2BBox, kept: E2BDouble) -> None:
    kept.faults.planned.append(Fault("POST /process.Process/Start", cut_bytes=2000))
    with pytest.raises(BoxLost):
        await box.exec("yes", key="k", timeout_s=10)
    assert not box.is_alive
    await box.destroy()
    assert not kept.kept


async def test_a_machine_that_vanished_is_lost(box: E2BBox, kept: E2BDouble) -> None:
    task = asyncio.ensure_future(box.exec("echo begun; sleep 20", key="k", timeout_s=20))
    await asyncio.sleep(0.5)
    kept.end(next(iter(kept.kept)))
    with pytest.raises(BoxLost):
        await task
    assert not box.is_alive
    await box.destroy()


async def test_a_machine_that_was_gone_before_is_lost(box: E2BBox, kept: E2BDouble, tmp_path: Path) -> None:
    kept.end(next(iter(kept.kept)))
    with pytest.raises(BoxLost):
        await box.exec("echo x", key="k", timeout_s=10)


async def test_a_restarted_machine_is_never_continued(box: E2BBox, kept: E2BDouble) -> None:
    """The same name, the same files, another first process."""
    await said(box, "echo x >file")
    await asyncio.to_thread(next(iter(kept.kept.values())).machine.restart)
    with pytest.raises(BoxLost, match="restarted"):
        await box.exec("cat file", key="k", timeout_s=10)
    assert not box.is_alive


async def test_a_machine_lives_while_it_is_renewed_and_no_longer(make: Any, kept: E2BDouble) -> None:
    provider = make(lifetime_s=5)
    box = await provider.create("r.1.b1")
    one = next(iter(kept.kept.values()))
    first = one.ends_at
    async with asyncio.timeout(10):
        while one.ends_at == first:
            await asyncio.sleep(0.05)
    assert 4 < one.ends_at - time.time() <= 5
    one.ends_at = 0
    with pytest.raises(BoxLost):
        await box.exec("echo x", key="k", timeout_s=10)


async def test_an_old_machine_is_not_renewed(make: Any, kept: E2BDouble) -> None:
    provider = make(lifetime_s=5, max_age_s=0.1)
    await provider.create("r.1.b1")
    first = next(iter(kept.kept.values())).ends_at
    await asyncio.sleep(2)
    assert next(iter(kept.kept.values())).ends_at == first


def test_without_its_client_the_extra_is_named(tmp_path: Path) -> None:
    """In a process in which the package cannot be imported."""
    program = (
        "import sys; sys.modules['e2b'] = None\n"
        "from pathlib import Path\n"
        "from providers.sandboxes import SandboxUnavailable, make_provider\n"
        "from schemas.sandboxes import E2B\n"
        "try: make_provider(E2B(), Path('x'), 'k')\n"
        "except SandboxUnavailable as error: print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=False)
    assert "gym-bus[cloud]" in done.stdout, done.stderr


def test_other_sandboxes_do_not_load_it(tmp_path: Path) -> None:
    program = (
        "import sys\nfrom pathlib import Path\nfrom providers.sandboxes import make_provider\n"
        "from schemas.sandboxes import Inline\nmake_provider(Inline(), Path('x'))\nprint('e2b' in sys.modules)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.stdout == "False\n", done.stderr


# -- what it can do ------------------------------------------------------------------------------------------------------


async def test_files_go_in_and_out_whatever_is_in_them(box: E2BBox, tmp_path: Path) -> None:
    content = bytes(range(256)) * 8192
    (tmp_path / "in").write_bytes(content)
    await box.put(tmp_path / "in", "deep/er/it's a \nfile", mode=0o640)
    assert await said(box, "stat -c '%U %a %s' deep/er/it*") == f"user 640 {len(content)}\n"
    size = await box.get("deep/er/it's a \nfile", tmp_path / "out", max_bytes=len(content))
    assert size == len(content)
    assert (tmp_path / "out").read_bytes() == content
    assert (tmp_path / "out").stat().st_mode & 0o777 == 0o600
    assert await said(box, "ls -A /tmp") == ""


async def test_files_that_are_not_there_or_too_large_leave_nothing(box: E2BBox, tmp_path: Path) -> None:
    await said(box, "echo 12345 >file; mkfifo pipe")
    with pytest.raises(TooLarge):
        await box.get("file", tmp_path / "out", max_bytes=5)
    for path in ("nothing", "pipe", "/box"):
        with pytest.raises(NoSuchFile):
            await box.get(path, tmp_path / "out", max_bytes=5)
    (tmp_path / "in").write_bytes(b"x")
    with pytest.raises(Permanent, match="directory"):
        await box.put(tmp_path / "in", "/box")
    with pytest.raises(Permanent):
        await box.put(tmp_path / "in", "/usr/x")
    assert not (tmp_path / "out").exists()
    assert box.is_alive


async def test_a_workspace_moves_between_makers_of_machines(make: Any, box: E2BBox, tmp_path: Path) -> None:
    """From a microVM into a box of this host, and back into another microVM."""
    blobs = MemoryBlobs()
    await said(
        box, "mkdir -p a/b; echo deep >a/b/file; chmod 500 a/b; ln -s a/b/file link; ln a/b/file twice; mkfifo pipe"
    )
    taken = await box.snapshot(blobs)
    assert {(o.path, o.reason) for o in taken.manifest.left_out} == {("pipe", "pipe")}
    again = await box.snapshot(blobs, taken.manifest)
    assert again.stored_bytes == 0
    local = BubblewrapProvider(Bubblewrap(), tmp_path / "local")
    try:
        here = await local.create("r.1.b1")
        await here.restore(taken.ref, blobs)
        done = await here.exec("cat link twice; stat -c %a a/b; echo more >new", key="k", timeout_s=10)
        assert done.output == "deep\ndeep\n500\n"
        moved = await here.snapshot(blobs, taken.manifest)
    finally:
        await local.aclose()
    back = await make().create("r.2.b1")
    await back.restore(moved.ref, blobs)
    assert await said(back, "cat link new; stat -c '%U %a' a/b; ls -A /tmp") == "deep\nmore\nuser 500\n"
    with pytest.raises(NotEmpty):
        await back.restore(moved.ref, blobs)
    assert not list((tmp_path / "boxes").glob("staged*"))


async def test_commands_run_as_named_users(box: E2BBox) -> None:
    for user in ("root", "user", "other"):
        assert (await box.exec_as(user, "id -un", key="k", timeout_s=10)).output == f"{user}\n"
    with pytest.raises(Permanent, match="no user nobody-here"):
        await box.exec_as("nobody-here", "id", key="k", timeout_s=10)


async def test_the_deadline_holds_for_what_root_started(box: E2BBox) -> None:
    late = await box.exec_as("root", "setsid sleep 98765431 & sleep 98765431", key="k", timeout_s=0.3)
    assert late.ended_by == "timeout"
    assert await said(box, "ps ax | grep -c '[s]leep 98765431'") == "0\n"


async def test_pausing_stops_everything_where_it_is(box: E2BBox, kept: E2BDouble) -> None:
    await said(box, "(while :; do echo x >>file; sleep 0.01; done) & sleep 0.1")
    await box.pause()
    await box.pause()
    with pytest.raises(Permanent, match="paused"):
        await box.exec("echo x", key="k", timeout_s=10)
    path = kept._directory / next(iter(kept.kept)) / "box/file"
    size = path.stat().st_size
    await asyncio.sleep(0.3)
    assert path.stat().st_size == size
    await box.resume()
    await box.resume()
    await asyncio.sleep(0.3)
    assert path.stat().st_size > size


async def test_a_machine_reaches_nothing_unless_it_is_said(make: Any, box: E2BBox, kept: E2BDouble) -> None:
    (one,) = kept.kept.values()
    assert one.network == {"allowOut": [], "denyOut": ["0.0.0.0/0"]}
    await box.allow(["example.org", "*.example.net:443"])
    assert one.network == {"allowOut": ["example.org", "*.example.net"], "denyOut": ["0.0.0.0/0"]}
    await box.allow([])
    assert one.network == {"allowOut": [], "denyOut": ["0.0.0.0/0"]}
    with pytest.raises(Permanent, match="443"):
        await box.allow(["example.org:22"])


async def test_a_port_is_reached_by_its_address(box: E2BBox, kept: E2BDouble, double: tuple[str, E2BDouble]) -> None:
    port = int((await box.exec(SERVING, key="k", timeout_s=30)).output)
    address = await box.address_of(port)
    assert address == f"http://{port}-{next(iter(kept.kept))}.{kept.domain}"
    async with httpx.AsyncClient(timeout=10) as client:
        answer = await client.get(f"{double[0]}/index.html", headers={"host": address.removeprefix("http://")})
    assert answer.text == "hello\n"


async def test_a_template_is_built_of_a_dockerfile_once(make: Any, kept: E2BDouble, tmp_path: Path) -> None:
    (tmp_path / "Dockerfile").write_text("FROM python:3.12\nRUN pip install numpy\n")
    provider = make(template="mine", dockerfile=str(tmp_path / "Dockerfile"))
    await provider.create("r.1.b1")
    await provider.create("r.2.b1")
    (build,) = kept.builds.values()
    assert build["name"] == "mine"
    assert [step["type"] for step in build["asked"]["steps"]].count("RUN") >= 1
    with pytest.raises(CreateFailed, match="cannot be read"):
        await make(template="other", dockerfile=str(tmp_path / "nowhere")).create("r.3.b1")


async def test_closing_makes_every_machine_end(make: Any, kept: E2BDouble) -> None:
    provider = make()
    await provider.create("r.1.b1")
    await provider.aclose()
    assert not kept.kept
