# ruff: noqa: ASYNC240  tests look at /proc
"""What one box leaves for the next, and what two can tell each other while both are there: nothing."""

from __future__ import annotations

import asyncio
import secrets
import shlex
from pathlib import Path

from providers.sandboxes import SandboxProvider
from tests.support.attacked import RUN, RedAgent, provider_of, room_of

LEAVE = """
for place in /box /tmp /dev/shm /run /var/tmp /etc /usr/bin /usr/local/bin /home /root "$HOME" /run/io /dev; do
    echo "$1" >"$place/$1" 2>/dev/null && echo "wrote $place"
done
mkdir -p /box/.config /box/.cache && echo "export PATH=/box/$1:\\$PATH" >/box/.profile && cp /box/.profile /box/.bashrc
(trap '' TERM HUP; exec -a "$1" sleep 300) >/dev/null 2>&1 &
sh -c "sleep 300; : $1" >/dev/null 2>&1 &
exit 0
"""
LOOK = """
find / \\( -path /proc -o -path /sys \\) -prune -o -name "*$1*" -print 2>/dev/null
grep -rlsF -e "$1" /box /tmp /dev/shm /etc /home /root /var/tmp 2>/dev/null
env | grep -F -e "$1"
for place in /proc/[0-9]*; do tr '\\0' ' ' <$place/cmdline 2>/dev/null | grep -F -e "$1" | grep -v 'set --'; done
true
"""
SEND = """
import ctypes, os, socket, sys, time
key, name = int(sys.argv[1]), sys.argv[2]
libc = ctypes.CDLL(None, use_errno=True)
held = [socket.socket(socket.AF_UNIX), socket.create_server(("127.0.0.1", 4077))]
held[0].bind("\\0" + name)
held[0].listen()
print("shm", libc.shmget(key, 4096, 0o1666), "msg", libc.msgget(key, 0o1666), "sem", libc.semget(key, 1, 0o1666), flush=True)
os.close(libc.syscall({"x86_64": 240, "aarch64": 180}[os.uname().machine], name.encode(), 0o102, 0o666, 0))
print("up", flush=True)
time.sleep(60)
"""
WATCH = """
import ctypes, fcntl, os, select, struct, sys
libc = ctypes.CDLL(None, use_errno=True)
fd = libc.inotify_init()
watched, held = {}, []
for path in sys.argv[1:]:
    held.append(os.open(path, os.O_RDONLY))
    fcntl.flock(held[-1], fcntl.LOCK_EX)
    watched[libc.inotify_add_watch(fd, path.encode(), 0x20)] = path
open("up", "w")
heard = os.read(fd, 4096) if select.select([fd], [], [], 3)[0] else b""
print(" ".join(sorted({watched[n] for n, in struct.iter_unpack("i12x", heard)})) or "quiet")
"""
TRY = """
import fcntl, os, sys
for path in sys.argv[1:]:
    try:
        fcntl.flock(os.open(path, os.O_RDONLY), fcntl.LOCK_EX | fcntl.LOCK_NB)
        print("free")
    except OSError as error:
        print(path, error)
"""
ALSO = {"bubblewrap": ["/usr/bin", "/etc/alternatives"]}
HEAR = """
import ctypes, os, socket, sys
key, name = int(sys.argv[1]), sys.argv[2]
libc = ctypes.CDLL(None, use_errno=True)
print("shm", libc.shmget(key, 0, 0), "msg", libc.msgget(key, 0), "sem", libc.semget(key, 0, 0))
print("queue", libc.syscall({"x86_64": 240, "aarch64": 180}[os.uname().machine], name.encode(), 0, 0, 0))
for family, address in ((socket.AF_UNIX, "\\0" + name), (socket.AF_INET, ("127.0.0.1", 4077))):
    try:
        socket.socket(family).connect(address)
        print("connected", address)
    except OSError as error:
        print("refused")
"""


def scripted(text: str, word: str) -> str:
    return f"set -- {word}\n{text}"


async def test_a_box_of_the_same_name_finds_nothing_of_the_one_before(
    provider: SandboxProvider, kind: str, tmp_path: Path
) -> None:
    """17: neither in this process nor, by the same directory, in the next one: no file, no process, no setting."""
    word = f"poison{secrets.token_hex(6)}"
    first = RedAgent(await provider.create(f"{RUN}.1.b1"), kind)
    left = await first.run(scripted(LEAVE, word))
    assert {"wrote /box", "wrote /tmp", "wrote /dev/shm"} <= set(left.output.splitlines())
    seen = await first.said(scripted(LOOK, word))
    assert f"/box/{word}" in seen.splitlines(), "whoever looks in the same box finds it"
    place = room_of(first.box).path
    await first.box.destroy()
    assert not place.exists()
    assert not [path for path in Path("/proc").glob("[0-9]*/cmdline") if word.encode() in read(path)]
    second = RedAgent(await provider.create(f"{RUN}.1.b1"), kind)
    assert await second.said(scripted(LOOK, word)) == ""
    assert (await second.said("ls -A /box /tmp /dev/shm | grep -v :")).split() == []
    await second.box.destroy()
    async with provider_of(kind, tmp_path / "boxes") as next_process:
        third = RedAgent(await next_process.create(f"{RUN}.1.b1"), kind)
        assert await third.said(scripted(LOOK, word)) == ""


