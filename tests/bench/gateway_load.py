"""Calls for the gateway's benchmarks: sessions of a run, each with a conversation, over one client."""

from __future__ import annotations

import asyncio
import json
import time
from dataclasses import dataclass, field
from typing import Final

import aiohttp

from actors.gateway.grants import Grant, gateway_key, mint
from gym_bus.event_log import Draft, EventLog
from gym_bus.nats_bus import connect
from gym_bus.subjects import aggregate
from schemas.config import OpenAIModel, SimpleAgent
from schemas.events import SessionRequested
from schemas.sandboxes import Inline
from schemas.tasks import TaskInput
from schemas.values import Message, Sampling
from tests.bench.gateway_peers import PATH
from tests.bench.stage import Stage

SESSIONS: Final = 64
CALL_S: Final = 120


@dataclass
class Timing:
    """What calls took, in seconds."""

    first: list[float] = field(default_factory=list)
    whole: list[float] = field(default_factory=list)


async def open_sessions(on: Stage, url: str) -> list[str]:
    """Open sessions whose model is at `url`; return their tokens."""
    key = gateway_key(on.data_dir / "keys")
    model = OpenAIModel(policy_base_url=f"{url}/v1", policy_model_name="m")
    tokens = []
    passwords = (on.server.address() or on.server.ensure()).passwords
    async with connect(on.server.ensure().url, "collector", passwords["collector"]) as bus:
        log = EventLog(bus, on.log.codec, on.log._clock, worker="bench.0", patience_s=10)
        for n in range(SESSIONS):
            writer = await log.claim(aggregate("bench", f"{n}-0", "collector", "_"), 1, None)
            if writer is None:
                msg = "the log is not new"
                raise RuntimeError(msg)
            data = SessionRequested(
                task=TaskInput(task_id=f"t/{n}", messages=(Message(role="user", content="?"),)), repeat=0,
                agent=SimpleAgent(), model=model, sandbox=Inline(), sampling=Sampling(),
            )  # fmt: skip
            await log.append(writer, Draft(data, None))
            tokens.append(mint(key, Grant(aggregate("bench", f"{n}-0", "model", "s1"), 1)))
    return tokens


class Load:
    """Calls at `url`, spread over the sessions of `tokens`; `latency_s` and `trickle_s` are for the upstream (see `gateway_peers`)."""

    def __init__(
        self, url: str, tokens: list[str], *, is_streamed: bool, latency_s: float = 0.0, trickle_s: float = 0.0
    ) -> None:
        """Call with as many connections as there are calls."""
        connector = aiohttp.TCPConnector(limit=0, keepalive_timeout=4)
        self._client = aiohttp.ClientSession(connector=connector, timeout=aiohttp.ClientTimeout(total=CALL_S))
        self._url = f"{url}{PATH}"
        self._tokens = tokens
        self._is_streamed = is_streamed
        self._marks = f"latency={latency_s} trickle={trickle_s}"
        self._count = 0
        self.timing = Timing()
        self.open = 0

    async def call(self, n: int) -> None:
        """Make one call in session `n`."""
        self._count += 1
        messages = [
            {"role": "system", "content": "s" * 400},
            {"role": "user", "content": f"{self._count} {self._marks} " + "q" * 400},
        ]
        body = json.dumps({"model": "m", "messages": messages, "stream": self._is_streamed})
        headers = {"authorization": f"Bearer {self._tokens[n]}", "content-type": "application/json"}
        began, first = time.perf_counter(), None
        async with self._client.post(self._url, data=body, headers=headers) as answer:
            answer.raise_for_status()
            async for piece in answer.content.iter_any():
                if first is None and b"word" in piece:
                    first = time.perf_counter()
                    self.open += 1
        if first is None:
            msg = "an answer without a word"
            raise RuntimeError(msg)
        self.open -= 1
        self.timing.first.append(first - began)
        self.timing.whole.append(time.perf_counter() - began)

    async def closed(self, in_flight: int, seconds: float) -> float:
        """Keep `in_flight` calls going for some seconds; return calls a second."""
        end, done = time.perf_counter() + seconds, 0

        async def worker(n: int) -> None:
            nonlocal done
            while time.perf_counter() < end:
                await self.call(n % len(self._tokens))
                done += 1

        began = time.perf_counter()
        async with asyncio.TaskGroup() as group:
            for n in range(in_flight):
                group.create_task(worker(n))
        return done / (time.perf_counter() - began)

    async def paced(self, per_s: float, in_flight: int, seconds: float) -> None:
        """Begin `per_s` calls a second, at most `in_flight` at once."""
        room, began = asyncio.Semaphore(in_flight), time.perf_counter()
        async with asyncio.TaskGroup() as group:
            for n in range(max(1, int(per_s * seconds))):
                await asyncio.sleep(max(0.0, began + n / per_s - time.perf_counter()))
                await room.acquire()
                group.create_task(self.call(n % len(self._tokens))).add_done_callback(lambda _: room.release())

    async def aclose(self) -> None:
        """Give back connections."""
        await self._client.close()
