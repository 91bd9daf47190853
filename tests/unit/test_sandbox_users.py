"""`users`: a command can run as another user of the machine's image; on each provider that declares it."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import cast

import pytest

from gym_bus.errors import Permanent
from providers.sandboxes import Box, BoxLost, SandboxProvider
from providers.sandboxes.capabilities import WithUsers
from tests.support.boxes import DOCKER, PODMAN, processes_with, provider_of, unique_sleep, until_gone

LABEL = f"users.{os.getpid()}.b1"
pytestmark = pytest.mark.skipif(os.getuid() != 0, reason="only root can end what another user started")


class BoxWithUsers(Box, WithUsers):
    """What the tests talk to."""


@pytest.fixture(params=[DOCKER, PODMAN])
async def provider(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[SandboxProvider]:
    provider = await provider_of(request.param, tmp_path / "boxes")
    assert "users" in provider.capabilities
    yield provider
    await provider.aclose()


@pytest.fixture
async def box(provider: SandboxProvider) -> BoxWithUsers:
    box = await provider.create(LABEL)
    assert isinstance(box, WithUsers)
    return cast("BoxWithUsers", box)


@pytest.mark.parametrize(("user", "uid"), [("root", 0), ("agent", 1000), ("0", 0), ("4711", 4711)])
async def test_a_command_runs_as_somebody(box: BoxWithUsers, user: str, uid: int) -> None:
    done = await box.exec_as(user, "id -u; pwd; echo no >&2; exit 7", key="k", timeout_s=10)
    assert (done.exit_code, done.ended_by, done.output) == (7, "exit", f"{uid}\n/box\nno\n")
    assert (await box.exec("id -u", key="k", timeout_s=10)).output == "1000\n"


async def test_nobody_has_rights(box: BoxWithUsers) -> None:
    """Root of the container has no capabilities and gets none; what the agent keeps for itself is not its to read."""
    await box.exec(
        "echo open >open; echo closed >closed; chmod 600 closed; umask 0; echo x >/tmp/x", key="k", timeout_s=10
    )
    done = await box.exec_as("root", "grep -E '^(CapEff|CapBnd|NoNewPrivs)' /proc/self/status", key="k", timeout_s=10)
    assert [line.split()[1] for line in done.output.splitlines()] == ["0" * 16, "0" * 16, "1"]
    assert (await box.exec_as("root", "cat open", key="k", timeout_s=10)).output == "open\n"
    for forbidden in ("cat closed", "touch new", "rm open", "chown 0 open", "kill -9 1", "touch /bin/x", "ls /run/io"):
        assert (await box.exec_as("root", forbidden, key="k", timeout_s=10)).exit_code != 0, forbidden
    assert (await box.exec("cat closed", key="k", timeout_s=10)).output == "closed\n"


async def test_whom_the_image_does_not_know_is_refused(box: BoxWithUsers) -> None:
    for user in ("nobody-here", "", "a b", "root:root", "-x", "$(id)"):
        with pytest.raises(Permanent, match="user"):
            await box.exec_as(user, "touch /tmp/seen", key="k", timeout_s=10)
    assert (await box.exec("ls /tmp", key="k", timeout_s=10)).output == ""
    assert box.is_alive


@pytest.mark.parametrize("first", ["root", "agent"])
async def test_the_deadline_ends_what_anybody_started(box: BoxWithUsers, first: str) -> None:
    """Also what one user has left running, when another one's command meets its deadline."""
    left, right = unique_sleep(), unique_sleep()
    started = await box.exec_as(first, f"(setsid {left} >/dev/null 2>&1 &); echo up", key="k", timeout_s=10)
    assert started.output == "up\n"
    assert processes_with(left)
    second = "agent" if first == "root" else "root"
    done = await box.exec_as(second, f"trap '' TERM; setsid {right} & {right}", key="k", timeout_s=0.5)
    assert (done.exit_code, done.ended_by) == (None, "timeout")
    assert done.duration_s < 10
    assert await until_gone(left)
    assert await until_gone(right)
    assert (await box.exec_as(first, "echo on", key="k", timeout_s=10)).output == "on\n"
    assert (await box.exec("echo on", key="k", timeout_s=10)).output == "on\n"


async def test_a_bomb_of_another_user_is_cleared(box: BoxWithUsers) -> None:
    for bomb in ("f() { f | f & f; }; f", "while :; do (setsid sleep 1000 &); done"):
        done = await box.exec_as("root", bomb, key="k", timeout_s=1)
        assert done.ended_by != "exit" or done.exit_code != 0
        assert (await box.exec_as("4711", "while :; do :; done", key="k", timeout_s=0.5)).ended_by in {
            "timeout",
            "signal",
        }
        assert (await box.exec("echo on", key="k", timeout_s=15)).output == "on\n"
        assert int((await box.exec("ls -d /proc/[0-9]* | wc -l", key="k", timeout_s=10)).output) <= 8


async def test_a_box_that_is_gone_has_none(box: BoxWithUsers) -> None:
    await box.destroy()
    with pytest.raises(BoxLost, match="gone"):
        await box.exec_as("root", "true", key="k", timeout_s=10)
