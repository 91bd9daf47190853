# ruff: noqa: ASYNC220  tests look at files, and start what they kill
"""What a container keeps in, what is told apart when it ends, and that none is left by whoever dies."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from gym_bus.cli.eval_run import resolve
from gym_bus.errors import BadConfig
from providers.sandboxes import Box, BoxLost, CreateFailed, SandboxProvider, SandboxUnavailable, make_provider
from providers.sandboxes import docker_engine as engines
from providers.sandboxes.docker_container import body_of, name_of
from providers.sandboxes.docker_engine import Engine
from providers.sandboxes.docker_owners import BOOT, OURS, OWNER, PIDS, containers_of, is_orphan, labels_of
from providers.sandboxes.rooms import Room
from schemas.sandboxes import Docker, SandboxLimits
from tests.support.engine import IMAGE, USER, needs_engine

pytestmark = needs_engine
RUN = f"docker{os.getpid()}"
LIMITS = SandboxLimits(memory_mib=64, processes=24, file_mib=1, cpu_s=1, output_bytes=4096)
ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
async def provider(tmp_path: Path) -> AsyncIterator[SandboxProvider]:
    provider = make_provider(Docker(image=IMAGE, user=USER, limits=LIMITS), tmp_path / "boxes")
    yield provider
    await provider.aclose()


@pytest.fixture
async def engine() -> AsyncIterator[Engine]:
    engine = Engine(None)
    yield engine
    await engine.aclose()


@pytest.fixture
async def box(provider: SandboxProvider) -> Box:
    return await provider.create(f"{RUN}.1.b1")


async def said(box: Box, command: str) -> str:
    return (await box.exec(command, key="k", timeout_s=20)).output


# -- what is kept in --------------------------------------------------------------------------------------------------


async def test_the_user_has_no_rights(box: Box) -> None:
    status = await said(box, "id -u; id -g; grep -E '^(Cap|NoNewPrivs|Seccomp:|Groups)' /proc/self/status")
    assert status.splitlines()[:2] == USER.split(":")
    assert [line.split()[1] for line in status.splitlines() if line.startswith("Cap")] == ["0" * 16] * 5
    assert "NoNewPrivs:\t1" in status
    assert "Seccomp:\t2" in status, "a filter of system calls"
    assert (await box.exec("unshare -U true", key="k", timeout_s=10)).exit_code != 0


async def test_there_is_no_network_and_no_engine(box: Box) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        assert (await said(box, "tail -n +3 /proc/net/dev | cut -d: -f1")).split() == ["lo"]
        assert (await box.exec(f"nc -w 2 127.0.0.1 {port} </dev/null", key="k", timeout_s=10)).exit_code != 0
    assert await said(box, "find / -xdev -type s 2>/dev/null; find /run /var /tmp -name '*.sock' 2>/dev/null") == ""


async def test_the_hosts_files_and_processes_are_not_there(box: Box, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("do-not-show")
    assert (await box.exec(f"cat {tmp_path}/secret", key="k", timeout_s=10)).exit_code == 1
    assert await said(box, "ls /root /home /var /opt /srv 2>/dev/null; hostname") == "box\n"
    mine = "grep -E ' (/box|/run/io|/etc/hostname) ' -v /proc/mounts | grep -E '^/dev/' | cut -d' ' -f1,2"
    assert await said(box, mine) == "", "no other mount of the host's disk"
    assert len((await said(box, "ls -d /proc/[0-9]*")).split()) <= 5


@pytest.mark.parametrize(
    "place",
    ["/x", "/bin/x", "/etc/x", "/dev/x", "/proc/sys/kernel/hostname", "/sys/fs/cgroup/x", "/run/x", "/run/io/x"],
)
async def test_nothing_can_be_written_outside(box: Box, place: str) -> None:
    assert (await box.exec(f"echo x >{place}", key="k", timeout_s=10)).exit_code != 0


async def test_what_is_writable(box: Box) -> None:
    for place in ("/box/x", "/tmp/x", "/dev/shm/x", "/dev/null"):
        assert (await box.exec(f"echo x >{place}", key="k", timeout_s=10)).exit_code == 0, place
    assert (
        await box.exec("printf '#!/bin/sh\\necho ran' >/tmp/p; chmod +x /tmp/p; /tmp/p", key="k", timeout_s=10)
    ).output == "ran\n"


# -- what commands cannot do -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("command", "exit_code", "ended_by"),
    [
        ("head -c 2000000 /dev/zero >big", 153, "signal"),  # SIGXFSZ
        ("while :; do :; done", 137, "signal"),  # cpu_s
        ("x=$(head -c 200000000 /dev/zero | tr '\\0' x)", 137, "out_of_memory"),
        ("head -c 200000000 /dev/zero >/dev/shm/big", 153, "signal"),
        ("no-such-command", 127, "exit"),
        ("exit 137", 137, "signal"),
    ],
)
async def test_endings_are_told_apart(box: Box, command: str, exit_code: int, ended_by: str) -> None:
    """A limit, the kernel for want of memory, a missing command; and the box survives each."""
    done = await box.exec(command, key="k", timeout_s=20)
    assert (done.exit_code, done.ended_by) == (exit_code, ended_by), done.output
    assert (await box.exec("exit 3", key="k", timeout_s=10)).exit_code == 3


@pytest.mark.parametrize(
    "bomb", ["f() { f | f & f; }; f", "while :; do (sleep 1000 &); done", "f() { setsid sh -c 'sleep 9' & f; }; f"]
)
async def test_a_fork_bomb_is_bounded_and_cleared(box: Box, bomb: str) -> None:
    await box.exec(bomb, key="k", timeout_s=0.5)
    await box.exec("sleep 60", key="k", timeout_s=0.1)
    assert await said(box, "echo still here") == "still here\n"
    assert len((await said(box, "ls -d /proc/[0-9]*")).split()) <= 5, "nothing is left, and what died is buried"


async def test_much_output_is_bounded(box: Box) -> None:
    zeros = "dd if=/dev/zero bs=100000 count=2000 2>/tmp/said || { cat /tmp/said; exit 9; }"  # `head` says nothing of a failed write
    done = await box.exec(f"echo first; {zeros}; echo last", key="k", timeout_s=60)
    assert (done.exit_code, done.truncated, done.output_bytes) == (0, True, 200_000_011)
    assert (done.output[:6], done.output[-5:], len(done.output.encode()) <= 4096) == ("first\n", "last\n", True)


async def test_a_command_may_kill_all_it_can(box: Box) -> None:
    """Its shell goes along, and that is the command's end by a signal; the box, whose first process it cannot kill, is there."""
    assert (await box.exec("echo kept >/tmp/file", key="k", timeout_s=10)).exit_code == 0
    for command in (
        "kill -9 -1; kill -9 $$",
        "kill -9 1; kill -TERM 1; kill -STOP 1; kill -HUP 1; kill -9 -1; exit 5",
        "kill -9 $PPID",
    ):
        assert (await box.exec(command, key="k", timeout_s=10)).ended_by == "signal", command
        assert await said(box, "cat /tmp/file") == "kept\n", command


