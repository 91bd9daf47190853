"""A gateway for tests: a log in memory, a session that is open in it, an upstream over HTTP, and the gateway between them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from actors.budget import RunSpending
from actors.gateway.app import Gateway
from actors.gateway.conversation import Conversation
from actors.gateway.grants import Grant, mint
from actors.gateway.sessions import OpenSession
from gym_bus.blobs import MemoryBlobs
from gym_bus.clock import SystemClock
from gym_bus.codec import Codec
from gym_bus.event_log import Draft, EventLog
from gym_bus.memory_bus import MemoryBus, MemoryServer
from gym_bus.runtime.presence import Presence
from gym_bus.subjects import aggregate
from providers.dialects.catalog import DIALECTS
from providers.models.backends import Backend
from providers.models.served import backend_of
from schemas.base import Event
from schemas.config import AnthropicModel, Budgets, HttpModel, OpenAIModel, Prices, SimpleAgent
from schemas.conversation import DialectName
from schemas.envelope import Envelope
from schemas.events import Claimed, SessionRequested
from schemas.harnesses import Program
from schemas.sandboxes import Inline
from schemas.tasks import TaskInput
from schemas.values import Message, Sampling
from tests.support.upstream import Upstream, served

KEY = b"k" * 32
NO_BUDGET = Budgets()
SIMPLE = SimpleAgent()


@dataclass
class GatewayPlace:
    """What a test works with."""

    url: str
    upstream: Upstream
    server: MemoryServer
    codec: Codec
    grant: Grant
    gateway: Gateway
    backend: Backend
    second_url: str = ""
    presences: list[Presence] = field(default_factory=list)
    extra: dict[str, Any] = field(default_factory=dict)

    @property
    def token(self) -> str:
        """Return the session's token."""
        return mint(KEY, self.grant)

    def first_is_silent(self) -> None:
        """Let the second gateway believe that the first is gone, whether it is or not."""
        self.presences[1].gone(self.presences[0].worker)

    def events(self, *kinds: type[Event]) -> list[Envelope]:
        """Return the events of some types, or all."""
        decoded = [self.codec.decode(s.subject, s.body, s.sequence) for s in self.server.events]
        return [e for e in decoded if not kinds or isinstance(e.data, kinds)]


def log_as(user: str, server: MemoryServer, codec: Codec, worker: str = "") -> EventLog:
    """Return the log as a bus user sees it."""
    return EventLog(MemoryBus(server, user), codec, SystemClock(), worker=worker or f"{user}.0", patience_s=5)


async def open_session(
    server: MemoryServer,
    codec: Codec,
    run_id: str = "r1",
    rollout_id: str = "0-0",
    *,
    budget: Budgets = NO_BUDGET,
    prices: Prices | None = None,
    model: HttpModel | None = None,
    agent: SimpleAgent | Program = SIMPLE,
) -> Grant:
    """Write what opens a session; return the grant for it."""
    data = SessionRequested(
        task=TaskInput(task_id="sum/0", messages=(Message(role="user", content="What is 2 + 2?"),)),
        repeat=0,
        agent=agent,
        model=model
        or OpenAIModel(policy_base_url="http://upstream/v1", policy_model_name="upstream-model", prices=prices),
        sandbox=Inline(),
        sampling=Sampling(),
        budget=budget,
    )
    collector = log_as("collector", server, codec)
    writer = await collector.claim(aggregate(run_id, rollout_id, "collector", "_"), 1, None)
    assert writer is not None
    await collector.append(writer, Draft(data, None))
    return Grant(aggregate(run_id, rollout_id, "model", "s1"), 1)


def conversation_in(place: GatewayPlace, worker: str = "g0.a") -> Conversation:
    """Return the place's conversation as a process of its own sees it."""
    event_log = log_as("model", place.server, place.codec, worker)
    asked = place.events(SessionRequested)[0]
    assert isinstance(asked.data, SessionRequested)
    session = OpenSession(asked.data, asked.event_id, asked.recorded_at)
    presence = alone(worker)
    for other in place.events(Claimed):
        assert isinstance(other.data, Claimed)
        presence.gone(other.data.worker)
    return Conversation(event_log, place.grant, session, RunSpending(event_log, SystemClock()), presence)


def alone(worker: str) -> Presence:
    """Return what a process knows of others that has just begun: nothing, for a minute."""
    return Presence(SystemClock(), worker, lease_s=60)


def upstream_model(dialect: DialectName, url: str, timeout_s: float) -> HttpModel:
    """Return the configuration of a model that speaks `dialect` at `url`."""
    said: dict[str, Any] = {
        "policy_base_url": f"{url}/v1",
        "policy_model_name": "upstream-model",
        "timeout_s": timeout_s,
    }
    return AnthropicModel(**said) if dialect == "messages" else OpenAIModel(**said, api=dialect)


@asynccontextmanager
async def gateway_place(
    dialect: DialectName = "chat",
    *,
    timeout_s: float = 10,
    max_tries: int = 1,
    is_doubled: bool = False,
    budget: Budgets = NO_BUDGET,
    prices: Prices | None = None,
    agent: SimpleAgent | Program = SIMPLE,
) -> AsyncIterator[GatewayPlace]:
    """Give a gateway whose upstream speaks `dialect`; with `is_doubled`, a second gateway on the same log."""
    server, codec = MemoryServer(), Codec(MemoryBlobs())
    upstream = Upstream(DIALECTS[dialect])
    grant = await open_session(server, codec, budget=budget, prices=prices, agent=agent)
    async with served(upstream.app) as upstream_url, asyncio.TaskGroup() as group:
        backend = backend_of(upstream_model(dialect, upstream_url, timeout_s), "the-key", 64, max_tries)
        presences = [alone(f"g{n}.x") for n in range(1 + is_doubled)]
        gateways = [
            Gateway(log_as("model", server, codec, p.worker), SystemClock(), KEY, lambda *_: backend, p)
            for p in presences
        ]
        running = [group.create_task(gateway.run()) for gateway in gateways]
        try:
            async with served(gateways[0].app) as url, served(gateways[-1].app) as second_url:
                yield GatewayPlace(url, upstream, server, codec, grant, gateways[0], backend, second_url, presences)
        finally:
            await backend.aclose()
            for task in running:
                task.cancel()
