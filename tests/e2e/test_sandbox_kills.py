# ruff: noqa: ASYNC220  tests start processes and look at /proc
"""The process that holds machines, killed again and again wherever it stands: at the end nothing of any machine is left."""

from __future__ import annotations

import asyncio
import os
import random
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from gym_bus import boundary
from gym_bus.blobs import DirectoryBlobs
from gym_bus.bus import Stored
from gym_bus.subjects import run_aggregate
from projections import violations
from providers.sandboxes.docker_engine import Engine
from providers.sandboxes.docker_owners import LABEL, OURS
from schemas.config import Retries, RunConfig
from schemas.events import CheckpointSaved, SandboxCreated, SandboxDestroyed, SandboxLost
from schemas.sandboxes import Bubblewrap, Docker, SandboxConfig
from tests.bench.stage import Stage, environment, run_config, stage
from tests.support.engine import IMAGE, USER, needs_engine
from tests.support.groups import groups_of
from tests.support.logs import project

pytestmark = pytest.mark.filterwarnings("ignore:subprocess:ResourceWarning")  # a server outlives whoever started it

RUN = f"kills{os.getpid()}"
POINTS = [f"sandbox.{point}" for point in boundary.POINTS["sandbox"] if point != "decided"]
ROLLOUTS = 60
FOR_A_KILL = 4
"""How many rollouts more there are for each kill, so that the run outlasts them all."""
LEASES = {"GYM_BUS_ACK_WAIT_S": "2", "GYM_BUS_LEASE_S": "1.5", "GYM_BUS_REREAD_S": "1"}


def config(sandbox: SandboxConfig, rollouts: int, warm: int = 0) -> RunConfig:
    """Return a run of rollouts with a machine each, that is never given up."""
    made = run_config(rollouts, 4, sandbox, latency_s=0.3)
    return made.model_copy(update={"retries": Retries(max_attempts=20, backoff_s=0.05), "warm_sandboxes": warm})


async def one_life(place: Stage, fault: str, log: Path, pids: list[int]) -> int:
    """Start a host that kills itself at a boundary, and wait for its death; 0 if it never gets there, and is stopped.

    Its pid is put to `pids`.
    """
    with log.open("ab") as output:
        host = subprocess.Popen(
            [sys.executable, "-m", "actors.host", "--kinds", "collector,harness,sandbox,verifier", "--host-id", "h0"],
            env=environment(place.data_dir, {**place.extra, "GYM_BUS_FAULT": fault}),
            stdout=output, stderr=output, start_new_session=True,
        )  # fmt: skip
    pids.append(host.pid)
    try:
        return await asyncio.to_thread(host.wait, 60)
    except subprocess.TimeoutExpired:
        host.kill()
        await asyncio.to_thread(host.wait, 20)
        return 0


def mounted(path: Path) -> list[str]:
    """Return the processes that see something of `path` mounted, which those in machines do."""
    found = []
    for entry in Path("/proc").glob("[0-9]*/mountinfo"):
        try:
            if str(path) in entry.read_text(errors="replace"):
                found.append(entry.parent.name)
        except OSError:
            continue
    return found


async def containers() -> list[str]:
    """Return the labels of this run's containers, stopped ones too."""
    engine = Engine(None)
    try:
        listed = await engine.client.containers.list(all=True, filters={"label": [f"{OURS}=1"]})
        return [label for c in listed if (label := c["Labels"].get(LABEL, "")).startswith(f"{RUN}.")]
    finally:
        await engine.aclose()


async def until_clean(place: Stage, *, has_engine: bool) -> None:
    """Wait until nothing is left; fail with what is."""
    left: list[object] = ["not looked yet"]
    try:
        async with asyncio.timeout(90):
            while left:
                await asyncio.sleep(0.5)
                rooms = [path for path in place.data_dir.glob("hosts/*/boxes/*/*") if path.is_dir()]
                left = [*rooms, *mounted(place.data_dir / "hosts"), *(await containers() if has_engine else ())]
    except TimeoutError:
        pytest.fail(f"left behind: {left}")


async def killed_again_and_again(sandbox: SandboxConfig, kills: int, warm: int = 0) -> list[SandboxCreated]:
    """Kill the one host `kills` times at random boundaries, let the next one finish the run, and look for what is left.

    Return what machines were made.
    """
    dice, pids, rollouts = random.Random(4), list[int](), ROLLOUTS + FOR_A_KILL * kills
    async with stage(hosts=0, projector=False, extra=LEASES) as place:
        place.data_dir.chmod(0o755)
        await place.request(config(sandbox, rollouts, warm), RUN)
        deaths: Counter[int] = Counter()
        for _ in range(kills):
            fault = f"{dice.choice(POINTS)}:kill:{dice.randint(1, 12)}"
            deaths[await one_life(place, fault, place.data_dir / "h0.log", pids)] += 1
        assert deaths[-9] == kills, deaths
        assert await place.log.last(f"{run_aggregate(RUN).prefix}.run_finished") is None, "the last were killed idle"
        place.spawn("h0", "collector,harness,sandbox,verifier")
        await place.ready()
        pids.append(place.children["h0"].pid)
        end = await place.finished(300, RUN)
        await until_clean(place, has_engine=isinstance(sandbox, Docker))
        place.children["h0"].terminate()
        assert await asyncio.to_thread(place.children["h0"].wait, 60) == 0
        assert [group for pid in pids for group in groups_of(pid)] == []
        events = [event async for event in place.log.read("gym.evt.0.>")]
        raw: list[Stored] = [stored async for stored in place.admin.read("gym.evt.0.>")]
        broken = violations(project(raw, DirectoryBlobs(place.data_dir / "blobs")))
    assert end.data.model_dump()["scored"] == rollouts
    kinds = Counter(type(event.data) for event in events)
    lost = {event.key + event.rollout_id for event in events if isinstance(event.data, SandboxLost)}
    ended = {event.key + event.rollout_id for event in events if isinstance(event.data, SandboxDestroyed)}
    made = {event.key + event.rollout_id for event in events if isinstance(event.data, SandboxCreated)}
    assert made <= ended, made - ended
    assert len(made) == kinds[SandboxCreated], "none was made twice"
    assert lost, "some died with their host"
    assert kinds[CheckpointSaved] > rollouts // 2
    assert broken == {}
    return [event.data for event in events if isinstance(event.data, SandboxCreated)]


SANDBOXES = [
    pytest.param(Bubblewrap(), id="bubblewrap"),
    pytest.param(Docker(image=IMAGE, user=USER), id="docker", marks=needs_engine),
]


@pytest.mark.parametrize("sandbox", SANDBOXES)
@pytest.mark.parametrize("kills", [4, pytest.param(50, marks=pytest.mark.kill_all)])
async def test_nothing_is_left_of_any_machine(sandbox: SandboxConfig, kills: int) -> None:
    """No process, mount, group, directory or container; every machine that was made has an end in the log."""
    await killed_again_and_again(sandbox, kills)


@pytest.mark.parametrize("sandbox", SANDBOXES)
async def test_nothing_is_left_of_machines_that_were_made_ahead(sandbox: SandboxConfig) -> None:
    """Those that were ready when their host died, and those that somebody had just got; none was given twice."""
    created = await killed_again_and_again(sandbox, 4, warm=3)
    warm = [data.label for data in created if data.is_warm]
    assert len(warm) > ROLLOUTS // 3
    assert len({data.label for data in created}) == len(created)
    assert all(label.startswith(f"{RUN}.warm.h0.") for label in warm)