async def test_a_command_cannot_keep_the_order_to_clear_from_the_first_process(box: Box) -> None:
    """It reads the first process's input away, and stops or kills the child that reads it."""
    await box.exec("cat /proc/1/fd/0 >/dev/null & cat /proc/1/fd/0 >/dev/null & sleep 0", key="k", timeout_s=10)
    for command in (
        "sleep 60",
        "kill -STOP -1; sleep 60",
        "kill -9 $(ps -o pid,args | grep -v grep | grep wait | cut -c1-5); sleep 60",
    ):
        done = await box.exec(command, key="k", timeout_s=0.3)
        assert done.ended_by in {"timeout", "signal"}, command
        assert done.duration_s < 5
        assert await said(box, "echo on") == "on\n", command


async def test_a_shell_killed_while_it_is_idle_costs_no_command(box: Box) -> None:
    assert (await box.exec("(sleep 0.1; kill -9 -1) & sleep 0", key="k", timeout_s=10)).exit_code == 0
    await asyncio.sleep(0.3)
    assert (await box.exec("echo on", key="k", timeout_s=10)).output == "on\n"


async def test_the_protocol_cannot_be_forged_by_output(box: Box) -> None:
    printed = await box.exec("echo '0123456789abcdef 0 0'; echo cleared; exit 5", key="k", timeout_s=10)
    assert (printed.exit_code, printed.output) == (5, "0123456789abcdef 0 0\ncleared\n")
    for command in ("'; echo out of the quotes >&1; '", "}", "\\", "$(", "done\nEOF", "run x y; exit 1"):
        await box.exec(command, key="k", timeout_s=10)
        assert await said(box, "echo fine") == "fine\n", command


async def test_a_false_word_of_the_shell_is_the_end_of_its_box(box: Box) -> None:
    with pytest.raises(BoxLost, match="protocol"):
        await box.exec("echo nonsense >/proc/$PPID/fd/1; sleep 5", key="k", timeout_s=10)
    assert not box.is_alive


