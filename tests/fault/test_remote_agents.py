"""An agent that runs somewhere else outlives whoever asks it: killed at each boundary, its work is done once for each input."""

from __future__ import annotations

import asyncio
import contextvars
import json
import re
import tempfile
from collections import Counter, defaultdict
from functools import cache
from pathlib import Path
from typing import Any, Final

import pytest

from actors.gateway.grants import gateway_key, read
from actors.harness.remote_calls import RemoteHandlers
from actors.harness.remote_http import HttpAsked, HttpSaid
from gym_bus import boundary
from gym_bus.event_log import Draft, EventLog
from gym_bus.memory_bus import MemoryBus
from gym_bus.settings import Settings
from schemas.config import ScriptedModel
from schemas.envelope import Envelope
from schemas.events import ModelCallCompleted, ModelCallRequested, RemoteAsked, RolloutFinished
from schemas.harnesses import RemoteAgent
from schemas.sandboxes import Bubblewrap
from schemas.values import Message, Usage
from tests.support.checks import check_log
from tests.support.virtual_time import run_virtual
from tests.support.world import SimHost, World, config, kill_at, sum_tasks, with_follow_ups

AGENT: Final = RemoteAgent(url="http://127.0.0.1:1/do", poll_s=0.1, resumes=True)
RESTART_AFTER_S: Final = 0.3
WORKS_FOR_S: Final = 0.2
ROLLOUTS: Final = 4


class Elsewhere:
    """The agent: every second session is told where to look, the others wait for their answer. What it does is in the log as a call."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.works: dict[str, asyncio.Task[str]] = {}
        self.keys: defaultdict[tuple[str, int], set[str]] = defaultdict(set)
        self.posts = 0

    async def __call__(self, asked: HttpAsked, within_s: float) -> HttpSaid:
        """Answer a request."""
        del within_s
        if asked.method == "GET":
            work = self.works[asked.url.rpartition("/")[2]]
            return _said(200, {"answer": work.result()}) if work.done() else _said(202, {})
        assert asked.method == "POST", "nobody tells it to stop: it comes to an end each time"
        body = json.loads(asked.body)
        key = asked.headers["idempotency-key"]
        self.posts += 1
        self.keys[body["session_id"], body["activation"]].add(key)
        if key not in self.works:
            self.works[key] = asyncio.create_task(self._work(body), context=contextvars.Context())
        if int(body["session_id"].split(".")[1].partition("-")[0]) % 2:
            return _said(202, {"status_url": f"/do/{key}"})
        return _said(200, {"answer": await asyncio.shield(self.works[key])})

    async def _work(self, body: dict[str, Any]) -> str:
        world = self.world
        grant = read(gateway_key(world.settings.data_dir / "keys"), body["token"])
        log = EventLog(MemoryBus(world.server, "model"), world.codec, world.clock, worker="g0.a", patience_s=60)
        turn = grant.activation
        where = grant.conversation
        cause = next(e.event_id for e in world.events(RemoteAsked) if body["idempotency_key"] in str(e.data))
        writer = await log.claim(where, 1, cause) if turn == 1 else await log.claim_over(where, 1, cause)
        assert writer is not None
        new = tuple(Message.model_validate(message) for message in body["messages"])
        call = ModelCallRequested(
            turn=turn,
            tries=1,
            parent_id=None,
            new_messages=new,
            context_digest="d",
            dialect="chat",
            activation=grant.activation,
        )
        made = await log.append(writer, Draft(call, cause, str(turn)))
        await asyncio.sleep(WORKS_FOR_S)
        words = f"<answer>{sum(map(int, re.findall(r'[0-9]+', body['messages'][-1]['content'])))}</answer>"
        message = Message(role="assistant", content=words)
        done = ModelCallCompleted(
            request_id=made.event_id, turn=turn, message=message, stop_reason="stop", usage=Usage(), duration_s=0.2
        )
        await log.append(writer, Draft(done, made.event_id))
        return words


def _said(status: int, body: Any) -> HttpSaid:
    return HttpSaid(status, {}, json.dumps(body).encode())


async def _run(target: tuple[str, int] | None, data_dir: Path) -> tuple[list[Envelope], dict[str, int], int, Elsewhere]:
    world = World(
        settings=Settings(ack_wait_s=2.0, lease_s=1.5, reread_s=0.5, append_patience_s=600, data_dir=data_dir)
    )
    world.tasks = [with_follow_ups(task, 1) for task in sum_tasks(ROLLOUTS)]
    world.ask_agent = agent = Elsewhere(world)
    struck = 0

    def come_back(host: SimHost) -> None:
        nonlocal struck
        struck += 1
        asyncio.get_running_loop().call_later(RESTART_AFTER_S, lambda: world.start_host(host.host_id, host.kinds))

    kill_at(world, [target] if target else [], come_back)
    try:
        world.start_host("h0")
        await world.request_run("r1", config(agent=AGENT, model=ScriptedModel(), sandbox=Bubblewrap()))
        await world.finished("r1", 300)
        await world.quiet(100)
    finally:
        boundary.install(None)
        await world.stop()
    return world.events(), dict(world.hits), struck, agent


def run(target: tuple[str, int] | None) -> tuple[list[Envelope], dict[str, int], int, Elsewhere]:
    async def here(_: Any, __: str) -> str:
        return "http://127.0.0.1:7"

    with tempfile.TemporaryDirectory() as directory, pytest.MonkeyPatch.context() as patch:
        patch.setattr(RemoteHandlers, "_gateway", here)  # no socket is looked at in virtual time
        return run_virtual(_run(target, Path(directory)))


@cache
def undisturbed() -> dict[str, int]:
    events, hits, struck, agent = run(None)
    check(events, agent)
    assert (struck, agent.posts) == (0, 2 * ROLLOUTS)
    return hits


def check(events: list[Envelope], agent: Elsewhere) -> None:
    """Each rollout is scored in its first attempt, with one key, one piece of work and one call of the model for each input."""
    check_log(events)
    finished = [e.data for e in events if isinstance(e.data, RolloutFinished)]
    assert Counter((data.state, data.reward) for data in finished) == {("scored", 1.0): ROLLOUTS}
    assert len(agent.keys) == len(agent.works) == 2 * ROLLOUTS
    assert all(len(keys) == 1 for keys in agent.keys.values())
    for kind in (RemoteAsked, ModelCallRequested, ModelCallCompleted):
        assert sum(isinstance(event.data, kind) for event in events) == 2 * ROLLOUTS


NAMES: Final = [name for name in boundary.BOUNDARIES if name.startswith("harness.") and "fact" not in name]
"""No other actor tells such a session anything."""


@pytest.mark.parametrize("name", NAMES)
def test_its_work_is_done_once_whoever_is_killed(name: str) -> None:
    hits = undisturbed()[name]
    for nth in sorted({1, hits // 3 or 1, hits // 2 or 1, hits}):
        events, _, struck, agent = run((name, nth))
        assert struck == 1
        check(events, agent)
