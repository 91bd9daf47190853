"""What the gateway costs: added latency beside a direct call, and calls a second of one core beside a proxy that records nothing.

`gateway_ratio` compares processor time: what a call costs a bare pass-through proxy, written with the same server and client library,
over what it costs the gateway's process, which reads, records and passes on; both serve the same streamed calls, 64 in flight. The
added latencies are differences of medians, at most 64 in flight, with an upstream of 200 ms, at half of what one core can do.
"""

from __future__ import annotations

import asyncio
import json
import socket
import subprocess
import sys
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from statistics import median, quantiles
from typing import Any, Final

import httpx

from actors.gateway.grants import Grant, gateway_key, mint
from gym_bus.event_log import Draft, EventLog
from gym_bus.nats_bus import connect
from gym_bus.subjects import aggregate
from schemas.config import Inline, OpenAIModel, SimpleAgent
from schemas.events import SessionRequested
from schemas.tasks import TaskInput
from schemas.values import Message, Sampling
from tests.bench.gateway_peers import PATH
from tests.bench.processes import cpu_s
from tests.bench.report import OTHERS, Others
from tests.bench.stage import ROOT, Stage, environment, stage, until

SESSIONS: Final = 64
LATENCY_S: Final = 0.2
SHARE: Final = 0.5


@dataclass
class Timing:
    """What calls took, in seconds."""

    first: list[float] = field(default_factory=list)
    whole: list[float] = field(default_factory=list)


async def _open_sessions(on: Stage, url: str) -> list[str]:
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


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        return int(taken.getsockname()[1])


@asynccontextmanager
async def _peer(on: Stage, role: str, argument: str) -> AsyncGenerator[tuple[str, int]]:
    """Run a peer; give its address and its process."""
    port = _free_port()
    process = subprocess.Popen(  # noqa: ASYNC220  it takes a millisecond
        [sys.executable, "-m", "tests.bench.gateway_peers", role, str(port), argument],
        cwd=ROOT, env=environment(on.data_dir), stdin=subprocess.DEVNULL,
    )  # fmt: skip

    def answers() -> bool:
        try:
            socket.create_connection(("127.0.0.1", port), 0.2).close()
        except OSError:
            return False
        return True

    try:
        await until(answers, 20)
        yield f"http://127.0.0.1:{port}", process.pid
    finally:
        process.kill()
        process.wait()


class Load:
    """Calls with a growing conversation, each session one at a time."""

    def __init__(self, url: str, tokens: list[str], *, is_streamed: bool) -> None:
        """Call `url` in the sessions of `tokens`."""
        limits = httpx.Limits(max_connections=2048, max_keepalive_connections=2048)
        self._client = httpx.AsyncClient(limits=limits, timeout=60, base_url=url)
        self._tokens = tokens
        self._is_streamed = is_streamed
        self._count = 0
        self.timing = Timing()

    async def call(self, n: int) -> None:
        """Make one call in session `n`."""
        self._count += 1
        messages = [
            {"role": "system", "content": "s" * 400},
            {"role": "user", "content": f"{self._count} " + "q" * 400},
        ]
        body = {"model": "m", "messages": messages, "stream": self._is_streamed}
        headers = {"authorization": f"Bearer {self._tokens[n]}", "content-type": "application/json"}
        began, first = time.perf_counter(), None
        async with self._client.stream("POST", PATH, content=json.dumps(body), headers=headers) as answer:
            async for piece in answer.aiter_raw():
                if first is None and b"word" in piece:
                    first = time.perf_counter()
            answer.raise_for_status()
        self.timing.first.append((first or time.perf_counter()) - began)
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
            for n in range(int(per_s * seconds)):
                await asyncio.sleep(max(0.0, began + n / per_s - time.perf_counter()))
                await room.acquire()
                group.create_task(self.call(n % len(self._tokens))).add_done_callback(lambda _: room.release())

    async def aclose(self) -> None:
        """Give back connections."""
        await self._client.aclose()


async def _cpu_of_a_call(url: str, pid: int, tokens: list[str], seconds: float) -> tuple[float, float]:
    """Return processor milliseconds of `pid` for one streamed call, 64 in flight, and calls a second."""
    load = Load(url, tokens, is_streamed=True)
    await load.closed(SESSIONS, seconds / 4)
    before, calls = cpu_s([pid]), len(load.timing.whole)
    rate = await load.closed(SESSIONS, seconds)
    cost = (cpu_s([pid]) - before) / (len(load.timing.whole) - calls)
    await load.aclose()
    return cost * 1e3, rate


async def _added(direct: str, through: str, tokens: list[str], per_s: float, seconds: float) -> dict[str, float]:
    """Return what the gateway adds in milliseconds, whole answers and first words, p50 and p99."""
    timings: dict[tuple[str, bool], Timing] = {}
    for is_streamed in (False, True):
        for name, url in (("direct", direct), ("through", through)):
            load = Load(url, tokens, is_streamed=is_streamed)
            await load.paced(per_s, SESSIONS, seconds)
            timings[name, is_streamed] = load.timing
            await load.aclose()

    def added(what: str, cut: Any) -> float:
        through_, direct_ = (getattr(timings[name, what == "first"], what) for name in ("through", "direct"))
        return float((cut(through_) - cut(direct_)) * 1e3)

    def p99(values: list[float]) -> float:
        return quantiles(values, n=100)[98]

    return {
        "gateway_added_p50_ms": added("whole", median),
        "gateway_added_p99_ms": added("whole", p99),
        "gateway_first_token_added_p50_ms": added("first", median),
        "gateway_first_token_added_p99_ms": added("first", p99),
    }


async def measure(*, quick: bool) -> dict[str, float]:
    """Return all figures of the gateway; see the module."""
    seconds = 2.0 if quick else 6.0
    async with stage(hosts=0, projector=False) as on, _peer(on, "upstream", "0") as (fast, _):
        on.spawn("g0", "gateway")
        await on.ready()
        await on.settle()
        where = json.loads((on.data_dir / "hosts" / "g0" / "gateway.json").read_text())["url"]
        tokens, others = await _open_sessions(on, fast), Others(on.cpu_s())
        async with _peer(on, "proxy", fast) as (bare, bare_pid):
            bare_ms, bare_rate = await _cpu_of_a_call(bare, bare_pid, tokens, seconds)
        own_ms, own_rate = await _cpu_of_a_call(where, on.children["g0"].pid, tokens, seconds)
        busy = others.cores(on.cpu_s())
    async with stage(hosts=0, projector=False) as on, _peer(on, "upstream", str(LATENCY_S)) as (slow, _):
        on.spawn("g0", "gateway")
        await on.ready()
        await on.settle()
        where = json.loads((on.data_dir / "hosts" / "g0" / "gateway.json").read_text())["url"]
        tokens = await _open_sessions(on, slow)
        per_s = min(SHARE * 1000 / own_ms, 0.9 * SESSIONS / LATENCY_S)
        added = await _added(slow, where, tokens, per_s, seconds)
    return {
        OTHERS: busy,
        "gateway_ratio": bare_ms / own_ms,
        "gateway_cpu_ms_per_call": own_ms,
        "gateway_bare_cpu_ms_per_call": bare_ms,
        "gateway_calls_per_s": own_rate,
        "gateway_bare_calls_per_s": bare_rate,
        **added,
    }
