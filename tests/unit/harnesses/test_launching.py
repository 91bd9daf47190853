"""What a launch promises in a real bubblewrap box: it runs once, ends with all it started, and says how; or nobody says anything."""

from __future__ import annotations

import ast
import asyncio
import os
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import cast

import pytest

from actors.sandbox.failures import seed_failure
from adapters.harnesses.launching import Brought, Launch, LaunchBox, LaunchUnknown, Unlaunchable, prepare
from adapters.harnesses.launching import supervisor as the_supervisor
from adapters.harnesses.launching.launch import Standing
from gym_bus.errors import Permanent
from providers.sandboxes import BoxLost
from tests.support.boxes import DOCKER, processes_with, provider_of, unique_sleep, until_gone
from tests.support.launches import on_this_host, order, receipt_of, shell, until_printed

SUPERVISOR = Path(the_supervisor.__file__)
SECRET = "a-token-that-nobody-sees"
DAEMON = """
import os, sys, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        os.execvp("sleep", sys.argv[1].split())
    os._exit(0)
os.wait()
time.sleep(0.3)
"""


@pytest.mark.parametrize(
    ("script", "exit_code", "number"), [("true", 0, None), ("exit 7", 7, None), ("kill -9 $$", None, signal.SIGKILL)]
)
async def test_it_ends_with_the_commands_own_end(
    box: LaunchBox, script: str, exit_code: int | None, number: int | None
) -> None:
    receipt = await receipt_of(box, shell(script))
    assert (receipt.exit_code, receipt.signal, receipt.ended_by) == (exit_code, number, "exit")
    assert receipt.was_started
    assert receipt.is_clean
    assert 0 <= receipt.ended_at - receipt.started_at < 10


async def test_a_command_that_is_not_there(box: LaunchBox) -> None:
    receipt = await receipt_of(box, order("/no/such/program"))
    assert (receipt.exit_code, receipt.was_started) == (127, False)
    assert "No such file" in (receipt.error or "")


async def test_it_finds_what_was_ordered_and_nothing_else(box: LaunchBox, tmp_path: Path) -> None:
    """Directory, input and environment are the order's; the environment is in no arguments, and in no file once it runs."""
    (tmp_path / "input").write_text("what it reads\n")
    await box.put(tmp_path / "input", "/tmp/input")
    await box.exec("mkdir sub", key="k", timeout_s=10)
    launch = Launch(box, "l1")
    mark = unique_sleep()
    script = f"pwd; cat; env; {mark}"
    variables = {"PATH": "/usr/bin:/bin", "TOKEN": SECRET}
    await launch.start(shell(script, cwd="/box/sub", stdin="/tmp/input", environment=variables))
    said = (await until_printed(launch, b"TOKEN")).decode()
    assert said.startswith("/box/sub\nwhat it reads")
    found = {line.split("=")[0] for line in said.splitlines() if "=" in line}
    assert found == {"GYM_BUS_JOB", "GYM_BUS_LAUNCH", "PATH", "PWD", "TOKEN"}
    assert not processes_with(SECRET)
    hidden = await box.exec(
        f"grep -rl {SECRET[:5]}'{SECRET[5:]}' /box /tmp | grep -v -e stdout -e part", key="k", timeout_s=10
    )
    assert hidden.output == ""
    await launch.stop(10)
    assert await until_gone(mark)


async def test_files_that_come_with_the_order(box: LaunchBox) -> None:
    """They are there when the command begins, whole, with their modes, in directories that were not there; so is the current one."""
    odd = "\0 a NUL, \n a line, \u00e4 and \U0001f600"
    files = (
        Brought(path="/tmp/a/b/odd", content=odd),
        Brought(path="/tmp/a/run", content="#!/bin/sh\ncat\n", mode=0o700),
        Brought(path="/tmp/a/empty", content=""),
    )
    script = (
        "pwd; stat -c %a,%s /tmp/a/b/odd /tmp/a/run /tmp/a/empty; cat /tmp/a/b/odd; ls -A /tmp/a | wc -l; /tmp/a/run"
    )
    launch = Launch(box, "l1")
    await launch.start(shell(script, files=files, cwd="/box/new/place", stdin="/tmp/a/b/odd"))
    assert await launch.wait(20)
    size = len(odd.encode())
    assert (await launch.read("stdout", 0)).decode() == f"/box/new/place\n600,{size}\n700,14\n600,0\n{odd}3\n{odd}"