async def test_what_runs_next_is_what_the_system_has(provider: SandboxProvider, red: RedAgent, kind: str) -> None:
    """7, 17: programs and libraries put before the system's are there for oneself at most; the next box runs the real ones."""
    planted = await red.run(
        "mkdir -p /box/bin && printf '#!/bin/sh\\necho trojan\\n' >/box/bin/cat && chmod 755 /box/bin/cat && "
        "for place in /usr/bin /bin /usr/local/bin /sbin; do cp /box/bin/cat $place/cat && echo planted; done; "
        "echo /box/evil.so >/etc/ld.so.preload && echo planted; /box/bin/cat /dev/null 2>&1"
    )
    assert "trojan" in planted.output.splitlines()
    assert "planted" not in planted.output
    assert await red.said("echo real | cat") == "real\n", "not even its own next command"
    other = RedAgent(await provider.create(f"{RUN}.2.b1"), kind)
    assert await other.said("echo real | cat") == "real\n"
    assert await other.said("cat /etc/ld.so.preload 2>/dev/null; env | grep -E 'LD_|PYTHON|BASH_ENV|ENV='") == ""


async def test_two_boxes_at_once_have_nothing_in_common(provider: SandboxProvider, red: RedAgent, kind: str) -> None:
    """18: ports, abstract sockets, shared memory, semaphores, message queues: the same names, and each box has its own."""
    word, key = f"beacon{secrets.token_hex(4)}", secrets.randbelow(2**30) + 1
    arguments = shlex.join(["-c", SEND, str(key), word])
    sending = await red.run(
        f"{red.python()} {arguments} >/tmp/log 2>&1 & for i in 1 2 3 4; do grep -q up /tmp/log && break; sleep 1; done; cat /tmp/log"
    )
    assert "up" in sending.output.split(), sending.output
    heard_at_home = (await red.script(HEAR, str(key), word)).output
    assert heard_at_home.count("connected") == 2, "the beacon is lit"
    assert "-1" not in heard_at_home
    other = RedAgent(await provider.create(f"{RUN}.2.b1"), kind)
    heard = await other.script(HEAR, str(key), word)
    assert heard.output.split("\n") == ["shm -1 msg -1 sem -1", "queue -1", "refused", "refused", ""]


async def test_files_of_two_boxes_are_not_the_same_files(provider: SandboxProvider, red: RedAgent, kind: str) -> None:
    """18: what both can write to is on no shared file system object: other inodes, other locks."""
    other = RedAgent(await provider.create(f"{RUN}.2.b1"), kind)
    told = []
    for agent in (red, other):
        await agent.run("for place in /box /tmp /dev/shm; do echo x >$place/same; done")
        told.append((await agent.said("stat -c '%d:%i' /box /box/same; stat -c '%d' /tmp /dev/shm")).split())
    assert len(told[0]) == 4
    assert not set(told[0]) & set(told[1])


async def test_files_that_all_may_read_tell_nothing_between_boxes(
    provider: SandboxProvider, red: RedAgent, kind: str
) -> None:
    """18: who watches or locks a program of the system, a device or a setting learns and blocks nothing of another box that uses it."""
    program = "/usr/bin/comm" if kind == "bubblewrap" else "/bin/busybox"
    places = [program, "/dev/null", "/dev/urandom", "/proc/sys/kernel/ostype", "/proc/version", *ALSO.get(kind, [])]
    other = RedAgent(await provider.create(f"{RUN}.2.b1"), kind)
    watching = asyncio.create_task(red.script(WATCH, *places))
    async with asyncio.timeout(20):
        while (await other.run(f"test -e {program}")).exit_code or not (room_of(red.box).work / "up").exists():
            await asyncio.sleep(0.05)
    tried = await other.script(TRY, *places)
    assert tried.output == "free\n" * len(places)
    assert (await watching).output == "quiet\n"


async def test_a_box_cannot_pass_for_another(provider: SandboxProvider, red: RedAgent, kind: str) -> None:
    """18: the pipes by which commands speak to us can neither be listed nor made by a box, and another's are not in it."""
    other = RedAgent(await provider.create(f"{RUN}.2.b1"), kind)
    speaking = asyncio.create_task(other.run("sleep 1; echo mine", timeout_s=20))
    await asyncio.sleep(0.3)
    assert (await red.run("ls /run/io")).exit_code != 0
    assert (await red.run("echo forged >/run/io/x || mkfifo /run/io/y")).exit_code != 0
    [name] = [path.name for path in room_of(other.box).pipes.iterdir()]
    assert (await red.run(f"timeout 2 sh -c 'echo forged >/run/io/{name}'")).exit_code != 0
    assert (await speaking).output == "mine\n"


def read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""
