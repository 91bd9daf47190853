"""Processes around an agent's own program, killed in the middle: it outlives its session's owner and the gateway, not its machine.

When the host that holds its sandbox is killed, it is launched again in another one, from where its activation began, and is given the
answers that are recorded: what the model was asked is what it is asked in a run that nobody disturbs.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import signal
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import pytest

from adapters.harnesses.anew import without, written_anew
from adapters.harnesses.table import HARNESSES
from gym_bus.blobs import DirectoryBlobs
from gym_bus.bus import Stored
from gym_bus.errors import BusUnavailable
from projections import violations
from providers.dialects.catalog import DIALECTS
from providers.dialects.digests import turn_digest
from schemas.config import HttpModel, JsonlTaskset, OpenAIModel, Retries, RunConfig
from schemas.conversation import DialectName
from schemas.envelope import Envelope
from schemas.events import (
    LaunchEnded,
    LaunchLost,
    LaunchRequested,
    LaunchTold,
    ModelCallCompleted,
    ModelCallRecalled,
    RolloutFinished,
    SandboxDestroyed,
    SandboxLost,
)
from schemas.harnesses import CodexAgent, PiAgent, Program
from schemas.sandboxes import Checkpoints
from tests.bench.stage import Stage, stage
from tests.e2e.test_agent_programs import model_at, write_task
from tests.support.logs import project
from tests.support.model_script import FAILING, MAKING, ModelScript
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
CODEX: Final = CodexAgent(timeout_s=240)
PI: Final = PiAgent(timeout_s=240)
SLOW: Final = (f"{FAILING}; exit 1", f"sleep 6; {MAKING}")
"""Commands of which the second is under way for long enough to be killed in the middle."""


def config(agent: Program, url: str, tasks: Path, max_restores: int) -> RunConfig:
    api: DialectName = HARNESSES[agent.type].dialect
    model: HttpModel = OpenAIModel(api=api, policy_base_url=f"{url}/v1", policy_model_name="some-model")  # type: ignore[arg-type]
    return RunConfig(
        taskset=JsonlTaskset(jsonl_fpath=str(tasks)),
        agent=agent,
        model=model,
        retries=Retries(max_attempts=4, backoff_s=0.1),
        checkpoints=Checkpoints(max_restores=max_restores),
    )


@asynccontextmanager
async def place_with_model(
    agent: Program = CODEX, script: Sequence[str] = (), *, pace_s: float = PACE_S, max_restores: int = 3
) -> AsyncIterator[tuple[Stage, Upstream]]:
    """Give processes and a model, with a run of one rollout that has been asked for."""
    dialect = HARNESSES[agent.type].dialect
    answers = ModelScript(dialect, tuple(script)) if script else ModelScript(dialect)
    async with (
        model_at(dialect, answers, pace_s=pace_s) as (url, upstream),
        stage(hosts=0, projector=False, extra=SETTINGS) as place,
    ):
        for host_id, kinds in HOSTS.items():
            place.spawn(host_id, kinds)
        await place.ready()
        await place.request(config(agent, url, write_task(place.data_dir), max_restores))
        yield place, upstream


async def begun(place: Stage, replies: int = 1) -> None:
    """Wait until the program has told of so many replies."""
    async with asyncio.timeout(120):
        while replies > sum(
            item.kind == "reply_done"
            for event in await told(place)
            for item in event.data.items  # type: ignore[attr-defined]
        ):
            await asyncio.sleep(0.1)
    assert left_of([event async for event in place.log.read("gym.evt.0.>")]), "it runs, and is seen"


async def told(place: Stage) -> list[Envelope]:
    return [event async for event in place.log.read("gym.evt.0.>") if isinstance(event.data, LaunchTold)]


async def killed(place: Stage, *host_ids: str) -> None:
    """Kill hosts, and the bus if it is all of them; then start them again, and wait for the bus."""
    if is_all := set(host_ids) == set(HOSTS):
        place.server.stop(kill=True)
    for host_id in host_ids:
        os.kill(place.children[host_id].pid, signal.SIGKILL)
    for host_id in host_ids:
        place.children[host_id].wait(20)
    if is_all:
        place.server.ensure()
    for host_id in host_ids:
        place.spawn(host_id, HOSTS[host_id])
    async with asyncio.timeout(30):
        while True:
            with contextlib.suppress(BusUnavailable):
                await told(place)
                await place.stream()
                return
            await asyncio.sleep(0.2)


async def ended(place: Stage) -> tuple[Counter[type], list[Envelope]]:
    """Wait for the run's end; return how many events there are of each type, and all of them."""
    await place.finished(240)
    events = [event async for event in place.log.read("gym.evt.0.>")]
    raw: list[Stored] = [stored async for stored in place.admin.read("gym.evt.0.>")]
    assert violations(project(raw, DirectoryBlobs(place.data_dir / "blobs"))) == {}, "every call has an answer"
    ends = [event.data for event in events if isinstance(event.data, RolloutFinished)]
    assert ends[-1].reward == 1.0
    return Counter(type(event.data) for event in events), events


