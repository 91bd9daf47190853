"""What a program may do to its own launch: things in its way, a stopped supervisor, no memory. Nothing is held up, or believed."""

from __future__ import annotations

import asyncio
import os
import shlex
import signal
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any, cast

import pytest

from actors.sandbox.launching import GoingLaunch
from adapters.harnesses.base import Plan, Trace
from adapters.harnesses.launching import Launch, LaunchBox, LaunchUnknown
from adapters.harnesses.launching import launch as the_launch
from adapters.harnesses.launching.launch import Standing
from adapters.harnesses.readers import LineReader
from adapters.harnesses.trajectory import Said
from providers.sandboxes import BoxLost
from providers.sandboxes.base import ExecResult
from providers.sandboxes.control_groups import memory_hierarchy
from tests.support.boxes import processes_with, provider_of, unique_sleep, until_gone
from tests.support.launches import LIMITS, on_this_host, receipt_of, shell, until_printed


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


@pytest.mark.parametrize("hides", ["", ": >claim", "rm -rf $PWD"])
async def test_what_a_program_leaves_behind_a_receipt_of_its_own(box: LaunchBox, hides: str) -> None:
    """It kills its supervisor, says that all went well, and goes on: that ends when the launch is closed, before anything follows."""
    sleep, launch = unique_sleep(), Launch(box, "l1")
    made_up = await receipt_of(box, shell("true"))
    await launch.close()
    forged = f"echo {shlex.quote(made_up.model_dump_json())} >receipt.json"
    await launch.start(
        shell(f"cd {launch.directory}; setsid {sleep} & until pgrep -x sleep; do :; done; {forged}; kill -9 $PPID")
    )
    assert await launch.wait(20) == made_up
    assert processes_with(sleep)
    if hides:
        await box.exec(f"cd {launch.directory}; {hides}", key="k", timeout_s=10)
    await launch.close()
    assert await until_gone(sleep)


async def test_a_receipt_whose_words_no_log_is_to_hold(box: LaunchBox) -> None:
    """They are told, without what is no text."""
    made_up = await receipt_of(box, shell("true"))
    await Launch(box, "l1").close()
    said = shlex.quote(made_up.replaced(launch_id="l2", error="odd\0 words").model_dump_json())
    script = f"echo {said} >/tmp/gym-bus-launches/l2/receipt.json; kill -9 $PPID"
    plan = Plan(
        ("/bin/sh", "-c", script), {"PATH": "/usr/bin:/bin"}, (Trace("stdout", lambda: LineReader(lambda _: ())),)
    )
    going = await GoingLaunch.begun(box, plan, "l2", "/box", 30)
    async with asyncio.timeout(20):
        while not going.is_read:
            await going.look()
    assert going.receipt is not None
    assert (await going.ended("asked", going.receipt)).stderr == "odd\ufffd words"


PRINTS_MUCH = """
import json, sys, time
for number in range(200):
    print(json.dumps({"type": "n", "text": "x" * 100_000, "n": number}), flush=True)
time.sleep(60)
"""


async def test_what_is_written_fast_is_read_as_fast(box: LaunchBox) -> None:
    """Whoever is behind does not wait before each piece: twenty MiB of a program that goes on are told in some seconds."""
    told: list[str] = []

    def interpret(record: dict[str, Any]) -> Iterable[Said]:
        told.append(str(record["n"]))
        return [Said("assistant", str(record["n"]))]

    plan = Plan(
        ("/usr/bin/python3", "-c", PRINTS_MUCH),
        {"PATH": "/usr/bin:/bin"},
        (Trace("stdout", lambda: LineReader(interpret)),),
    )
    going = await GoingLaunch.begun(box, plan, "l1", "/box", 90)
    looks, at = 0, asyncio.get_running_loop().time
    began = at()
    while len(told) < 200:
        await going.look()
        looks += 1
        assert looks < 50
    spent_s = at() - began
    assert going.receipt is None
    assert told == [str(number) for number in range(200)]
    assert spent_s < 0.7 * looks, "a look at a time, and a second before each"
    await Launch(box, "l1").stop(20)


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
