# ruff: noqa: ASYNC240  tests look at /proc
"""What the default sandbox keeps in, and that nobody inside can speak for it."""

from __future__ import annotations

import os
import socket
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from providers.sandboxes import Box, BoxLost, SandboxProvider, SandboxUnavailable, make_provider
from providers.sandboxes.control_groups import BoxGroup, memory_hierarchy
from providers.sandboxes.processes import descendants
from providers.sandboxes.standing_shell import StandingShell
from schemas.sandboxes import Bubblewrap, SandboxLimits


@pytest.fixture
async def provider(tmp_path: Path) -> AsyncIterator[SandboxProvider]:
    limits = SandboxLimits(memory_mib=256, processes=16, file_mib=1, cpu_s=1)
    provider = make_provider(Bubblewrap(limits=limits), tmp_path / "boxes")
    try:
        await provider.check()
    except SandboxUnavailable as error:
        pytest.skip(str(error))
    yield provider
    await provider.aclose()


@pytest.fixture
async def box(provider: SandboxProvider) -> Box:
    return await provider.create("r.1.b1")


async def said(box: Box, command: str) -> str:
    return (await box.exec(command, key="k", timeout_s=20)).output


async def test_there_is_no_network(box: Box) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        assert (await said(box, "tail -n +3 /proc/net/dev | cut -d: -f1")).split() == ["lo"]
        result = await box.exec(f"bash -c 'echo >/dev/tcp/127.0.0.1/{port}'", key="k", timeout_s=10)
    assert result.exit_code != 0
    assert "refused" in result.output


async def test_the_user_has_no_rights(box: Box) -> None:
    status = await said(box, "id -u; grep -E '^(Cap|NoNewPrivs|Seccomp)' /proc/self/status")
    assert status.startswith("1000\n")
    assert [line.split()[1] for line in status.splitlines() if line.startswith("Cap")] == ["0" * 16] * 5
    assert "NoNewPrivs:\t1" in status
    assert "Seccomp:\t2" in status
    assert (await box.exec("unshare -U true", key="k", timeout_s=10)).exit_code != 0


@pytest.mark.skipif(os.getuid() != 0, reason="only root can hand out users")
async def test_on_the_host_the_user_is_nobody_known(box: Box, provider: SandboxProvider) -> None:
    await said(box, "touch file")
    owners = {path.stat().st_uid for path in Path("/var/tmp").glob("gym-bus-*/p*/1-check/box")}
    assert 0 not in owners
    shells = [
        text
        for pid in descendants(os.getpid())
        if "shell" in (text := Path(f"/proc/{pid}/status").read_text()).splitlines()[0]
    ]
    uids = [line.split()[1] for text in shells for line in text.splitlines() if line.startswith("Uid:")]
    assert uids
    assert all(int(uid) >= 0x7000_0000 for uid in uids)


@pytest.mark.parametrize(
    "place", ["/x", "/usr/x", "/etc/x", "/dev/x", "/proc/sys/kernel/hostname", "/run/x", "/run/io/x", "/run/shell"]
)
async def test_nothing_can_be_written_outside(box: Box, place: str) -> None:
    assert (await box.exec(f"echo x >{place}", key="k", timeout_s=10)).exit_code != 0


@pytest.mark.parametrize("place", ["/box/x", "/tmp/x", "/dev/shm/x", "/dev/null"])
async def test_what_is_writable(box: Box, place: str) -> None:
    assert (await box.exec(f"echo x >{place}", key="k", timeout_s=10)).exit_code == 0


async def test_the_hosts_files_and_processes_are_not_there(box: Box) -> None:
    assert (await said(box, "ls /root /home /work /var /etc/shadow /sys 2>/dev/null; hostname")).split() == ["box"]
    assert len((await said(box, "ls -d /proc/[0-9]*")).split()) <= 4


@pytest.mark.parametrize(
    ("command", "exit_code"),
    [
        ("head -c 2000000 /dev/zero >big", 153),  # SIGXFSZ
        ("while :; do :; done", 137),  # cpu_s
        ("python3 -c 'import os; [os.fork() or os._exit(__import__(\"time\").sleep(9)) for _ in range(99)]'", 1),
    ],
)
async def test_limits_hold(box: Box, command: str, exit_code: int) -> None:
    assert (await box.exec(command, key="k", timeout_s=20)).exit_code == exit_code
    assert (await box.exec("exit 3", key="k", timeout_s=10)).exit_code in {2, 3}, "the box survives what hits a limit"


MEMORY = "python3 -c 'len(bytes(10**9) * 2)'"
TOGETHER = 'for n in 1 2 3 4; do python3 -c \'x = b"x" * 10**8; __import__("time").sleep(5)\' & done; wait; exit 9'


def told_of_memory(box: Box) -> dict[str, str]:
    """Return what the kernel counts in the group of a box."""
    group: BoxGroup = vars(vars(box)["_shell"])["_memory"]
    files = ("oom_control", "failcnt", "max_usage_in_bytes", "limit_in_bytes", "events", "peak", "max")
    return {file.name: file.read_text() for name in files if (file := group.path / f"memory.{name}").exists()}