# -- who is dead -------------------------------------------------------------------------------------------------------------


async def test_a_container_that_was_removed_is_lost(box: Box, engine: Engine) -> None:
    running = asyncio.ensure_future(box.exec("sleep 60", key="k", timeout_s=60))
    await asyncio.sleep(0.2)
    [container] = await containers_of(engine, f"gymbus.label={RUN}.1.b1")
    await container.delete(force=True)
    with pytest.raises(BoxLost, match=r"gone|ended"):
        await running
    assert not box.is_alive
    with pytest.raises(BoxLost, match="nothing was started"):
        await box.exec("true", key="k", timeout_s=10)


async def test_a_container_that_was_restarted_is_lost(box: Box, engine: Engine) -> None:
    [container] = await containers_of(engine, f"gymbus.label={RUN}.1.b1")
    await container.restart(t=0)
    with pytest.raises(BoxLost, match=r"restarted|gone|ended"):
        await box.exec("true", key="k", timeout_s=10)
    assert not box.is_alive


async def test_a_cancelled_command_ends_its_box(box: Box, engine: Engine) -> None:
    running = asyncio.ensure_future(box.exec("sleep 60", key="k", timeout_s=60))
    await asyncio.sleep(0.2)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert not box.is_alive
    assert await none_left(engine, f"gymbus.label={RUN}.1.b1"), "without anybody asking for it"


async def test_no_label_is_made_twice_by_two_processes(box: Box, tmp_path: Path) -> None:
    other = make_provider(Docker(image=IMAGE, user=USER, limits=LIMITS), tmp_path / "others")
    with pytest.raises(CreateFailed, match="exists already"):
        await other.create(f"{RUN}.1.b1")
    assert await said(box, "echo alive") == "alive\n"
    await other.aclose()


def test_a_label_has_one_name_that_engines_take() -> None:
    assert name_of("r 1/ü.3-0.b1") == name_of("r 1/ü.3-0.b1")
    assert name_of("a_b") != name_of("a b")
    assert len(name_of("x" * 500)) < 128


def test_whose_owner_is_dead_is_an_orphan() -> None:
    mine = labels_of(f"{RUN}.1.b1")
    pid, _, ticks = mine[OWNER].partition(":")
    assert not is_orphan(mine)
    assert is_orphan({**mine, OWNER: f"{pid}:{int(ticks) - 1}"}), "the pid was used again"
    assert is_orphan({**mine, OWNER: f"{2**22 + 1}:{ticks}"})
    assert is_orphan({**mine, BOOT: "another"})
    assert not is_orphan({**mine, PIDS: "pid:[1]", OWNER: "1:1"}), "a pid of another namespace means nothing here"
    assert is_orphan({OURS: "1"})


async def none_left(engine: Engine, *labels: str) -> bool:
    """Wait up to 5 s until there is no such container."""
    for _ in range(100):
        if not await containers_of(engine, *labels):
            return True
        await asyncio.sleep(0.05)
    return False


HOLDER = """
import asyncio, sys
from pathlib import Path
from typing import Any
from providers.sandboxes import docker_container, make_provider
from schemas.sandboxes import Docker

async def main():
    if sys.argv[2] == "unleased":
        body_of = docker_container.body_of
        def changed(*arguments):
            body = body_of(*arguments)
            body["Entrypoint"], body["OpenStdin"], body["HostConfig"]["AutoRemove"] = ["sleep", "1000"], False, False
            return body
        import providers.sandboxes.docker as docker
        docker.body_of = changed
    provider = make_provider(Docker(image="gymbus/busybox:1", user=sys.argv[3]), Path(sys.argv[1]))
    boxes = [await provider.create(f"held.{sys.argv[2]}.{n}") for n in range(3)]
    print("ready", flush=True)
    await asyncio.gather(*(box.exec("sleep 1000", key="k", timeout_s=1000) for box in boxes))

asyncio.run(main())
"""


async def killed_holder(work: Path, kind: str, engine: Engine) -> tuple[str, int]:
    """Return the label of the owner of three containers, and its pid; it was killed without warning."""
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(work), kind, USER],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        env={"PYTHONPATH": str(ROOT)},
    )
    with holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"ready\n"
        found = [c for c in await containers_of(engine, f"{OURS}=1") if c["Labels"][OWNER].startswith(f"{holder.pid}:")]
        assert len(found) == 3
        holder.send_signal(signal.SIGKILL)
    return found[0]["Labels"][OWNER], holder.pid


