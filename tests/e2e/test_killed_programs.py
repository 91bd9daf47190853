"""Processes around an agent's own program, killed in the middle: it outlives its session's owner and the gateway, not its machine."""

from __future__ import annotations

import asyncio
import os
import signal
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import pytest

from gym_bus.blobs import DirectoryBlobs
from gym_bus.bus import Stored
from projections import violations
from schemas.config import JsonlTaskset, OpenAIModel, Retries, RunConfig
from schemas.envelope import Envelope
from schemas.events import (
    LaunchEnded,
    LaunchLost,
    LaunchRequested,
    LaunchTold,
    ModelCallCompleted,
    RolloutFinished,
    SandboxDestroyed,
    SandboxLost,
)
from schemas.harnesses import CodexAgent
from tests.bench.stage import Stage, stage
from tests.e2e.test_agent_programs import model_at, write_task
from tests.support.logs import project
from tests.support.model_script import ModelScript
from tests.support.real_run import REPOSITORY
from tests.support.upstream import Upstream

pytestmark = pytest.mark.filterwarnings("ignore:subprocess:ResourceWarning")  # a server outlives whoever started it

SETTINGS: Final = {
    "GYM_BUS_ACK_WAIT_S": "2",
    "GYM_BUS_LEASE_S": "1.5",
    "GYM_BUS_REREAD_S": "1",
    "GYM_BUS_PROGRAMS_DIR": str(REPOSITORY / ".gym-bus"),
}
HOSTS: Final = {"h0": "collector,harness,verifier", "h1": "sandbox", "g0": "gateway"}
PACE_S: Final = 0.4


def config(url: str, tasks: Path) -> RunConfig:
    return RunConfig(
        taskset=JsonlTaskset(jsonl_fpath=str(tasks)),
        agent=CodexAgent(timeout_s=240),
        model=OpenAIModel(api="responses", policy_base_url=f"{url}/v1", policy_model_name="some-model"),
        retries=Retries(max_attempts=4, backoff_s=0.1),
    )


@asynccontextmanager
async def place_with_model() -> AsyncIterator[tuple[Stage, Upstream]]:
    """Give processes and a slow model, in the middle of a run of one rollout."""
    async with (
        model_at("responses", ModelScript("responses"), pace_s=PACE_S) as (url, upstream),
        stage(hosts=0, projector=False, extra=SETTINGS) as place,
    ):
        await begun(place, url)
        yield place, upstream


async def begun(place: Stage, url: str) -> None:
    """Ask for a run of one rollout, and wait until its program has told of its first reply."""
    for host_id, kinds in HOSTS.items():
        place.spawn(host_id, kinds)
    await place.ready()
    await place.request(config(url, write_task(place.data_dir)))
    async with asyncio.timeout(120):
        while not any(item.kind == "reply_done" for event in await told(place) for item in event.data.items):  # type: ignore[attr-defined]
            await asyncio.sleep(0.1)
    assert left_of([event async for event in place.log.read("gym.evt.0.>")]), "it runs, and is seen"


async def told(place: Stage) -> list[Envelope]:
    return [event async for event in place.log.read("gym.evt.0.>") if isinstance(event.data, LaunchTold)]


def killed(place: Stage, host_id: str) -> None:
    """Kill a host, and start it again."""
    child = place.children[host_id]
    os.kill(child.pid, signal.SIGKILL)
    child.wait(20)
    place.spawn(host_id, HOSTS[host_id])


async def ended(place: Stage) -> tuple[Counter[type], list[Envelope]]:
    """Wait for the run's end; return how many events there are of each type, and all of them."""
    await place.finished(240)
    events = [event async for event in place.log.read("gym.evt.0.>")]
    raw: list[Stored] = [stored async for stored in place.admin.read("gym.evt.0.>")]
    assert violations(project(raw, DirectoryBlobs(place.data_dir / "blobs"))) == {}, "every call has an answer"
    ends = [event.data for event in events if isinstance(event.data, RolloutFinished)]
    assert ends[-1].reward == 1.0
    return Counter(type(event.data) for event in events), events


def calls(upstream: Upstream) -> int:
    return sum("input" in body for body in upstream.bodies)


def left_of(events: list[Envelope]) -> list[str]:
    """Return the command lines of the programs that still run: each process of a launch has its id in its environment."""
    marks = [f"=l{event.event_id}".encode() for event in events if isinstance(event.data, LaunchRequested)]
    assert marks
    found = []
    for entry in Path("/proc").glob("[0-9]*/environ"):
        try:
            if any(mark in entry.read_bytes() for mark in marks):
                found.append((entry.parent / "cmdline").read_text())
        except OSError:
            continue
    return found


@pytest.mark.parametrize("killed_host", ["h0", "g0"])
async def test_a_program_outlives_its_sessions_owner_and_the_gateway(killed_host: str) -> None:
    """Who takes the session over hears the rest of the same launch; nothing is launched or asked for twice."""
    async with place_with_model() as (place, upstream):
        killed(place, killed_host)
        counts, events = await ended(place)
        assert (counts[LaunchRequested], counts[LaunchEnded], counts[LaunchLost]) == (1, 1, 0)
        assert counts[RolloutFinished] == 1
        parts = [event.data.part for event in events if isinstance(event.data, LaunchTold)]
        assert parts == list(range(1, len(parts) + 1))
        assert counts[ModelCallCompleted] == 3
        if killed_host == "h0":
            assert calls(upstream) == 3, "the gateway lived, so nothing was asked twice"
        assert left_of(events) == []


async def test_a_program_dies_with_its_machine_and_both_attempts_stay_in_the_record() -> None:
    """Its end is unknown, so it is not graded: another attempt follows, in another machine, and nothing of the first is left."""
    async with place_with_model() as (place, _):
        killed(place, "h1")
        counts, events = await ended(place)
        assert (counts[LaunchRequested], counts[LaunchEnded], counts[LaunchLost]) == (2, 1, 1)
        assert (counts[SandboxLost], counts[SandboxDestroyed]) == (1, 2)
        attempts = [event.attempt for event in events if isinstance(event.data, RolloutFinished)]
        assert attempts == [1, 2]
        assert left_of(events) == []
