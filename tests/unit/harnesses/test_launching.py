"""What a launch promises in a real bubblewrap box: it runs once, ends with all it started, and says how; or nobody says anything."""

from __future__ import annotations

import ast
import asyncio
import json
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import cast

import pytest

from actors.sandbox.failures import seed_failure
from adapters.harnesses.launching import Launch, LaunchBox, LaunchUnknown, Order, Receipt, Unlaunchable, prepare
from adapters.harnesses.launching import launch as the_launch
from adapters.harnesses.launching import supervisor as the_supervisor
from adapters.harnesses.launching.launch import Standing
from gym_bus.errors import Permanent
from providers.sandboxes import BoxLost, SandboxProvider
from providers.sandboxes.base import ExecResult
from providers.sandboxes.control_groups import memory_hierarchy
from schemas.sandboxes import SandboxLimits
from tests.support.boxes import DOCKER, processes_with, provider_of, unique_sleep, until_gone

LIMITS = SandboxLimits(processes=128, file_mib=64)
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


@pytest.fixture
async def provider(tmp_path: Path) -> AsyncIterator[SandboxProvider]:
    provider = await provider_of("bubblewrap", tmp_path / "boxes", None, LIMITS)
    yield provider
    await provider.aclose()


@pytest.fixture
async def box(provider: SandboxProvider) -> LaunchBox:
    return cast("LaunchBox", await provider.create(f"launching.{os.getpid()}.b1"))


def order(*argv: str, **changes: object) -> Order:
    said = {"launch_id": "l1", "argv": argv, "environment": {"PATH": "/usr/bin:/bin"}, "cwd": "/box", "timeout_s": 30}
    return Order.model_validate({**said, "grace_s": 0.5, **changes})


def shell(script: str, **changes: object) -> Order:
    return order("/bin/sh", "-c", script, **changes)


async def receipt_of(box: LaunchBox, ordered: Order, within_s: float = 20) -> Receipt:
    launch = Launch(box, "l1")
    await launch.start(ordered)
    found = await launch.wait(within_s)
    assert found is not None
    return found


async def until_printed(launch: Launch, wanted: bytes, name: str = "stdout") -> bytes:
    async with asyncio.timeout(20):
        while wanted not in (content := await launch.read(name, 0)):
            await asyncio.sleep(0.05)
    return content


def on_this_host(text: str) -> int:
    """Return the pid, as this host sees it, of the one process of ours whose command line holds `text`, what it forked left out."""
    found = [
        int(entry.name)
        for entry in os.scandir("/proc")
        if entry.name.isdecimal() and text.encode() in _line(int(entry.name)) and _is_ours(int(entry.name))
    ]
    first = [pid for pid in found if _parent(pid) not in found]
    assert len(first) == 1, found
    return first[0]


def _parent(pid: int) -> int:
    """Return the parent of a process; 0 if it is gone."""
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return 0


def _is_ours(pid: int) -> bool:
    """Say whether a process descends from this one: others may run the same tests at the same time."""
    while pid > 1:
        pid = _parent(pid)
        if pid == os.getpid():
            return True
    return False