@pytest.mark.parametrize(
    ("laid", "changes", "said"),
    [
        ("mkdir -p /tmp/a/f", {}, "/tmp/a/f: it is a directory"),
        ("touch /tmp/a", {}, "/tmp/a: File exists"),
        ("mkdir /tmp/a; chmod 500 /tmp/a", {}, "/tmp/a/f: Permission denied"),
        ("touch /box/sub", {"cwd": "/box/sub"}, "/box/sub: File exists"),
        ("touch /box/sub", {"cwd": "/box/sub/more"}, "/box/sub/more: Not a directory"),
    ],
)
async def test_files_that_cannot_be_made(box: LaunchBox, laid: str, changes: dict[str, str], said: str) -> None:
    """Then nothing is run, and the receipt says which it was."""
    assert (await box.exec(laid, key="k", timeout_s=10)).exit_code == 0
    receipt = await receipt_of(box, shell("touch /box/ran", files=(Brought(path="/tmp/a/f", content="x"),), **changes))
    assert (receipt.ended_by, receipt.was_started, receipt.exit_code) == ("unready", False, None)
    assert (receipt.error or "").startswith(said)
    assert "ran" not in (await box.exec("ls", key="k", timeout_s=10)).output


async def test_an_order_that_comes_late_or_never(box: LaunchBox, tmp_path: Path) -> None:
    """A supervisor begins before its order is there: it waits for it, but not without end, and leaves nothing that ran."""
    await prepare(box)
    (tmp_path / "order").write_bytes(shell("touch /box/ran").written())
    late, never = ("/tmp/gym-bus-launches/l1", "/tmp/gym-bus-launches/l2")
    command = "exec python3 -I -S /tmp/gym-bus-launches/supervisor.py run"
    jobs = [await box.start(f"{command} {where} 3", key=where, timeout_s=30) for where in (late, never)]
    await asyncio.sleep(0.5)
    assert await Launch(box, "l1").standing() is Standing.UNCLAIMED
    await box.put(tmp_path / "order", f"{late}/order", mode=0o600)
    receipt = await Launch(box, "l1").wait(10)
    assert receipt
    assert receipt.exit_code == 0
    async with asyncio.timeout(20):
        while any([(await box.status(job)).is_running for job in jobs]):
            await asyncio.sleep(0.05)
    assert await Launch(box, "l2").standing() is Standing.UNCLAIMED


async def test_a_machine_whose_supervisor_was_removed(box: LaunchBox) -> None:
    """An agent may have emptied /tmp: it is brought again, and the launch runs once."""
    await prepare(box)
    await box.exec("rm -rf /tmp/gym-bus-launches", key="k", timeout_s=10)
    assert (await receipt_of(box, shell("echo ran >>/box/count"))).exit_code == 0
    assert (await box.exec("cat count", key="k", timeout_s=10)).output == "ran\n"


async def test_it_runs_once(box: LaunchBox) -> None:
    """Started six times at once, again while it runs, and again when it is over: it ran once."""
    launches = [Launch(box, "l1") for _ in range(6)]
    ordered = shell("echo ran >>/box/count; sleep 0.5")
    await asyncio.gather(*(launch.start(ordered) for launch in launches))
    await Launch(box, "l1").start(ordered)
    receipts = [await launch.wait(20) for launch in launches]
    await launches[0].start(ordered)
    assert await launches[0].wait(10) == receipts[0]
    assert len({str(receipt) for receipt in receipts}) == 1
    assert (await box.exec("cat count", key="k", timeout_s=10)).output == "ran\n"
    left = await box.exec(f"sleep 0.3; ls {launches[0].directory}", key="k", timeout_s=10)
    assert "order" not in left.output.split()


async def test_who_comes_later_goes_on_with_it(box: LaunchBox) -> None:
    """Only the directory has to be known; output is read from where one stood."""
    first = Launch(box, "l1")
    await first.start(shell("echo one; while [ ! -e /box/go ]; do sleep 0.05; done; echo two; echo err >&2"))
    before = await until_printed(first, b"one\n")
    second = Launch(box, "l1")
    assert await second.standing() is Standing.RUNNING
    assert await second.wait(0.2) is None
    await box.exec("touch go", key="k", timeout_s=10)
    receipt = await second.wait(20)
    assert receipt is not None
    assert await second.read("stdout", len(before)) == b"two\n"
    assert await second.read("stdout", len(before), max_bytes=2) == b"tw"
    assert await second.read("stderr", 0) == b"err\n"
    assert await second.read("/box/no-such-*", 0) == b""
    assert (await box.exec("echo old > /box/s-1; echo new > /box/s-2", key="s", timeout_s=20)).exit_code == 0
    assert (await second.read("/box/s-*", 0), await second.read("first:/box/s-*", 0)) == (b"new\n", b"old\n")
    assert await second.standing() is Standing.ENDED


async def test_daemons_end_with_it(box: LaunchBox) -> None:
    """What forked twice and began a session of its own is ended after the command has ended well."""
    sleep = unique_sleep()
    receipt = await receipt_of(box, order("/usr/bin/python3", "-c", DAEMON, sleep))
    assert (receipt.exit_code, receipt.ended_by, receipt.descendants_killed) == (0, "exit", 1)
    assert receipt.is_clean
    assert not processes_with(sleep)