@pytest.mark.skipif(memory_hierarchy() is None or os.getuid() != 0, reason="no control group can be made here")
@pytest.mark.parametrize("command", [MEMORY, TOGETHER, "head -c 300000000 /dev/zero | tail"])
async def test_memory_is_bounded_for_the_box_as_a_whole(box: Box, command: str) -> None:
    """What the kernel killed is told, also when it was one process of many; the box goes on."""
    done = await box.exec(command, key="k", timeout_s=30)
    assert done.ended_by == "out_of_memory", (done, told_of_memory(box))
    assert done.exit_code in {137, 9}
    again = await box.exec("exit 3", key="k", timeout_s=10)
    assert (again.exit_code, again.ended_by) == (3, "exit")


async def test_without_groups_memory_is_bounded_process_by_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The program is refused its memory, and ends as it likes."""
    monkeypatch.setattr("providers.sandboxes.bubblewrap.memory_hierarchy", lambda: None)
    provider = make_provider(Bubblewrap(limits=SandboxLimits(memory_mib=256)), tmp_path / "boxes")
    try:
        done = await (await provider.create("r.1.b1")).exec(MEMORY, key="k", timeout_s=20)
    finally:
        await provider.aclose()
    assert (done.exit_code, done.ended_by) == (1, "exit")
    assert "MemoryError" in done.output


async def test_a_fork_bomb_ends_at_the_deadline(box: Box) -> None:
    result = await box.exec("f() { f | f & f; }; f", key="k", timeout_s=0.5)
    assert result.exit_code is None or result.exit_code > 0
    await box.exec("sleep 60", key="k", timeout_s=0.1)
    assert await said(box, "echo still here") == "still here\n"


async def test_the_protocol_cannot_be_forged(box: Box) -> None:
    """Whatever a command prints is output, and the standing shell's own files are out of reach."""
    printed = await box.exec("echo '0123456789abcdef 0'; echo killed 0; exit 5", key="k", timeout_s=10)
    assert (printed.exit_code, printed.output) == (5, "0123456789abcdef 0\nkilled 0\n")
    for attack in (
        "echo 'x 0' >/proc/1/fd/1",
        "echo 'exit' >/proc/1/fd/0",
        "cat /proc/1/fd/0",
        "cat /proc/1/environ",
        "cat /proc/1/maps",
        "dd if=/proc/1/mem bs=1 count=1",
        "cat /run/shell",
        "ls /run/io",
    ):
        result = await box.exec(f"{attack} 2>&1", key="k", timeout_s=10)
        assert result.exit_code != 0, attack
        assert "ermission denied" in result.output or "Input/output" in result.output, (attack, result.output)
    assert (
        await box.exec("kill -9 1; kill -TERM 1; kill -STOP 1; kill -INT 1; exit 6", key="k", timeout_s=10)
    ).exit_code == 6
    assert (await box.exec("kill -9 -1", key="k", timeout_s=10)).exit_code is not None
    assert await said(box, "echo fine") == "fine\n"


async def test_a_command_that_quotes_badly_harms_only_itself(box: Box) -> None:
    for command in ("'; echo out of the quotes >&1; '", "}", "\\", "$(", "done\nEOF", "run x y; exit 1"):
        await box.exec(command, key="k", timeout_s=10)
        assert await said(box, "echo fine") == "fine\n", command


async def test_a_box_whose_first_process_dies_is_lost(provider: SandboxProvider, box: Box) -> None:
    shell: StandingShell = vars(box)["_shell"]
    shell.kill()
    with pytest.raises(BoxLost):
        await box.exec("echo", key="k", timeout_s=10)
    assert not box.is_alive
    await box.destroy()
    assert (await (await provider.create("r.1.b1")).exec("true", key="k", timeout_s=10)).exit_code == 0


async def test_a_box_that_breaks_the_protocol_is_lost(box: Box) -> None:
    shell: StandingShell = vars(box)["_shell"]
    await shell._write("echo something else\n")
    with pytest.raises(BoxLost, match="protocol"):
        await box.exec("true", key="k", timeout_s=10)
    assert not box.is_alive


async def test_without_bwrap_the_one_command_to_install_it_is_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    provider = make_provider(Bubblewrap(), tmp_path / "boxes")
    with pytest.raises(SandboxUnavailable, match="apt-get install bubblewrap"):
        await provider.check()
    await provider.aclose()


async def test_a_refused_namespace_is_told_with_bwraps_own_words(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    bin_ = tmp_path / "bin"
    bin_.mkdir()
    (bin_ / "bwrap").write_text("#!/bin/sh\necho 'bwrap: No permissions to create new namespace' >&2\nexit 1\n")
    (bin_ / "bwrap").chmod(0o755)
    monkeypatch.setenv("PATH", f"{bin_}:{os.environ['PATH']}")
    provider = make_provider(Bubblewrap(), tmp_path / "boxes")
    with pytest.raises(SandboxUnavailable, match=r"No permissions|Permission denied"):
        await provider.check()
    await provider.aclose()
