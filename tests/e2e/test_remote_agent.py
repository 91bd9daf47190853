"""An agent that runs somewhere else, over real HTTP against real processes: it does tasks, it fails, its session's owner is killed."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import pytest

from gym_bus.blobs import DirectoryBlobs
from gym_bus.secrets_store import SecretsStore
from gym_bus.subjects import run_aggregate
from projections import violations
from schemas.config import JsonlTaskset, OpenAIModel, Retries, RunConfig
from schemas.conversation import Reply, Text, TokenUsage
from schemas.envelope import Envelope
from schemas.events import (
    ModelCallRequested,
    RemoteAsked,
    RolloutFinished,
    SandboxRequested,
    SessionClosed,
    SessionFailed,
    SessionRequested,
    TaskToolCallCompleted,
    VerdictIssued,
)
from schemas.harnesses import RemoteAgent
from tests.bench.stage import Stage, stage
from tests.e2e.test_agent_programs import model_at
from tests.support.logs import project
from tests.support.real_run import RealRun
from tests.support.remote_agent import HttpAgent
from tests.support.upstream import served

pytestmark = pytest.mark.filterwarnings("ignore:subprocess:ResourceWarning")  # a server outlives whoever started it

HOSTS: Final = {"h0": "collector,harness", "h1": "verifier", "g0": "gateway"}
SETTINGS: Final = {"GYM_BUS_ACK_WAIT_S": "2", "GYM_BUS_LEASE_S": "1.5", "GYM_BUS_REREAD_S": "1"}
KEY: Final = "the-agents-own-key"
GOOD: Final = ("plain", "clean", "busy", "later", "forgets", "notes", "goes-on")
"""What the agent is told to do, where it comes to a good end."""
BAD: Final = {
    "down": ("exhausted", "agent_failed", "answered 503"),
    "wrong": ("terminal", "unsupported", "no such model: some-model, said with [redacted]"),
    "babbles": ("exhausted", "agent_failed", "not as it should be"),
    "unclean": ("exhausted", "agent_failed", "could not be ended"),
    "gives-up": ("exhausted", "agent_failed", "the agent failed (tired): No more."),
    "stuck": ("exhausted", "agent_timeout", "was not finished after 2 s"),
}
"""And where it does not: what becomes of the rollout."""


def sum_of(body: dict[str, Any]) -> Reply:
    """Add up the numbers of the last question."""
    numbers = re.findall(r"\d+", str(body["messages"][-1]["content"]))
    text = f"It is \\boxed{{{sum(map(int, numbers))}}}."
    usage = TokenUsage(input_tokens=10, output_tokens=5)
    return Reply(dialect="chat", id="r", model="m", parts=(Text(text=text),), stop_reason="stop", usage=usage)


def row(word: str, number: int) -> dict[str, Any]:
    """Return a task that the agent knows by its word."""
    made = {"id": word, "question": f"[{word}] What is {number} + 4?", "answer": str(number + 4)}
    if word == "goes-on":
        made |= {"follow_ups": ["And what is 20 + 30?"], "answer": "50"}
    if word == "notes":
        made |= {"tools": ["note"], "expected_records": {"note": ["seen"]}}
        del made["answer"]
    return made


@asynccontextmanager
async def scene(**agent: Any) -> AsyncIterator[tuple[Stage, HttpAgent, Callable[..., RunConfig]]]:
    """Give hosts, an agent, and what makes the configuration of a run of tasks with these words."""
    async with (
        model_at("chat", sum_of) as (model_url, _),
        stage(hosts=0, projector=False, extra=SETTINGS) as place,
    ):
        there = HttpAgent()
        async with served(there.app) as url:
            key = SecretsStore(place.data_dir / "secrets").store(KEY)

            def config(*words: str, **more: Any) -> RunConfig:
                tasks = place.data_dir / f"{words[0]}.jsonl"
                tasks.write_text("".join(json.dumps(row(word, n)) + "\n" for n, word in enumerate(words)))
                return RunConfig(
                    taskset=JsonlTaskset(jsonl_fpath=str(tasks)),
                    agent=RemoteAgent(
                        **{"url": f"{url}/do", "api_key": key, "poll_s": 0.1, "timeout_s": 60, **agent, **more}
                    ),
                    model=OpenAIModel(policy_base_url=f"{model_url}/v1", policy_model_name="some-model"),
                    retries=Retries(max_attempts=1),
                )

            for name, kinds in HOSTS.items():
                place.spawn(name, kinds)
            await place.ready()
            try:
                yield place, there, config
            finally:
                await there.aclose()


async def events_of(place: Stage) -> list[Envelope]:
    """Return the log, in which everything holds that must."""
    raw = [stored async for stored in place.admin.read("gym.evt.0.>")]
    assert violations(project(raw, DirectoryBlobs(place.data_dir / "blobs"))) == {}
    return [event async for event in place.log.read("gym.evt.0.>")]


def where(event: Envelope) -> tuple[str, str]:
    """Return which rollout an event is of."""
    return event.run_id, event.rollout_id


def words_of(events: list[Envelope]) -> dict[tuple[str, str], str]:
    """Return what each rollout's task is told by."""
    return {where(e): e.data.task.task_id for e in events if isinstance(e.data, SessionRequested)}


