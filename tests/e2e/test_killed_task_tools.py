"""The verifier's host and the gateway, killed in the middle of a call of a task's tool: what it does is done once, and graded so."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Final

import pytest

from gym_bus.blobs import DirectoryBlobs
from projections import violations
from schemas.config import JsonlTaskset, OpenAIModel, Retries, RunConfig
from schemas.events import (
    LaunchRequested,
    RolloutFinished,
    TaskToolCallCompleted,
    TaskToolCallRequested,
    VerdictIssued,
)
from schemas.harnesses import CodexAgent, MiniSweAgent, PiAgent, Program
from tests.bench.stage import Stage, stage
from tests.e2e.test_agent_programs import MODELS, model_at
from tests.e2e.test_task_tools import TASK
from tests.support.logs import project
from tests.support.noting import NOTED, noting
from tests.support.real_run import REPOSITORY

pytestmark = pytest.mark.filterwarnings("ignore:subprocess:ResourceWarning")  # a server outlives whoever started it

HOSTS: Final = {"h0": "collector,harness", "h1": "sandbox", "h2": "verifier", "g0": "gateway"}
MIDDLE: Final = {"h2": "verifier.effect_started:kill:1", "g0": "model.appended:kill:7"}
"""When a call has been begun; when it has been asked for, which is after three calls of the model in two appends each."""


def config(url: str, tasks: Path, agent: Program) -> RunConfig:
    api = "responses" if "model.api=responses" in MODELS[noting(agent.type).dialect] else "chat"
    return RunConfig(
        taskset=JsonlTaskset(jsonl_fpath=str(tasks)),
        agent=agent,
        model=OpenAIModel(api=api, policy_base_url=f"{url}/v1", policy_model_name="some-model"),  # type: ignore[arg-type]
        retries=Retries(max_attempts=1),
    )


async def respawned(place: Stage, host_id: str) -> None:
    """Wait until a host was killed, and start it again."""
    async with asyncio.timeout(120):
        while place.children[host_id].poll() is None:
            await asyncio.sleep(0.1)
    assert place.children[host_id].returncode == -9
    place.spawn(host_id, HOSTS[host_id])


@pytest.mark.parametrize("host_id", ["h2", "g0"])
@pytest.mark.parametrize(
    "agent",
    [
        CodexAgent(timeout_s=240),
        pytest.param(PiAgent(timeout_s=240), marks=pytest.mark.harness),
        pytest.param(MiniSweAgent(timeout_s=240), marks=pytest.mark.harness),
    ],
    ids=lambda agent: agent.type,
)
async def test_what_a_call_does_is_done_once(agent: Program, host_id: str, tmp_path: Path) -> None:
    """The program goes on; a second call by its model would be another one, and the grade would say so."""
    script = noting(agent.type)
    settings = {
        "GYM_BUS_ACK_WAIT_S": "2",
        "GYM_BUS_LEASE_S": "1.5",
        "GYM_BUS_REREAD_S": "1",
        "GYM_BUS_PROGRAMS_DIR": str(REPOSITORY / ".gym-bus"),
        "GYM_BUS_FAULT": MIDDLE[host_id],
        "GYM_BUS_FAULT_ONCE": str(tmp_path / "struck"),
    }
    async with (
        model_at(script.dialect, script) as (url, _),
        stage(hosts=0, projector=False, extra=settings) as place,
    ):
        for name, kinds in HOSTS.items():
            place.spawn(name, kinds)
        await place.ready()
        tasks = place.data_dir / "tasks.jsonl"
        tasks.write_text(json.dumps(TASK) + "\n")
        await place.request(config(url, tasks, agent))
        await respawned(place, host_id)
        await place.finished(240)
        events = [event async for event in place.log.read("gym.evt.0.>")]
        raw = [stored async for stored in place.admin.read("gym.evt.0.>")]
        assert violations(project(raw, DirectoryBlobs(place.data_dir / "blobs"))) == {}
    asked = [event for event in events if isinstance(event.data, TaskToolCallRequested)]
    done = [event.data for event in events if isinstance(event.data, TaskToolCallCompleted)]
    assert len(asked) == len(done) == 1
    assert (done[0].request_id, done[0].record) == (asked[0].event_id, NOTED)
    assert sum(isinstance(event.data, LaunchRequested) for event in events) == 1
    verdicts = [event.data for event in events if isinstance(event.data, VerdictIssued)]
    assert [(verdict.reward, verdict.graded) for verdict in verdicts] == [(1.0, "records")]
    assert sum(isinstance(event.data, RolloutFinished) for event in events) == 1
