# ruff: noqa: ASYNC220, ASYNC230, ASYNC240, FBT003  tests look at /proc, and wait for the kernel
"""What every sandbox promises, checked on each provider; what only some can promise is marked so."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any, Final, get_args

import pytest

from gym_bus.errors import Permanent
from providers.sandboxes import Box, BoxLost, CreateFailed, SandboxProvider, rooms
from providers.sandboxes.base import Capability
from providers.sandboxes.capabilities import (
    JobStatus,
    WithDetached,
    WithEgress,
    WithFiles,
    WithPause,
    WithPorts,
    WithSnapshots,
    WithTerminal,
    WithUsers,
    WithWayOut,
)
from providers.sandboxes.remote import RemoteBox
from providers.sandboxes.removal import remove_tree
from tests.support.boxes import (
    LIMITS,
    LOCAL,
    REMOTE,
    config_of,
    doubles_at,
    processes_with,
    provider_of,
    unique_sleep,
    until_gone,
)
from tests.support.sandbox_doubles.daytona import daytona_double
from tests.support.sandbox_doubles.e2b import e2b_double
from tests.support.sandbox_doubles.faults import KEY
from tests.support.sandbox_doubles.opensandbox import opensandbox_double

ROOT = Path(__file__).resolve().parents[2]
RUN = f"contract{os.getpid()}"


@pytest.fixture(scope="session", autouse=True)
def doubles(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Serve the doubles that the remote providers talk to."""
    make = tmp_path_factory.mktemp
    with (
        e2b_double(make("e2b")) as (e2b, _),
        opensandbox_double(make("opensandbox")) as (opensandbox, _),
        daytona_double(make("daytona")) as (daytona, _),
    ):
        doubles_at.update(e2b=e2b, opensandbox=opensandbox, daytona=daytona)
        yield


