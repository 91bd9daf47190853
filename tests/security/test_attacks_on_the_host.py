# ruff: noqa: ASYNC240  tests look at /proc
"""Attacks on what runs a box: exhausting it, killing what is beside it, hiding from it, leaving it what it cannot clear away."""

from __future__ import annotations

import asyncio
import os
import time
from contextlib import suppress
from pathlib import Path

import pytest

from providers.sandboxes import BoxLost, SandboxProvider
from providers.sandboxes.bubblewrap_argv import ENVIRONMENT
from tests.support.attacked import RUN, RedAgent, room_of

BOMBS = {
    "processes": "f() { f | f & f; }; f",
    "sleepers": "while :; do (sleep 1000 &); done",
    "sessions": "f() { setsid sh -c 'sleep 9' & f; }; f",
}
OPEN_ALL = """
import os, resource
held = []
try:
    while True:
        held.append(os.open("/dev/null", os.O_RDONLY))
except OSError as error:
    print(len(held), error.errno)
"""
MANY_PIPES = """
import os, time
for _ in range(40):
    if os.fork() == 0:
        try:
            while True:
                os.pipe()
        except OSError:
            time.sleep(5)
        os._exit(0)
time.sleep(2)
"""
TRACE_ALL = """
import ctypes, os
libc = ctypes.CDLL(None, use_errno=True)
for name in sorted(os.listdir("/proc")):
    if name.isdigit() and int(name) not in (os.getpid(), os.getppid()):
        print(name, libc.ptrace(0x4206, int(name), 0, 0), ctypes.get_errno())
"""


async def works(agent: RedAgent) -> bool:
    """Tell whether an ordinary command still does, in a moment."""
    began = time.monotonic()
    done = await agent.run("echo $((6 * 7))", timeout_s=20)
    return done.output == "42\n" and time.monotonic() - began < 20


@pytest.mark.parametrize("bomb", list(BOMBS))
async def test_a_bomb_harms_no_other_box_and_ends_at_its_deadline(
    provider: SandboxProvider, red: RedAgent, kind: str, bomb: str
) -> None:
    """6: while one box is full of processes another makes its own, and so does this host."""
    other = RedAgent(await provider.create(f"{RUN}.2.b1"), kind)
    exploding = asyncio.create_task(red.run(BOMBS[bomb], timeout_s=1.5))
    await asyncio.sleep(0.7)
    assert await works(other)
    assert (await asyncio.create_subprocess_exec("/bin/true")).pid
    await exploding
    await red.run("sleep 60", timeout_s=0.2)  # what is left of it ends with this
    assert await works(red)


async def test_memory_that_one_box_fills_is_missed_by_no_other(provider: SandboxProvider, kind: str) -> None:
    """6: in processes, in /dev/shm and in /tmp, as far as it gets; a box that has no room for its own shell left is lost."""
    other = RedAgent(await provider.create(f"{RUN}.2.b1"), kind)
    sizes = " ".join(map(str, range(20)))
    for number, command in enumerate(
        (
            "x=$(head -c 2000000000 /dev/zero | tr '\\0' x); echo ${#x}",
            f"for i in {sizes}; do head -c 60000000 /dev/zero >/dev/shm/$i; done",
            f"for i in {sizes}; do head -c 60000000 /dev/zero >/tmp/$i; done",
        )
    ):
        greedy = RedAgent(await provider.create(f"{RUN}.3.b{number}"), kind)
        with suppress(BoxLost):
            done = await greedy.run(command, timeout_s=60)
            assert done.exit_code != 0 or "No space" in done.output, (command, done)
        assert await works(other)
        await greedy.box.destroy()


async def test_open_files_are_bounded(red: RedAgent) -> None:
    """6: a process has a few thousand, so that all of a box's have less than the host can give."""
    done = await red.script(OPEN_ALL)
    count, code = map(int, done.output.split())
    assert count <= 4096
    assert code == 24, "EMFILE, its own bound, not that of the host"
    before = int(Path("/proc/sys/fs/file-nr").read_text().split()[0])
    filling = asyncio.create_task(red.script(MANY_PIPES, timeout_s=20))
    await asyncio.sleep(1.5)
    now, _, most = map(int, Path("/proc/sys/fs/file-nr").read_text().split())
    await filling
    assert now - before < most // 4