async def test_its_deadline_ends_what_ignores_term(box: LaunchBox) -> None:
    sleep = unique_sleep()
    ordered = shell(f"trap '' TERM; ({sleep}) & while :; do sleep 0.1; done", timeout_s=1)
    receipt = await receipt_of(box, ordered)
    assert (receipt.ended_by, receipt.exit_code, receipt.signal) == ("timeout", None, signal.SIGKILL)
    assert 1 <= receipt.duration_s < 10
    assert receipt.descendants_killed >= 1
    assert not processes_with(sleep)


async def test_a_command_may_end_well_in_the_time_of_grace(box: LaunchBox) -> None:
    ordered = shell("trap 'echo saved; exit 3' TERM; echo on; while :; do sleep 0.05; done", grace_s=10)
    launch = Launch(box, "l1")
    await launch.start(ordered)
    await until_printed(launch, b"on")
    receipt = await launch.stop(20)
    assert receipt is not None
    assert (receipt.ended_by, receipt.exit_code) == ("stopped", 3)
    assert await launch.read("stdout", 0) == b"on\nsaved\n"


async def test_what_forks_without_end_is_ended(box: LaunchBox) -> None:
    """A program that leaves a new copy behind as fast as it can does not outrun its end."""
    name = f"/box/fork{os.getpid()}"
    await box.exec(
        f"printf '#!/bin/sh\\nsleep 0.01\\n{name} &\\n{name} &\\nsleep 9\\n' >{name}; chmod +x {name}",
        key="k",
        timeout_s=10,
    )
    receipt = await receipt_of(box, order(name, timeout_s=1.5), within_s=40)
    assert receipt.ended_by == "timeout"
    assert receipt.is_clean
    assert not processes_with(name)


async def test_endless_output_is_bounded(box: LaunchBox) -> None:
    """The first bytes are kept and the rest is counted; the disk does not fill and the deadline holds."""
    ordered = shell("yes ok & yes err >&2", timeout_s=2, stdout_max_bytes=5000, stderr_max_bytes=0)
    receipt = await receipt_of(box, ordered)
    assert receipt.ended_by == "timeout"
    assert (receipt.stdout.kept, receipt.stdout.truncated) == (5000, True)
    assert (receipt.stderr.kept, receipt.stderr.truncated) == (0, True)
    assert 5000 < receipt.stdout.bytes < 100_000_000
    assert await Launch(box, "l1").read("stdout", 0) == (b"ok\n" * 2000)[:5000]


async def test_a_killed_command_is_told(box: LaunchBox) -> None:
    """Kill -9 from outside, at the command: a receipt with the signal, and what it left is ended."""
    sleep = unique_sleep()
    launch = Launch(box, "l1")
    await launch.start(shell(f": {SECRET}; ({sleep}); true"))
    async with asyncio.timeout(10):
        while not processes_with(sleep):
            await asyncio.sleep(0.02)
    os.kill(on_this_host(f"-c : {SECRET}"), signal.SIGKILL)
    receipt = await launch.wait(10)
    assert receipt is not None
    assert (receipt.ended_by, receipt.signal) == ("exit", signal.SIGKILL)
    assert not processes_with(sleep)


async def test_a_killed_supervisor_leaves_no_receipt(box: LaunchBox) -> None:
    """Nobody knows how it ended, it is not run again, and closing ends what is left of it."""
    sleep = unique_sleep()
    launch = Launch(box, "l1")
    ordered = shell(f"echo ran >>/box/count; setsid {sleep} & wait")
    await launch.start(ordered)
    async with asyncio.timeout(10):
        while not processes_with(sleep):
            await asyncio.sleep(0.02)
    os.kill(on_this_host(f"supervisor.py run {launch.directory}"), signal.SIGKILL)
    with pytest.raises(LaunchUnknown, match="without a receipt"):
        await launch.wait(20)
    assert await Launch(box, "l1").standing() is Standing.UNKNOWN
    again = Launch(box, "l1")
    await again.start(ordered)
    with pytest.raises(LaunchUnknown):
        await again.wait(20)
    assert (await box.exec("cat count", key="k", timeout_s=10)).output == "ran\n"
    await again.close()
    assert await until_gone(sleep)


async def test_stop_before_it_began(box: LaunchBox) -> None:
    """It has a receipt that says so, and cannot begin any more."""
    launch = Launch(box, "l1")
    with pytest.raises(BoxLost):
        await _killed_while_putting(launch, box)
    receipt = await launch.stop(20)
    assert receipt is not None
    assert (receipt.ended_by, receipt.was_started, receipt.exit_code) == ("stopped", False, None)
    await launch.start(shell("touch /box/ran"))
    assert await launch.wait(10) == receipt
    assert (await box.exec("ls", key="k", timeout_s=10)).output == ""