@pytest.fixture(params=[*LOCAL, *REMOTE, "inline"])
async def any_provider(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[SandboxProvider]:
    provider = await provider_of(request.param, tmp_path / "boxes", str(tmp_path / "ledger"))
    yield provider
    await provider.aclose()


@pytest.fixture(params=[*LOCAL, *REMOTE])
def kind(request: pytest.FixtureRequest) -> str:
    """Those that start processes."""
    return str(request.param)


@pytest.fixture
async def provider(kind: str, tmp_path: Path) -> AsyncIterator[SandboxProvider]:
    provider = await provider_of(kind, tmp_path / "boxes")
    yield provider
    await provider.aclose()


@pytest.fixture
async def box(provider: SandboxProvider) -> Box:
    return await provider.create(f"{RUN}.1.b1")


async def test_arithmetic_is_worked_out(any_provider: SandboxProvider) -> None:
    box = await any_provider.create(f"{RUN}.1.b1")
    result = await box.exec("echo $((-7 / 2 + 3 * (4 - 10)))", key="k", timeout_s=10)
    assert (result.exit_code, result.output, result.ended_by, result.truncated) == (0, "-21\n", "exit", False)
    assert result.output_bytes == 4


PROTOCOLS: Final[dict[Capability, type]] = {
    "files": WithFiles,
    "snapshots": WithSnapshots,
    "way_out": WithWayOut,
    "egress": WithEgress,
    "detached": WithDetached,
    "terminal": WithTerminal,
    "pause": WithPause,
    "users": WithUsers,
    "ports": WithPorts,
}


async def test_a_machine_has_what_its_provider_declares(any_provider: SandboxProvider) -> None:
    """And nothing else; what hangs on this host (script(1), root) is declared only where it is so."""
    assert set(PROTOCOLS) == set(get_args(Capability))
    box = await any_provider.create(f"{RUN}.1.b1")
    has = {name for name, protocol in PROTOCOLS.items() if isinstance(box, protocol)}
    assert has >= any_provider.capabilities
    assert has - any_provider.capabilities <= {"terminal", "users"}
    if os.getuid() == 0 and any_provider.name == "docker":
        assert has == any_provider.capabilities


async def test_a_missing_command_is_a_result(any_provider: SandboxProvider) -> None:
    box = await any_provider.create(f"{RUN}.1.b1")
    result = await box.exec("no-such-command --at-all", key="k", timeout_s=10)
    assert result.exit_code == 127
    assert result.output
    assert box.is_alive


async def test_each_effect_is_in_the_ledger_when_it_starts(any_provider: SandboxProvider, tmp_path: Path) -> None:
    box = await any_provider.create(f"{RUN}.1.b1")
    await box.exec("echo $((1 + 1))", key="event-1", timeout_s=10)
    await box.exec("echo $((1 + 2))", key="event-2", timeout_s=10)
    lines = [json.loads(line) for line in (tmp_path / "ledger").read_text().split("\n")[:-1]]
    assert lines == [{"kind": "tool", "key": f"event-{n}", "label": f"{RUN}.1.b1"} for n in (1, 2)]


async def test_a_destroyed_box_refuses_and_may_be_destroyed_again(
    any_provider: SandboxProvider, tmp_path: Path
) -> None:
    box = await any_provider.create(f"{RUN}.1.b1")
    await box.destroy()
    await box.destroy()
    assert not box.is_alive
    with pytest.raises(BoxLost):
        await box.exec("echo $((1 + 1))", key="k", timeout_s=10)
    assert not (tmp_path / "ledger").exists(), "nothing was started, so nothing is in the ledger"


@pytest.mark.parametrize("command", ["nul \0 character", "half a pair \ud800", "x" * 200_000])
async def test_what_no_shell_can_be_given_is_a_result(box: Box, command: str) -> None:
    result = await box.exec(command, key="k", timeout_s=10)
    assert result.exit_code == 127
    assert (await box.exec("echo on", key="k", timeout_s=10)).output == "on\n"


@pytest.mark.parametrize(
    ("command", "exit_code", "ended_by"),
    [
        ("true", 0, "exit"),
        ("exit 7", 7, "exit"),
        ("exit 255", 255, "exit"),
        ("kill -9 $$", 137, "signal"),
        ("kill -SEGV $$", 139, "signal"),
        ("if", 2, "exit"),
        ("/etc", 126, "exit"),
    ],
)
async def test_exit_codes_are_the_shells(box: Box, command: str, exit_code: int, ended_by: str) -> None:
    result = await box.exec(command, key="k", timeout_s=10)
    assert (result.exit_code, result.ended_by) == (exit_code, ended_by)


async def test_output_and_error_are_one_text_in_order(box: Box) -> None:
    result = await box.exec("echo 1; echo 2 >&2; printf 'é È €\\n'; cat", key="k", timeout_s=10)
    assert result.output == "1\n2\né È €\n"
    quoted = await box.exec("printf '%s' \"it's\" 'a' \"$(echo b)\"\necho '\\n'", key="k", timeout_s=10)
    assert quoted.output.startswith("it'sab")


async def test_a_long_command_arrives_whole(box: Box) -> None:
    result = await box.exec(f"printf %s '{'x' * 100_000}' | wc -c", key="k", timeout_s=10)
    assert result.output == "100000\n"


async def test_too_much_output_keeps_both_ends_and_its_size(box: Box) -> None:
    result = await box.exec("echo first; yes | head -c 3000000; echo last", key="k", timeout_s=20)
    assert (result.exit_code, result.truncated, result.output_bytes) == (0, True, 3_000_011)
    assert result.output.startswith("first\n")
    assert result.output.endswith("last\n")
    assert "left out" in result.output
    assert len(result.output.encode()) <= LIMITS.output_bytes


async def test_what_is_no_text_stays_within_the_bound(box: Box) -> None:
    result = await box.exec("head -c 4000 /dev/zero | tr '\\0' '\\377'", key="k", timeout_s=10)
    assert result.output_bytes == 4000
    assert result.truncated
    assert len(result.output.encode()) <= LIMITS.output_bytes


async def test_a_child_in_the_background_does_not_hold_up_the_result(box: Box) -> None:
    sleep = unique_sleep()
    result = await box.exec(f"({sleep} &); setsid {sleep} & echo done", key="k", timeout_s=10)
    assert (result.exit_code, result.output) == (0, "done\n")
    assert processes_with(sleep), "it lives on between commands"
    await box.destroy()
    assert await until_gone(sleep), "and ends with the box"


async def test_the_deadline_kills_the_whole_tree_and_the_box_lives_on(box: Box) -> None:
    sleep = unique_sleep()
    result = await box.exec(
        f"echo before; setsid {sleep} & nohup {sleep} & (({sleep}) &); {sleep}", key="k", timeout_s=1
    )
    assert (result.exit_code, result.ended_by) == (None, "timeout")
    assert "before\n" in result.output
    assert result.duration_s < 5
    assert await until_gone(sleep)
    assert (await box.exec("echo again", key="k", timeout_s=10)).output == "again\n"


async def test_the_deadline_holds_for_what_ignores_signals(box: Box) -> None:
    result = await box.exec("trap '' TERM INT HUP; while :; do :; done", key="k", timeout_s=0.2)
    assert result.ended_by == "timeout"
    assert (await box.exec("echo again", key="k", timeout_s=10)).exit_code == 0


async def test_endless_output_ends_at_the_deadline(box: Box) -> None:
    result = await box.exec("yes", key="k", timeout_s=1)
    assert result.ended_by == "timeout"
    assert result.truncated
    assert len(result.output.encode()) <= LIMITS.output_bytes


async def test_a_writer_in_the_background_cannot_keep_us_reading(box: Box) -> None:
    result = await box.exec("yes & echo done", key="k", timeout_s=10)
    assert result.exit_code == 0
    assert (await box.exec("echo next", key="k", timeout_s=10)).output == "next\n"


async def test_the_hosts_environment_is_not_visible(box: Box, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GYM_BUS_TEST_SECRET", "do-not-show")
    result = await box.exec(
        "env; cat /proc/[0-9]*/environ 2>/dev/null | tr '\\0' '\\n' | grep SECRET=do-n", key="k", timeout_s=10
    )
    assert "do-not-show" not in result.output.replace("grep SECRET=do-n", "")


async def test_the_hosts_files_are_not_inherited(box: Box) -> None:
    with Path("/etc/hostname").open() as file:
        os.set_inheritable(file.fileno(), True)
        result = await box.exec("ls -1 /proc/self/fd; cat", key="k", timeout_s=10)
        os.set_inheritable(file.fileno(), False)
    assert set(result.output.split()) <= {"0", "1", "2", "3"}  # 3 is ls, reading the directory


async def test_commands_run_one_after_the_other_in_order(box: Box) -> None:
    results = await asyncio.gather(*(box.exec(f"echo {n} >>log; cat log", key="k", timeout_s=10) for n in range(5)))
    assert results[-1].output == "0\n1\n2\n3\n4\n"


async def test_a_cancelled_command_leaves_nothing(box: Box) -> None:
    sleep = unique_sleep()
    task = asyncio.ensure_future(box.exec(f"echo started; {sleep}", key="k", timeout_s=60))
    while not processes_with(sleep):
        await asyncio.sleep(0.005)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert await until_gone(sleep)


async def test_destroying_while_a_command_runs_ends_it(provider: SandboxProvider) -> None:
    sleep = unique_sleep()
    box = await provider.create(f"{RUN}.1.b1")
    task = asyncio.ensure_future(box.exec(sleep, key="k", timeout_s=60))
    while not processes_with(sleep):
        await asyncio.sleep(0.005)
    await box.destroy()
    assert await until_gone(sleep)
    results = await asyncio.gather(task, return_exceptions=True)
    assert isinstance(results[0], BoxLost) or results[0].exit_code == 137


async def test_files_belong_to_one_box_and_go_with_it(provider: SandboxProvider, tmp_path: Path) -> None:
    one, two = await provider.create(f"{RUN}.1.b1"), await provider.create(f"{RUN}.2.b1")
    await one.exec("echo mine >file; mkdir -p a/b; chmod 0 a/b; chmod 0 a; ln -s /etc link", key="k", timeout_s=10)
    assert (await one.exec("cat file", key="k", timeout_s=10)).output == "mine\n"
    assert (await two.exec("ls", key="k", timeout_s=10)).output == ""
    await one.destroy()
    await two.destroy()
    again = await provider.create(f"{RUN}.1.b1")
    assert (await again.exec("ls -A", key="k", timeout_s=10)).output == ""
    assert Path("/etc/passwd").exists()


async def test_no_label_is_made_twice(provider: SandboxProvider, box: Box) -> None:
    with pytest.raises(CreateFailed, match="exists already"):
        await provider.create(f"{RUN}.1.b1")


async def test_no_label_is_made_twice_at_once(provider: SandboxProvider) -> None:
    made = await asyncio.gather(*(provider.create(f"{RUN}.1.b1") for _ in range(2)), return_exceptions=True)
    (failed,) = [error for error in made if isinstance(error, BaseException)]
    assert isinstance(failed, CreateFailed)
    assert "exists already" in str(failed)


OWNER = """
import asyncio, json, os, sys
from pathlib import Path
from providers.sandboxes import make_provider
from schemas.config import RunConfig

async def main():
    config = RunConfig.model_validate({"taskset": {"type": "jsonl", "jsonl_fpath": "none"}, "sandbox": json.loads(sys.argv[1])})
    provider = make_provider(config.sandbox, Path(sys.argv[2]), sys.argv[4])
    run = f"owner{os.getpid()}"
    idle, busy = await provider.create(f"{run}.1.b1"), await provider.create(f"{run}.2.b1")
    await idle.exec(f"(setsid {sys.argv[3]} &)", key="k", timeout_s=10)
    print("ready", flush=True)
    await busy.exec(f"setsid {sys.argv[3]} & {sys.argv[3]}", key="k", timeout_s=60)

asyncio.run(main())
"""


async def test_killing_the_owner_leaves_no_process_and_reaping_no_file(
    kind: str, provider: SandboxProvider, tmp_path: Path
) -> None:
    """SIGKILL to the process that owns boxes ends all that runs in them; the next process removes their files.

    Nobody tells a remote machine of it: the next process of this host removes it, else it ends when it is not renewed.
    """
    sleep = unique_sleep()
    work = tmp_path / "boxes"
    owner = subprocess.Popen(
        [sys.executable, "-c", OWNER, config_of(kind).model_dump_json(), str(work), sleep, KEY],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        env={"PYTHONPATH": str(ROOT)},
    )
    with owner:
        assert owner.stdout is not None
        assert owner.stdout.readline() == b"ready\n"
        while sum(line.strip() == sleep for line in processes_with(sleep)) < 3:
            await asyncio.sleep(0.01)
        owner.send_signal(signal.SIGKILL)
    if kind not in REMOTE:
        assert await until_gone(sleep), processes_with(sleep)
    assert await provider.reap() == 2
    assert await until_gone(sleep), processes_with(sleep)
    assert await provider.reap() == 0


async def test_the_living_are_not_reaped(kind: str, provider: SandboxProvider, box: Box, tmp_path: Path) -> None:
    other = await provider_of(kind, tmp_path / "boxes")
    assert await other.reap() == 0
    assert (await box.exec("echo alive", key="k", timeout_s=10)).output == "alive\n"
    await other.aclose()


async def test_closing_the_provider_destroys_every_box(tmp_path: Path, provider: SandboxProvider) -> None:
    sleep = unique_sleep()
    boxes = [await provider.create(f"{RUN}.{n}.b1") for n in range(3)]
    for box in boxes:
        await box.exec(f"{sleep} & echo $!", key="k", timeout_s=10)
    await provider.aclose()
    assert await until_gone(sleep)
    assert not any(box.is_alive for box in boxes)


@pytest.mark.parametrize("kind", LOCAL)
async def test_closing_the_provider_waits_for_files_that_are_being_removed(
    provider: SandboxProvider, box: Box, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Or they would be removed by two at once, and what is left of a box would outlive its process."""
    begun = threading.Event()

    def slowly(path: Path) -> None:
        begun.set()
        time.sleep(0.2)
        remove_tree(path)

    monkeypatch.setattr(rooms, "remove_tree", slowly)
    await box.exec("mkdir d", key="k", timeout_s=30)
    leaving = asyncio.create_task(box.destroy())
    assert await asyncio.to_thread(begun.wait, 20)
    await provider.aclose()
    assert leaving.done()
    await leaving


@pytest.fixture(params=REMOTE)
async def far(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[RemoteBox[Any]]:
    """A box of each remote provider, with all that they have in common."""
    provider = await provider_of(request.param, tmp_path / "boxes", str(tmp_path / "ledger"))
    box = await provider.create(f"{RUN}.1.b1")
    assert isinstance(box, RemoteBox)
    yield box
    await provider.aclose()


async def over(box: WithDetached, job: str) -> JobStatus:
    """Wait for a job to end."""
    async with asyncio.timeout(20):
        while (status := await box.status(job)).is_running:
            await asyncio.sleep(0.02)
    return status


async def test_detached_commands_run_beside_others(far: RemoteBox[Any], tmp_path: Path) -> None:
    content = "x" * 40_000
    job = await far.start(
        f"printf %s {content} | wc -c; echo to err >&2; until [ -e go ]; do sleep 0.02; done; exit 3",
        key="j",
        timeout_s=20,
    )
    assert (await far.exec("echo beside", key="k", timeout_s=10)).output == "beside\n"
    async with asyncio.timeout(10):
        while (await far.output_of(job)) != b"40000\nto err\n":
            await asyncio.sleep(0.02)
    assert await far.status(job) == JobStatus(is_running=True, exit_code=None, output_bytes=13)
    await far.exec("touch go", key="k", timeout_s=10)
    assert await over(far, job) == JobStatus(is_running=False, exit_code=3, output_bytes=13)
    assert await far.output_of(job, 6, max_bytes=4) == b"to e"
    assert await far.output_of(job, 13) == b""
    assert '"key": "j"' in (tmp_path / "ledger").read_text()
    with pytest.raises(Permanent):
        await far.status("no-such-job")


async def test_detached_commands_end_at_their_deadline_and_when_they_are_stopped(far: RemoteBox[Any]) -> None:
    sleep = unique_sleep()
    late = await far.start(f"setsid {sleep} & {sleep}", key="k", timeout_s=0.3)
    assert (await over(far, late)).exit_code == 137
    assert await until_gone(sleep)
    stopped = await far.start(f"setsid {sleep} & {sleep}", key="k", timeout_s=60)
    await far.stop(stopped)
    await far.stop(stopped)
    assert (await over(far, stopped)).exit_code == 137
    assert await until_gone(sleep)


async def test_the_deadline_of_another_command_spares_detached_ones(far: RemoteBox[Any]) -> None:
    sleep = unique_sleep()
    job = await far.start(f"{sleep}; echo never", key="k", timeout_s=60)
    assert (await far.exec("sleep 30", key="k", timeout_s=0.3)).ended_by == "timeout"
    assert (await far.status(job)).is_running
    await far.destroy()
    assert await until_gone(sleep)
    with pytest.raises(BoxLost):
        await far.status(job)
