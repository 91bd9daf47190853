"""`detached`: a command runs beside others and is asked about later; on each provider that declares it."""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import cast

import pytest

from gym_bus.errors import Permanent
from providers.sandboxes import Box, BoxLost, SandboxProvider
from providers.sandboxes.capabilities import JobStatus, WithDetached
from schemas.sandboxes import SandboxLimits
from tests.support.boxes import LOCAL, processes_with, provider_of, unique_sleep, until_gone

LABEL = f"jobs.{os.getpid()}.b1"
MIB = 1024 * 1024
LIMITS = SandboxLimits(output_bytes=4096, job_output_mib=1)


class BoxWithJobs(Box, WithDetached):
    """What the tests talk to."""


@pytest.fixture(params=LOCAL)
async def provider(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[SandboxProvider]:
    provider = await provider_of(request.param, tmp_path / "boxes", str(tmp_path / "ledger"), LIMITS)
    assert "detached" in provider.capabilities
    yield provider
    await provider.aclose()


@pytest.fixture
async def box(provider: SandboxProvider) -> BoxWithJobs:
    box = await provider.create(LABEL)
    assert isinstance(box, WithDetached)
    return cast("BoxWithJobs", box)


async def ended(box: WithDetached, job: str, within_s: float = 20) -> JobStatus:
    async with asyncio.timeout(within_s):
        while (status := await box.status(job)).is_running:
            assert status.exit_code is None
            await asyncio.sleep(0.02)
    return status


async def printed(box: WithDetached, job: str, wanted: bytes) -> bytes:
    """Return what a job has printed as soon as that holds `wanted`."""
    async with asyncio.timeout(20):
        while wanted not in (content := await box.output_of(job)):
            await asyncio.sleep(0.02)
    return content


@pytest.mark.parametrize(
    ("command", "exit_code"), [("true", 0), ("exit 7", 7), ("kill -9 $$", 137), ("no-such-command", 127), ("if", 2)]
)
async def test_it_ends_with_its_exit_code(box: BoxWithJobs, command: str, exit_code: int) -> None:
    job = await box.start(command, key="k", timeout_s=30)
    assert (await ended(box, job)).exit_code == exit_code


async def test_commands_run_beside_it(box: BoxWithJobs) -> None:
    job = await box.start("while [ ! -e stop ]; do sleep 0.05; done; echo seen; exit 5", key="k", timeout_s=60)
    assert (await box.exec("echo $((1 + 1))", key="k", timeout_s=10)).output == "2\n"
    assert (await box.status(job)).is_running
    await box.exec("touch stop", key="k", timeout_s=10)
    assert (await ended(box, job)).exit_code == 5
    assert await printed(box, job, b"seen") == b"seen\n"


async def test_its_output_is_read_from_where_one_likes(box: BoxWithJobs) -> None:
    job = await box.start("printf 'a\\001\\377'; echo b >&2; sleep 0.3; echo c; cat", key="k", timeout_s=30)
    assert await printed(box, job, b"c") == b"a\x01\xffb\nc\n"
    assert (await ended(box, job)).output_bytes == 7
    assert await box.output_of(job, 3) == b"b\nc\n"
    assert await box.output_of(job, 3, max_bytes=2) == b"b\n"
    assert await box.output_of(job, 7) == b""
    assert await box.output_of(job, 1000) == b""


async def test_several_run_at_once_and_are_told_apart(box: BoxWithJobs) -> None:
    jobs = [await box.start(f"sleep 0.3; echo {n}; exit {n}", key="k", timeout_s=30) for n in range(6)]
    assert len(set(jobs)) == 6
    for n, job in enumerate(jobs):
        assert (await ended(box, job)).exit_code == n
        assert await printed(box, job, b"\n") == f"{n}\n".encode()


@pytest.mark.parametrize("how", ["stop", "deadline"])
async def test_its_whole_tree_ends(box: BoxWithJobs, how: str) -> None:
    """Also what left its session, its group and its parent; and nothing else does."""
    sleep, other = unique_sleep(), unique_sleep()
    await box.exec(f"{other} >/dev/null 2>&1 &", key="k", timeout_s=10)
    tree = f"setsid {sleep} & {sleep} & (({sleep}) &); trap '' TERM; echo up; {sleep}"
    job = await box.start(tree, key="k", timeout_s=60 if how == "stop" else 1.5)
    await printed(box, job, b"up")
    async with asyncio.timeout(10):
        while len(processes_with(sleep)) < 4:
            await asyncio.sleep(0.02)
    if how == "stop":
        await box.stop(job)
    status = await ended(box, job)
    assert status.exit_code == 137
    assert await until_gone(sleep)
    assert processes_with(other)
    await box.stop(job)
    assert (await box.exec("echo on", key="k", timeout_s=10)).output == "on\n"


async def test_stopping_at_once_stops(box: BoxWithJobs) -> None:
    for _ in range(5):
        sleep = unique_sleep()
        job = await box.start(sleep, key="k", timeout_s=60)
        await box.stop(job)
        assert not (await ended(box, job, within_s=1)).is_running
        assert await until_gone(sleep)


async def test_a_daemon_of_it_does_not_keep_it_running(box: BoxWithJobs) -> None:
    sleep = unique_sleep()
    job = await box.start(f"(setsid {sleep} &); echo started", key="k", timeout_s=60)
    assert (await ended(box, job)).exit_code == 0
    assert processes_with(sleep)
    await box.stop(job)
    assert await until_gone(sleep)


async def test_endless_output_is_bounded_and_counted(box: BoxWithJobs) -> None:
    """The first MiB is kept; the rest is read slowly, so that nobody spends this process's time."""
    job = await box.start("yes", key="k", timeout_s=60)
    async with asyncio.timeout(20):
        while (await box.status(job)).output_bytes < 3 * MIB:
            await asyncio.sleep(0.05)
    spent, began = time.process_time(), time.monotonic()
    assert (await box.exec("sleep 1; echo on", key="k", timeout_s=10)).output == "on\n"
    assert time.process_time() - spent < 0.5 * (time.monotonic() - began)
    kept = await box.output_of(job, max_bytes=10 * MIB)
    assert kept == b"y\n" * (MIB // 2)
    await box.stop(job)
    assert (await ended(box, job)).exit_code == 137


async def test_it_is_in_the_ledger_and_ends_with_the_box(
    provider: SandboxProvider, box: BoxWithJobs, tmp_path: Path
) -> None:
    sleep = unique_sleep()
    job = await box.start(f"{sleep} & {sleep}", key="event-1", timeout_s=60)
    [line] = [json.loads(line) for line in (tmp_path / "ledger").read_text().splitlines()]
    assert line == {"kind": "tool", "key": "event-1", "label": LABEL}
    await box.destroy()
    assert await until_gone(sleep)
    for asked in (box.status(job), box.output_of(job), box.stop(job), box.start("true", key="k", timeout_s=5)):
        with pytest.raises(BoxLost, match="gone"):
            await asked
    assert (await (await provider.create(LABEL)).exec("true", key="k", timeout_s=10)).exit_code == 0


async def test_an_id_that_was_never_given_is_refused(box: BoxWithJobs) -> None:
    for asked in (box.status("x"), box.output_of("x"), box.stop("x")):
        with pytest.raises(Permanent, match="no job 'x'"):
            await asked
    with pytest.raises(Permanent, match="NUL"):
        await box.start("nul \0", key="k", timeout_s=5)


async def test_the_deadline_of_a_command_ends_jobs_and_that_is_seen(box: BoxWithJobs) -> None:
    """Everything in the box is killed then; the next job runs."""
    sleep = unique_sleep()
    job = await box.start(sleep, key="k", timeout_s=60)
    assert (await box.exec("sleep 60", key="k", timeout_s=0.3)).ended_by == "timeout"
    assert (await ended(box, job)).exit_code == 137
    assert await until_gone(sleep)
    again = await box.start("echo again", key="k", timeout_s=60)
    assert (await ended(box, again)).exit_code == 0


async def test_what_kills_all_it_can_is_seen_as_killed(box: BoxWithJobs) -> None:
    """A job may kill the shell that would tell how it ended."""
    if "unsafe" in type(box).__name__.lower():
        return  # there `kill -9 -1` would be this machine's end
    job = await box.start("kill -9 -1; kill -9 $$", key="k", timeout_s=60)
    assert (await ended(box, job)).exit_code == 137
    assert (await ended(box, await box.start("exit 3", key="k", timeout_s=60))).exit_code == 3