async def test_it_does_tasks_and_what_goes_wrong_is_a_failure_of_the_machinery() -> None:
    """Its model is the gateway's, its answer is graded; each of its failures has its class, and none has a reward."""
    async with scene(max_tries=3, resumes=True) as (place, there, config):
        await place.request(config(*GOOD, *BAD.keys() - {"stuck"}), "many")
        await place.request(config("stuck", timeout_s=2), "one")
        async with asyncio.timeout(60):
            for run_id in ("many", "one"):
                while await place.log.last(f"{run_aggregate(run_id).prefix}.run_finished") is None:
                    await asyncio.sleep(0.1)
            while not there.stopped:  # it is told when the session has its end already
                await asyncio.sleep(0.1)
        events = await events_of(place)
    names = words_of(events)
    ended = {names[where(e)]: e.data for e in events if isinstance(e.data, RolloutFinished)}
    assert {word: ended[word].reward for word in GOOD} == dict.fromkeys(GOOD, 1.0)
    for word, (state, kind, said) in BAD.items():
        end = ended[word]
        assert end.failure is not None
        assert (end.state, end.failure.kind, end.reward) == (state, kind, None)
        assert said in end.failure.message
    assert not any(isinstance(event.data, SandboxRequested) for event in events)
    assert {headers["authorization"] for headers in there.headers} == {f"Bearer {KEY}"}
    stated = "".join(event.data.model_dump_json() for event in events)
    assert not any(secret in stated for secret in (KEY, "gbt."))
    assert [len(there.keys(word)) for word in ("busy", "down", "forgets", "later", "wrong")] == [3, 3, 2, 1, 1]
    assert set(there.begun.values()) == {1}
    assert there.stopped == there.keys("stuck")
    closed = {names[where(e)]: e.data for e in events if isinstance(e.data, SessionClosed | SessionFailed)}
    confirmed = {word: closed[word].cleanup_confirmed for word in ("plain", "clean", "unclean", "down")}
    assert confirmed == {"plain": None, "clean": True, "unclean": False, "down": None}
    first, second = [b for b in there.posts if b["session_id"] == there.session_of("goes-on")]
    assert [m["content"] for m in second["messages"]] == ["And what is 20 + 30?"]
    assert (first["activation"], second["activation"]) == (1, 2)
    assert first["token"] != second["token"]
    assert sum(isinstance(event.data, TaskToolCallCompleted) for event in events) == 1
    assert {"session_id", "deadline", "timeout_s", "model", "base_url", "mcp_servers"} <= first.keys()
    notes = next(body for body in there.posts if body["tools_url"])
    assert [server["url"] for server in notes["mcp_servers"]] == [f"{notes['base_url']}/mcp/task_tools"]


async def test_a_killed_owner_asks_again_under_the_same_key_or_looks_where_it_was_told_to() -> None:
    """The agent's work is done once, and its model asked once."""
    async with scene() as (place, there, config):
        await place.request(config("held", "held-later"))
        async with asyncio.timeout(60):
            while not (there.begun.total() == 2 and there.polls):
                await asyncio.sleep(0.02)
        os.kill(place.children["h0"].pid, signal.SIGKILL)
        place.children["h0"].wait(10)
        asked_before, looked_before = len(there.posts), there.polls.total()
        place.spawn("h0", HOSTS["h0"])
        async with asyncio.timeout(60):
            while len(there.posts) == asked_before or there.polls.total() == looked_before:
                await asyncio.sleep(0.02)
        there.may_end.set()
        await place.finished(60)
        events = await events_of(place)
    assert len(there.keys("held")) == 2
    assert len(set(there.keys("held"))) == len(there.keys("held-later")) == 1
    bodies = [body for body in there.posts if body["idempotency_key"] in there.keys("held")]
    assert bodies[0] == bodies[1], "what is asked again is the same to the last word"
    assert set(there.begun.values()) == {1}
    assert sum(isinstance(event.data, RemoteAsked) for event in events) == 2
    assert sum(isinstance(event.data, ModelCallRequested) for event in events) == 2
    assert [event.data.reward for event in events if isinstance(event.data, VerdictIssued)] == [1.0, 1.0]


@pytest.mark.slow
async def test_the_command_line_brings_up_what_it_needs(tmp_path: Path) -> None:
    """A gateway, and no sandbox; the agent's key, which the environment holds, reaches the agent and nothing else."""
    run, there = RealRun(tmp_path, {"AGENT_KEY": KEY}), HttpAgent()
    (tmp_path / "tasks.jsonl").write_text(json.dumps(row("later", 3)) + "\n")
    try:
        async with model_at("chat", sum_of) as (model_url, _), served(there.app) as url:
            agent = (
                "agent.type=remote_agent",
                f"agent.url={url}/do",
                "agent.api_key=env:AGENT_KEY",
                "agent.poll_s=0.1",
            )
            model = ("--model-url", f"{model_url}/v1", "--model", "some-model")
            given = ("--input", str(tmp_path / "tasks.jsonl"), "--output", str(tmp_path / "out"))
            done = await asyncio.to_thread(run.cli, "eval", "run", *given, *model, *agent)
        assert done.returncode == 0, done.stdout + done.stderr
        held = await asyncio.to_thread(run.cli, "doctor")
        assert held.returncode == 0, held.stdout
    finally:
        await asyncio.to_thread(run.stop)
        await there.aclose()
    assert [found["reward"] for found in run.rows()] == [1.0]
    assert there.headers[0]["authorization"] == f"Bearer {KEY}"
    assert KEY not in (tmp_path / "out/run_config.yaml").read_text()