DAY: Final = re.compile(r"\b20\d\d-\d\d-\d\d\b")


def asked(upstream: Upstream) -> list[dict[str, Any]]:
    """Return the bodies of the calls that the model was asked to answer."""
    return [body for body in upstream.bodies if "input" in body or len(body.get("messages", ())) > 1]


def questions(agent: Program, upstream: Upstream) -> list[list[str]]:
    """Return what the model was asked, in the form in which neither a client's habits nor what it writes anew each time count.

    A day that is named is today: some programs do, and midnight may come between two runs.
    """
    dialect, anew = DIALECTS[HARNESSES[agent.type].dialect], written_anew(agent.type)
    bodies = [json.loads(DAY.sub("today", json.dumps(body))) for body in asked(upstream)]
    turns = [[without(anew, turn) for turn in dialect.read_request(body).turns] for body in bodies]
    return [[turn_digest(turn.role, turn.parts) for turn in conversation] for conversation in turns]


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
        await begun(place)
        await killed(place, killed_host)
        counts, events = await ended(place)
        assert (counts[LaunchRequested], counts[LaunchEnded], counts[LaunchLost]) == (1, 1, 0)
        assert counts[RolloutFinished] == 1
        parts = [event.data.part for event in events if isinstance(event.data, LaunchTold)]
        assert parts == list(range(1, len(parts) + 1))
        assert counts[ModelCallCompleted] == 3
        if killed_host == "h0":
            assert len(asked(upstream)) == 3, "the gateway lived, so nothing was asked twice"
        assert left_of(events) == []


@pytest.mark.parametrize("hosts", [("h1",), tuple(HOSTS)], ids=["sandbox", "all"])
@pytest.mark.parametrize("agent", [CODEX, pytest.param(PI, marks=pytest.mark.harness)], ids=lambda agent: agent.type)
async def test_a_program_goes_on_in_another_machine(agent: Program, hosts: tuple[str, ...]) -> None:
    """The same attempt: the answers that are recorded are given again, and the model is asked each question once, as if undisturbed."""
    async with place_with_model(agent, SLOW, pace_s=0.0) as (place, upstream):
        await ended(place)
        undisturbed = questions(agent, upstream)
    assert len(undisturbed) == 3
    async with place_with_model(agent, SLOW, pace_s=0.0) as (place, upstream):
        await begun(place, replies=2)
        await killed(place, *hosts)
        counts, events = await ended(place)
        assert (counts[LaunchRequested], counts[LaunchEnded], counts[LaunchLost]) == (2, 1, 1)
        assert (counts[SandboxLost], counts[SandboxDestroyed]) == (1, 2)
        assert [event.attempt for event in events if isinstance(event.data, RolloutFinished)] == [1]
        assert (counts[ModelCallCompleted], counts[ModelCallRecalled]) == (3, 2)
        assert questions(agent, upstream) == undisturbed
        assert left_of(events) == []


async def test_a_call_that_was_under_way_when_the_machine_died_is_asked_again() -> None:
    """It is a further try of the same call, in the same attempt; what was answered before is not asked for again."""
    async with place_with_model() as (place, upstream):
        await begun(place)
        await killed(place, "h1")
        counts, events = await ended(place)
        assert counts[RolloutFinished] == 1
        assert (counts[ModelCallCompleted], counts[LaunchLost]) == (3, 1)
        assert 1 <= counts[ModelCallRecalled] <= 2
        assert len(asked(upstream)) <= 4, "one may have been under way"
        assert left_of(events) == []


async def test_without_another_machine_both_attempts_stay_in_the_record() -> None:
    """Its end is unknown, so it is not graded: another attempt follows, in another machine, and nothing of the first is left."""
    async with place_with_model(max_restores=0) as (place, _):
        await begun(place)
        await killed(place, "h1")
        counts, events = await ended(place)
        assert (counts[LaunchRequested], counts[LaunchEnded], counts[LaunchLost]) == (2, 1, 1)
        assert (counts[SandboxLost], counts[SandboxDestroyed]) == (1, 2)
        attempts = [event.attempt for event in events if isinstance(event.data, RolloutFinished)]
        assert attempts == [1, 2]
        assert counts[ModelCallRecalled] == 0
        assert left_of(events) == []