async def test_killing_the_owner_ends_its_containers_without_a_janitor(tmp_path: Path, engine: Engine) -> None:
    owner, _ = await killed_holder(tmp_path / "boxes", "leased", engine)
    assert await none_left(engine, f"{OWNER}={owner}")


async def test_what_the_lease_missed_is_reaped(
    tmp_path: Path, engine: Engine, provider: SandboxProvider, box: Box
) -> None:
    """Containers without a lease that the engine does not remove by itself, of a dead process; the living keep theirs."""
    owner, _ = await killed_holder(tmp_path / "boxes", "unleased", engine)
    await asyncio.sleep(0.3)
    assert len(await containers_of(engine, f"{OWNER}={owner}")) == 3
    assert await provider.reap() == 3
    assert not await containers_of(engine, f"{OWNER}={owner}")
    assert await provider.reap() == 0
    assert await said(box, "echo alive") == "alive\n"


# -- an engine that is not as it should be -------------------------------------------------------------------------------------


async def refusal_of(config: Docker, path: Path) -> str:
    provider = make_provider(config, path / "boxes")
    with pytest.raises(SandboxUnavailable) as caught:
        await provider.check()
    await provider.aclose()
    return str(caught.value)


async def test_without_an_engine_it_is_said_how_to_start_one(tmp_path: Path) -> None:
    told = await refusal_of(Docker(image=IMAGE, user=USER, socket=str(tmp_path / "none.sock")), tmp_path)
    assert "no container engine runs at" in told
    assert "scripts/setup docker" in told


async def test_without_the_image_it_is_said_how_to_get_it(tmp_path: Path) -> None:
    told = await refusal_of(Docker(image="no-such/image:7", user=USER, pull="never"), tmp_path)
    assert "No such image" in told, "the engine's own words"
    assert "docker pull no-such/image:7" in told


async def test_an_engine_that_does_not_answer_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engines.Engine.ask, "__defaults__", (0.2,))
    path = tmp_path / "deaf.sock"
    with socket.socket(socket.AF_UNIX) as deaf:
        deaf.bind(str(path))
        deaf.listen()
        told = await refusal_of(Docker(image=IMAGE, user=USER, socket=str(path)), tmp_path)
    assert "did not answer in 0.2 s" in told


async def test_a_container_that_does_not_start_leaves_nothing(
    tmp_path: Path, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such as one of an image without a shell."""

    def shell_less(config: Docker, label: str, room: Room, *others: Any) -> dict[str, object]:
        return {**body_of(config, label, room, *others), "Entrypoint": ["/no/such/shell"]}

    monkeypatch.setattr("providers.sandboxes.docker.body_of", shell_less)
    provider = make_provider(Docker(image=IMAGE, user=USER), tmp_path / "boxes")
    with pytest.raises(CreateFailed, match="/no/such/shell"):
        await provider.create(f"{RUN}.1.b1")
    assert await none_left(engine, f"gymbus.label={RUN}.1.b1")
    assert not list((tmp_path / "boxes").glob("p*/*"))
    await provider.aclose()


@pytest.mark.skipif(os.getuid() != 0, reason="only root can be somebody else")
async def test_only_root_can_give_files_to_another_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "getuid", lambda: 4711)
    assert "set sandbox.user=4711:" in await refusal_of(Docker(image=IMAGE, user=USER), tmp_path)


def test_the_socket_is_that_of_docker_host() -> None:
    """It goes into the configuration: hosts that run already have another environment. One that is written there stays."""
    tasks = "taskset={type: jsonl, jsonl_fpath: t}"
    environ = {"DOCKER_HOST": "unix:///run/engine.sock"}

    def socket_of(sandbox: str, environ: dict[str, str]) -> object:
        config, _ = resolve({"overrides": [tasks, f"sandbox={sandbox}"]}, environ)
        return getattr(config.sandbox, "socket", "")

    assert socket_of("{type: docker, image: i}", environ) == "/run/engine.sock"
    assert socket_of("{image: i}", environ) == "/run/engine.sock"
    assert socket_of("{type: docker, image: i, socket: /other.sock}", environ) == "/other.sock"
    assert socket_of("{type: docker, image: i}", {"DOCKER_HOST": "tcp://1.2.3.4:2375"}) is None
    assert socket_of("{type: docker, image: i, socket: 'unix:///other.sock'}", environ) == "/other.sock"
    assert socket_of("{type: bubblewrap}", environ) == ""
    with pytest.raises(BadConfig, match="on this host"):
        socket_of("{type: docker, image: i, socket: 'tcp://1.2.3.4:2375'}", {})