def _line(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ")
    except OSError:
        return b""


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
    assert "order.json" not in left.output


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


async def test_a_receipt_that_was_made_up(box: LaunchBox) -> None:
    """While its supervisor lives, what an agent wrote in its place is not believed, and it is replaced."""
    launch = Launch(box, "l1")
    made_up = await receipt_of(box, shell("exit 7"))
    await launch.close()
    forged = f"echo {shlex.quote(made_up.model_dump_json())} >{launch.directory}/receipt.json"
    await launch.start(shell(f"{forged}; echo on; sleep 30"))
    await until_printed(launch, b"on")
    assert await Launch(box, "l1").wait(1) is None
    receipt = await launch.stop(20)
    assert receipt is not None
    assert (receipt.ended_by, receipt.exit_code) == ("stopped", None)


@pytest.mark.parametrize(
    "spoil",
    ["echo '{}' >receipt.json", "mkdir receipt.json", "head -c 1000000 /dev/zero >receipt.json", 'rm -rf "$PWD"'],
)
async def test_a_receipt_that_is_none(box: LaunchBox, spoil: str) -> None:
    """Nothing is known of what an agent ended in such a way, and that is found out at once."""
    launch = Launch(box, "l1")
    await launch.start(shell("echo on; sleep 30"))
    await until_printed(launch, b"on")
    os.kill(on_this_host(f"supervisor.py run {launch.directory}"), signal.SIGKILL)
    await box.exec(f"cd {launch.directory}; {spoil}", key="k", timeout_s=10)
    with pytest.raises(LaunchUnknown):
        await launch.wait(20)


@pytest.mark.parametrize("name", ["receipt.json.part", "receipt.json"])
@pytest.mark.parametrize("lays", ["mkfifo {0}", "ln -s /box/elsewhere {0}", "mkdir {0}; mkdir {0}/below"])
async def test_a_receipt_is_written_whatever_lies_in_its_place(box: LaunchBox, lays: str, name: str) -> None:
    """A pipe, a link or a directory that its program made there holds nothing up, and is not written through."""
    await box.exec("echo mine >elsewhere", key="k", timeout_s=10)
    receipt = await receipt_of(box, shell(f"cd /tmp/gym-bus-launches/l1; {lays.format(name)}; exit 7"))
    assert (receipt.ended_by, receipt.exit_code) == ("exit", 7)
    assert (await box.exec("cat elsewhere", key="k", timeout_s=10)).output == "mine\n"


@pytest.mark.parametrize("lays", ["mkfifo $part", "ln -s /box/elsewhere $part", "mkdir $part"])
async def test_its_output_is_read_whatever_lies_in_the_place_of_the_copy(box: LaunchBox, lays: str) -> None:
    await box.exec("echo mine >elsewhere", key="k", timeout_s=10)
    launch = Launch(box, "l1")
    await launch.start(shell("echo on; sleep 30"))
    await until_printed(launch, b"on\n")
    swapped = f"cd {launch.directory}; part=$(echo part-*); rm $part; {lays}"
    assert (await box.exec(swapped, key="k", timeout_s=10)).exit_code == 0
    assert await asyncio.wait_for(launch.read("stdout", 0), 20) == b"on\n"
    assert (await box.exec("cat elsewhere", key="k", timeout_s=10)).output == "mine\n"
    assert await launch.stop(10)


@pytest.mark.parametrize("lays", ["mkfifo {0}/stdout {0}/stderr", "ln -s /box/elsewhere {0}/stdout"])
async def test_what_an_earlier_program_laid_there_holds_nothing_up(box: LaunchBox, lays: str) -> None:
    """Names of launches can be foreseen: a pipe or a link where a later one's output goes is replaced."""
    directory = Launch(box, "l1").directory
    await box.exec(f"echo mine >elsewhere; mkdir -p {directory}; {lays.format(directory)}", key="k", timeout_s=10)
    receipt = await receipt_of(box, shell("echo on; exit 7"))
    assert (receipt.exit_code, receipt.stdout.kept) == (7, 3)
    assert (await box.exec("cat elsewhere", key="k", timeout_s=10)).output == "mine\n"


@pytest.mark.parametrize("lays", ["mkfifo {0}/claim", "ln -s /box/elsewhere {0}/claim"])
async def test_a_claim_that_is_none(box: LaunchBox, lays: str) -> None:
    """It is neither waited for nor followed, and nothing is launched."""
    launch = Launch(box, "l1")
    await box.exec(f"mkdir -p {launch.directory}; {lays.format(launch.directory)}", key="k", timeout_s=10)
    await launch.start(shell("touch /box/ran"))
    with pytest.raises(LaunchUnknown, match=r"l1 cannot be looked at any more: .*its program"):
        await launch.wait(20)
    assert (await box.exec("ls", key="k", timeout_s=10)).output == ""


async def test_a_supervisor_that_its_program_has_stopped(box: LaunchBox, monkeypatch: pytest.MonkeyPatch) -> None:
    """What outlives its deadline in such a way is ended soon after it, and nobody says how it ended."""
    monkeypatch.setattr(the_launch, "LATE_S", 1.5)
    sleep, began = unique_sleep(), time.monotonic()
    launch = Launch(box, "l1")
    await launch.start(shell(f"kill -STOP $PPID; (setsid {sleep}) & {sleep}", timeout_s=1))
    with pytest.raises(LaunchUnknown, match=r"no receipt 1\.5 s after its time"):
        await _looked_at_until_it_ends(launch)
    assert time.monotonic() - began < 15
    assert not processes_with(sleep)


async def _looked_at_until_it_ends(launch: Launch) -> None:
    """Do what the sandbox actor does."""
    async with asyncio.timeout(40):
        while not await launch.wait(0):
            await launch.read("stdout", 0)
            await asyncio.sleep(0.1)


async def test_a_directory_that_its_program_has_closed(box: LaunchBox) -> None:
    """Its end is an unknown one that says what happened; what the program left has ended."""
    sleep = unique_sleep()
    launch = Launch(box, "l1")
    await launch.start(shell(f"setsid {sleep} & sleep 0.5; chmod 000 {launch.directory}"))
    with pytest.raises(LaunchUnknown, match=r"cannot be looked at any more: Permission denied.*its program"):
        await launch.wait(20)
    assert not processes_with(sleep)


@pytest.mark.parametrize(
    ("ended_by", "said"), [("out_of_memory", "the sandbox ran out of memory"), ("signal", "`part` was killed .*137")]
)
async def test_what_was_killed_while_it_was_read(box: LaunchBox, ended_by: str, said: str) -> None:
    """The reason is told, and not only a number."""

    class StrickenBox:
        def __init__(self, exit_code: int) -> None:
            self.exit_code = exit_code

        async def exec(self, command: str, **_: object) -> ExecResult:
            return ExecResult(self.exit_code, command, 0, truncated=False, ended_by=ended_by, duration_s=0.1)  # type: ignore[arg-type]

        def __getattr__(self, name: str) -> object:
            return getattr(box, name)

    with pytest.raises(LaunchUnknown, match=said):
        await Launch(cast("LaunchBox", StrickenBox(137)), "l1").read("stdout", 0)
    if ended_by == "out_of_memory":  # something else in there was killed
        assert await Launch(cast("LaunchBox", StrickenBox(10)), "l1").standing() is Standing.RUNNING


@pytest.mark.skipif(memory_hierarchy() is None or os.getuid() != 0, reason="no control group can be made here")
async def test_an_agent_that_fills_the_memory(tmp_path: Path) -> None:
    """Files in /tmp are memory: what is killed for want of it is not said to be a program's own end."""
    limits = LIMITS.replaced(memory_mib=96)
    provider = await provider_of("bubblewrap", tmp_path / "small", None, limits)
    try:
        launch = Launch(cast("LaunchBox", await provider.create(f"launching.{os.getpid()}.b3")), "l1")
        await launch.start(shell("trap '' TERM; for n in 1 2 3 4; do head -c 40m /dev/zero >/tmp/$n & done; wait"))
        with pytest.raises((LaunchUnknown, BoxLost), match=r"ran out of memory|no memory|memory ran out|b3 is gone"):
            await _looked_at_until_it_ends(launch)
    finally:
        await provider.aclose()


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
    (directory / "order.json").write_bytes(ordered.written())
    running = subprocess.Popen([sys.executable, "-I", SUPERVISOR, "run", directory])
    until = time.monotonic() + 10
    while not (directory / "claim").exists() or not (directory / "claim").read_bytes():
        assert time.monotonic() < until
        time.sleep(0.01)
    assert json.loads((directory / "claim").read_bytes())["pid"] == running.pid
    running.kill()
    running.wait(10)
    (directory / "order.json").write_bytes(ordered.written())
    again = subprocess.run([sys.executable, "-I", SUPERVISOR, "run", directory], timeout=10, check=False)
    assert again.returncode == 0
    assert not (directory / "receipt.json").exists()
    assert not (directory / "order.json").exists()
    assert shlex.join(ordered.argv) not in "\n".join(processes_with("sleep 20"))


def test_the_supervisor_is_for_old_pythons_too() -> None:
    """Its grammar is that of Python 3.8."""
    ast.parse(SUPERVISOR.read_text(), feature_version=(3, 8))