async def _killed_while_putting(launch: Launch, box: LaunchBox) -> None:
    """Do what a starter did that died just before the supervisor was started."""

    class DyingBox:
        async def start(self, *_: object, **__: object) -> str:
            raise BoxLost("killed here")

        def __getattr__(self, name: str) -> object:
            return getattr(box, name)

    await prepare(box)
    await Launch(cast("LaunchBox", DyingBox()), "l1").start(shell("touch /box/ran"))
    assert await launch.standing() is Standing.UNCLAIMED


async def test_term_stops_it_too(box: LaunchBox) -> None:
    launch = Launch(box, "l1")
    await launch.start(shell("echo on; sleep 30"))
    await until_printed(launch, b"on")
    await box.exec("pkill -TERM -f 'supervisor.py run'", key="k", timeout_s=10)
    receipt = await launch.wait(10)
    assert receipt is not None
    assert (receipt.ended_by, receipt.signal) == ("stopped", signal.SIGTERM)


async def test_closing(box: LaunchBox) -> None:
    """Refused while it runs; afterwards the directory is gone, a late supervisor finds nothing, and what lies elsewhere stays."""
    launch = Launch(box, "l1")
    await launch.start(shell("echo kept >/tmp/kept; echo on; sleep 30"))
    await until_printed(launch, b"on")
    with pytest.raises(Permanent, match="still runs"):
        await launch.close()
    await launch.stop(10)
    await launch.close()
    await launch.close()
    assert await launch.standing() is Standing.ABSENT
    await box.put(SUPERVISOR, "/tmp/late.py")
    late = await box.exec(f"python3 -I /tmp/late.py run {launch.directory}", key="k", timeout_s=10)
    assert late.exit_code == the_supervisor.ABSENT
    assert (
        await box.exec("cat /tmp/kept; ls /tmp/gym-bus-launches", key="k", timeout_s=10)
    ).output == "kept\nsupervisor.py\n"


async def test_closing_what_was_half_closed(box: LaunchBox) -> None:
    """Whoever was killed between the two steps left a directory of another name; the next one removes it."""
    launch = Launch(box, "l1")
    await receipt_of(box, shell("true"))
    await box.exec(f"mv {launch.directory} {launch.directory}.closed", key="k", timeout_s=10)
    await launch.close()
    assert (await box.exec("ls /tmp/gym-bus-launches", key="k", timeout_s=10)).output == "supervisor.py\n"


@pytest.mark.parametrize("kind", [DOCKER])
async def test_an_image_without_python(kind: str, tmp_path: Path) -> None:
    """It is refused, in words that say what the image lacks."""
    provider = await provider_of(kind, tmp_path / "boxes")
    try:
        box = cast("LaunchBox", await provider.create(f"launching.{os.getpid()}.b2"))
        with pytest.raises(Unlaunchable, match="image lacks a usable `python3`") as refused:
            await prepare(box)
        failure = seed_failure(refused.value)
        assert (failure.kind, failure.terminal) == ("unsupported", True), (
            "a machine is refused before it is given to anybody"
        )
    finally:
        await provider.aclose()


@pytest.mark.parametrize("bad", [{"launch_id": "../x"}, {"argv": ("a", "b\0")}, {"environment": {"A": "\0"}}])
async def test_orders_that_nobody_can_run(box: LaunchBox, bad: dict[str, object]) -> None:
    with pytest.raises((ValueError, Permanent)):
        await Launch(box, "l1").start(order("true", **bad))


def test_the_supervisor_alone(tmp_path: Path) -> None:
    """It needs nothing but Python: killed at its claim, it leaves a claim that nobody takes again."""
    directory = tmp_path / "l1"
    directory.mkdir()
    ordered = shell("sleep 20", cwd="/", environment={"PATH": os.defpath})
    (directory / "order").write_bytes(ordered.written())
    running = subprocess.Popen([sys.executable, "-I", SUPERVISOR, "run", directory])
    until = time.monotonic() + 10
    while not (directory / "claim").exists() or not (directory / "claim").read_bytes():
        assert time.monotonic() < until
        time.sleep(0.01)
    assert (directory / "claim").read_bytes() == b"l1 %d" % running.pid
    running.kill()
    running.wait(10)
    (directory / "order").write_bytes(ordered.written())
    again = subprocess.run([sys.executable, "-I", SUPERVISOR, "run", directory], timeout=10, check=False)
    assert again.returncode == 0
    assert not (directory / "receipt.json").exists()
    assert not (directory / "order").exists()
    assert shlex.join(ordered.argv) not in "\n".join(processes_with("sleep 20"))


def test_the_supervisor_is_for_old_pythons_too() -> None:
    """Its grammar is that of Python 3.8."""
    ast.parse(SUPERVISOR.read_text(), feature_version=(3, 8))
