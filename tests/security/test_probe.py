"""What can be reached from inside a box, looked for by a script that does find it all where there is no box."""

from __future__ import annotations

import asyncio
import os
import pty
import re
import secrets
import shlex
import subprocess
import sys
from collections.abc import Iterator

import pytest

from providers.sandboxes import SandboxProvider
from providers.sandboxes.capabilities import WithDetached
from tests.support.attacked import RUN, RedAgent
from tests.support.host_world import PROBE, HostWorld, host_world

WITHIN_S = 120
FINISHED = ["probed sh", "probed python"]
ONLY_ROOT_FINDS = {"capability", "root", "device", "kernel-write", "writable-mount", "kernel-file", "kernel-log"}
# In a network namespace of its own, with an address of clouds on its loopback, something answers there; then comes the probe.
METADATA = """
import fcntl, os, socket, struct, subprocess, sys
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
    fcntl.ioctl(s, 0x8914, struct.pack("16sh14x", b"lo", 0x49))
    address = struct.pack("16sH2s4s8x", b"lo:1", socket.AF_INET, b"", socket.inet_aton("169.254.169.254"))
    fcntl.ioctl(s, 0x8916, address)
anywhere = socket.create_server(("0.0.0.0", 80))
sys.exit(subprocess.run(["sh", sys.argv[1], "scan=1", "walk=" + sys.argv[2]]).returncode)
"""


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HostWorld]:
    with host_world(tmp_path_factory.mktemp("data")) as world:
        yield world


def kinds_of(lines: list[str]) -> set[str]:
    return {line.split()[1] for line in lines if line.startswith("found ")}


def probed_here(targets: list[str]) -> list[str]:
    """Return what the probe finds in a process that is in no box, as a child of this one, at a terminal."""
    ours, theirs = pty.openpty()
    environment = {**os.environ, "PROBE_WORD": " ".join(t[5:] for t in targets if t.startswith("word="))}
    command = ["setsid", "--ctty", "sh", "-c", 'sh "$0" "$@" <&0', str(PROBE), *targets]
    try:
        done = subprocess.run(
            command, stdin=theirs, capture_output=True, text=True, env=environment, timeout=WITHIN_S, check=True
        )
    finally:
        os.close(ours)
        os.close(theirs)
    return done.stdout.splitlines()


@pytest.mark.filterwarnings("ignore:subprocess:ResourceWarning")  # the bus outlives its starter on purpose
def test_the_probe_finds_everything_where_there_is_no_box(world: HostWorld) -> None:
    """Each kind of thing that it can report is found on the host, each target by name: finding nothing does mean something."""
    lines = probed_here([*world.targets, f"walk={world.directory}"])  # a host may have very many files
    assert [line for line in lines if line.startswith("probed")] == FINISHED
    listening = [t.partition("=") for t in world.targets if not t.startswith(("word=", "file=", "ns="))]
    for kind, _, value in listening:
        assert f"found {kind} {value}" in lines, (kind, value)
    for target in world.targets:
        if target.startswith(("file=", "ns=")):
            kind = {"file": "file", "ns": "namespace"}[target.partition("=")[0]]
            assert f"found {kind} {target.partition('=')[2]}" in lines, target
    assert any(line.startswith(f"found name {world.directory}") for line in lines)
    assert any("environ has" in line and world.word in line for line in lines)

    metadata = subprocess.run(
        ["unshare", "-rn", sys.executable, "-c", METADATA, str(PROBE), str(world.directory)],
        capture_output=True,
        text=True,
        timeout=WITHIN_S,
        check=True,
    ).stdout.splitlines()
    assert "found metadata 169.254.169.254" in metadata
    assert "found tcp 127.0.0.1:80 by scan" in metadata

    reported = set(re.findall(r'found(?:\("| )([a-z][a-z-]+)', PROBE.read_text().partition("# Nothing is changed")[2]))
    expected = reported if os.geteuid() == 0 else reported - ONLY_ROOT_FINDS
    engine = {"engine-socket"} if not any("docker.sock" in t for t in world.targets) else set()
    assert expected - engine <= kinds_of(lines) | kinds_of(metadata), "a kind that it cannot find is not looked for"
    calls = {line.split()[2] for line in lines if line.startswith("found syscall")}
    if os.geteuid() == 0:
        assert {"keyctl", "bpf", "mount", "userfaultfd", "setns", "perf_event_open", "open_by_handle_at"} <= calls
    ways = {line.split(" ", 2)[2] for line in [*lines, *metadata] if line.startswith("found new-namespace")}
    assert {"user by unshare", "user by clone", "user by clone3", "net by unshare"} <= ways


@pytest.mark.filterwarnings("ignore:subprocess:ResourceWarning")
async def test_a_box_reaches_nothing_else(
    world: HostWorld, provider: SandboxProvider, red: RedAgent, kind: str
) -> None:
    """Not the bus, engines, clouds or anything of this host; not another box, whose files, ports, processes and memory are there."""
    beacon = f"canary{secrets.token_hex(6)}"
    other = RedAgent(await provider.create(f"{RUN}.2.b1"), kind)
    listening = (
        "import os,socket,sys,time\n"
        "t=socket.create_server(('127.0.0.1',4099)); a=socket.socket(socket.AF_UNIX); a.bind('\\0'+sys.argv[1]); a.listen()\n"
        "print('up', flush=True); time.sleep(100)"
    )
    lit = await other.run(
        f"for place in /box /tmp /dev/shm; do echo {beacon} >$place/{beacon}; done; export BEACON={beacon}; "
        f"{other.python()} -c {shlex.quote(listening)} {beacon} >/tmp/log 2>&1 & for i in 1 2 3 4 5 6 7 8 9; do "
        "grep up /tmp/log && exit; sleep 1; done; cat /tmp/log; exit 1"
    )
    assert lit.exit_code == 0, lit.output
    targets = [
        *world.targets,
        *(f"file={place}/{beacon}" for place in ("/box", "/tmp", "/dev/shm")),
        *(f"word={beacon}", "tcp=127.0.0.1:4099", f"abstract={beacon}", "scan=1"),
    ]
    seen = await other.run(
        f"set -- {shlex.join(targets)}; export PROBE_PYTHON='{other.python()}'\n{PROBE.read_text()}", timeout_s=WITHIN_S
    )
    assert {"file", "name", "process", "tcp", "abstract"} <= kinds_of(seen.output.splitlines()), (
        seen.output  # the beacon is lit: who is in the same box sees it
    )
    done = await red.run(
        f"set -- {shlex.join(targets)}; export PROBE_PYTHON='{red.python()}'\n{PROBE.read_text()}", timeout_s=WITHIN_S
    )
    lines = done.output.splitlines()
    assert [line for line in lines if line.startswith("found")] == []
    assert lines == FINISHED, done.output
    assert not done.truncated


@pytest.mark.filterwarnings("ignore:subprocess:ResourceWarning")
async def test_a_job_reaches_no_more_than_a_command(world: HostWorld, red: RedAgent) -> None:
    """What goes on beside commands is started in another way, and is held by the same."""
    assert isinstance(red.box, WithDetached)
    script = f"set -- {shlex.join(world.targets)}; export PROBE_PYTHON='{red.python()}'\n{PROBE.read_text()}"
    job = await red.box.start(script, key="probe", timeout_s=WITHIN_S)
    async with asyncio.timeout(WITHIN_S):
        while (await red.box.status(job)).is_running:
            await asyncio.sleep(0.1)
    lines = (await red.box.output_of(job)).decode().splitlines()
    assert [line for line in lines if "GYM_BUS_JOB" not in line] == FINISHED