async def test_killing_and_stopping_everything_harms_only_oneself(
    provider: SandboxProvider, red: RedAgent, kind: str
) -> None:
    """6: signals reach no process of another box, nor any of this host."""
    other = RedAgent(await provider.create(f"{RUN}.2.b1"), kind)
    pids = " ".join([str(os.getpid()), *(str(pid) for pid in range(1, 400))])
    waiting = asyncio.create_task(other.run("sleep 2; echo survived", timeout_s=20))
    await asyncio.sleep(0.3)
    for command in (f"kill -9 {pids} 2>/dev/null", "kill -STOP -1", "kill -9 -1"):
        await red.run(command, timeout_s=1)
    assert (await waiting).output == "survived\n"
    assert await works(red)


async def test_nothing_outside_can_be_traced(provider: SandboxProvider, red: RedAgent, kind: str) -> None:
    """6: a debugger sees the processes of its own box; in bubblewrap not even the one that runs the commands."""
    other = RedAgent(await provider.create(f"{RUN}.2.b1"), kind)
    waiting = asyncio.create_task(other.run("sleep 3", timeout_s=20))
    await asyncio.sleep(0.3)
    done = await red.script(TRACE_ALL)
    assert done.exit_code == 0, done.output
    traced = [line.split() for line in done.output.splitlines()]
    assert 1 <= len(traced) <= 4, "few processes are in its sight"
    if kind == "bubblewrap":
        assert [line[1] for line in traced] == ["-1"] * len(traced)
    await waiting


async def test_a_box_knows_only_what_it_was_told(red: RedAgent, monkeypatch: pytest.MonkeyPatch) -> None:
    """11: its environment is what we say, whatever is in ours; no file of ours is open in it; nothing hangs on a terminal."""
    monkeypatch.setenv("OPENAI_API_KEY", "canary-of-the-host")
    environment = dict(line.split("=", 1) for line in (await red.said("env")).splitlines())
    own = {"PWD", "SHLVL", "OLDPWD", "_", "HOSTNAME", "container", "TERM"}
    assert {name: value for name, value in environment.items() if name not in own} == ENVIRONMENT
    assert environment.get("HOSTNAME", "box") == "box"
    descriptors = await red.said("for fd in /proc/self/fd/*; do echo ${fd##*/} $(readlink $fd); done")
    opened = {line.split()[0]: line.split()[1:] for line in descriptors.splitlines() if len(line.split()) > 1}
    assert set(opened) <= {"0", "1", "2"}, descriptors
    assert opened["0"] == ["/dev/null"]
    assert (await red.run("exec 3<>/dev/tty")).exit_code != 0


@pytest.mark.parametrize("how", ["deep", "locked", "many", "odd"])
async def test_whatever_is_left_in_a_workspace_is_cleared_away(red: RedAgent, how: str) -> None:
    """19: directories too deep for a path or a stack, without rights, too many, with names that are no text."""
    made = await red.run(
        {
            "deep": f'{red.python()} -c \'import os; [(os.mkdir("d"), os.chdir("d")) for _ in range(5000)]; open("f", "w")\'',
            "locked": "mkdir -p a/b/c && echo x >a/b/c/f && chmod 000 a/b/c a/b a",
            "many": "i=0; while [ $i -lt 5000 ]; do : >f$i; i=$((i + 1)); done; ln -s / all; mkfifo pipe",
            "odd": "mkdir \"$(printf 'new\\nline\\377')\" && : >\"$(printf -- '-rf \\033[31m')\" && ln -s .. ..link; ln -s loop loop",
        }[how],
        timeout_s=60,
    )
    assert made.exit_code == 0, made.output
    place = room_of(red.box).path
    await red.box.destroy()
    assert not place.exists()


async def test_output_that_hides_its_middle_says_so(red: RedAgent) -> None:
    """19: what is left out is counted, beginning and end are there, and forged words about it are only output."""
    done = await red.run("echo begin; head -c 3000000 /dev/zero | tr '\\0' A; echo; echo '[truncated]'; echo end")
    assert done.truncated
    assert done.output_bytes == 3_000_000 + len("begin\n\n[truncated]\nend\n")
    assert done.output.startswith("begin\n")
    assert done.output.endswith("[truncated]\nend\n")
    assert len(done.output.encode()) <= 262_144


@pytest.mark.alone
async def test_time_is_taken_outside(red: RedAgent) -> None:
    """8, 19: a command that ignores every signal and leaves children behind ends when we say, and we say how long it took."""
    began = time.monotonic()
    done = await red.run(
        "trap '' TERM INT HUP ALRM; (trap '' TERM; sleep 50) & setsid sleep 50 & sleep 50", timeout_s=1
    )
    assert done.ended_by == "timeout"
    assert done.exit_code is None
    assert 1 <= done.duration_s <= time.monotonic() - began < 15
    left = await red.said("grep -l sleep /proc/[0-9]*/comm 2>/dev/null")
    assert left == ""
