"""What the gateway costs: added latency beside a direct call, and calls a second of one core beside a proxy that records nothing.

`gateway_ratio` compares processor time: what a call costs a bare pass-through proxy, written with the same server library and httpx,
over what it costs the gateway's process, which reads, records and passes on; both serve the same streamed calls, 64 in flight, whose
40 words come 20 ms apart: what comes at once would be joined by the network, and cost whoever is slower less.
`gateway_ratio_same_client` is the same with a proxy that has the gateway's own HTTP client. The added latencies are differences of
medians at half of what one core can do: with an upstream of 200 ms, and with one so slow that 512 are in flight; `gateway_bare_added`
is what the second of these proxies adds, which is one more hop.
"""

from __future__ import annotations

import asyncio
import json
import socket
import subprocess
import sys
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from statistics import median, quantiles
from typing import Any, Final

from tests.bench.gateway_load import SESSIONS, Load, Timing, open_sessions
from tests.bench.processes import cpu_s, memory_mb
from tests.bench.report import OTHERS, Others
from tests.bench.stage import ROOT, Stage, environment, stage, until
from tests.support.long_conversation import log_bytes

LATENCY_S: Final = 0.2
SHARE: Final = 0.5
STREAMS: Final = 2000
WORD_S: Final = 0.02
WARM_S: Final = 1.5
"""How long is called before anything is timed, where calls are shorter than that: connections are open then, and sessions known."""


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        return int(taken.getsockname()[1])


@asynccontextmanager
async def _peer(on: Stage, role: str, argument: str = "") -> AsyncGenerator[tuple[str, int]]:
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


@dataclass
class _Place:
    """A gateway on a bus of its own, and a model's server that it passes calls to."""

    on: Stage
    upstream: str
    url: str
    pid: int
    tokens: list[str]


@asynccontextmanager
async def _place() -> AsyncGenerator[_Place]:
    async with stage(hosts=0, projector=False) as on, _peer(on, "upstream") as (upstream, _):
        on.spawn("g0", "gateway")
        await on.ready()
        await on.settle()
        url = json.loads((on.data_dir / "hosts" / "g0" / "gateway.json").read_text())["url"]
        yield _Place(on, upstream, url, on.children["g0"].pid, await open_sessions(on, upstream))


async def _cpu_of_a_call(url: str, pid: int, tokens: list[str], seconds: float) -> float:
    """Return processor milliseconds of `pid` for one streamed call of 40 words, 64 in flight."""
    load = Load(url, tokens, is_streamed=True, trickle_s=WORD_S)
    await load.closed(SESSIONS, seconds / 4)
    before, calls = cpu_s([pid]), len(load.timing.whole)
    await load.closed(SESSIONS, seconds)
    cost = (cpu_s([pid]) - before) / (len(load.timing.whole) - calls)
    await load.aclose()
    return cost * 1e3


async def _cost(place: _Place, seconds: float) -> dict[str, float]:
    """Return what a call costs the gateway and two proxies."""
    costs: dict[str, float] = {}
    for role in ("proxy-httpx", "proxy-aiohttp"):
        async with _peer(place.on, role, place.upstream) as (url, pid):
            costs[role] = await _cpu_of_a_call(url, pid, place.tokens, seconds)
    own_ms = await _cpu_of_a_call(place.url, place.pid, place.tokens, seconds)
    return {
        "gateway_ratio": costs["proxy-httpx"] / own_ms,
        "gateway_ratio_same_client": costs["proxy-aiohttp"] / own_ms,
        "gateway_cpu_ms_per_call": own_ms,
        "gateway_bare_cpu_ms_per_call": costs["proxy-httpx"],
        "gateway_calls_per_core_s": 1000 / own_ms,
    }


async def _added(place: _Place, bare: str, per_s: float, in_flight: int, seconds: float) -> dict[str, float]:
    """Return what the gateway adds in milliseconds, whole answers and first words, p50 and p99; and what a proxy at `bare` does."""
    latency_s = LATENCY_S if in_flight <= SESSIONS else in_flight / per_s
    per_s = min(per_s, 0.9 * in_flight / latency_s)
    timings: dict[tuple[str, bool], Timing] = {}
    urls = [("direct", place.upstream), ("through", place.url)]
    if (
        in_flight <= SESSIONS
    ):  # with calls of seconds it loses those whose connection the model's server has closed meanwhile
        urls.append(("bare", bare))
    for is_streamed in (False, True):
        for name, url in urls:
            load = Load(url, place.tokens, is_streamed=is_streamed, latency_s=latency_s)
            if latency_s <= WARM_S:
                await load.paced(per_s, in_flight, WARM_S)
                load.timing = Timing()
            await load.paced(per_s, in_flight, seconds + latency_s)
            timings[name, is_streamed] = load.timing
            await load.aclose()

    def added(what: str, cut: Any, by: str = "through") -> float:
        through_, direct_ = (getattr(timings[name, what == "first"], what) for name in (by, "direct"))
        return float((cut(through_) - cut(direct_)) * 1e3)

    def p99(values: list[float]) -> float:
        return quantiles(values, n=100)[98]

    tail = "" if in_flight == SESSIONS else f"_{in_flight}"
    by_bare = {
        f"gateway_bare_added_p50_ms{tail}": added("whole", median, "bare"),
        f"gateway_bare_first_token_added_p50_ms{tail}": added("first", median, "bare"),
    } if in_flight <= SESSIONS else {}  # fmt: skip
    return by_bare | {
        f"gateway_added_p50_ms{tail}": added("whole", median),
        f"gateway_added_p99_ms{tail}": added("whole", p99),
        f"gateway_first_token_added_p50_ms{tail}": added("first", median),
        f"gateway_first_token_added_p99_ms{tail}": added("first", p99),
    }


async def _throughput(place: _Place, seconds: float) -> dict[str, float]:
    """Return calls a second with 256 and 512 in flight over those with 128."""
    rates = {}
    for in_flight in (128, 256, 512):
        load = Load(place.url, place.tokens, is_streamed=True)
        await load.closed(in_flight, seconds / 4)
        rates[in_flight] = await load.closed(in_flight, seconds)
        await load.aclose()
    return {
        "gateway_throughput_256_over_128": rates[256] / rates[128],
        "gateway_throughput_512_over_128": rates[512] / rates[128],
    }


async def _streams(place: _Place) -> dict[str, float]:
    """Hold 2,000 streams of a word every two seconds open at once; return how many were, and what of a core and of memory that took."""
    load = Load(place.url, place.tokens, is_streamed=True, trickle_s=2.0)
    most, shares = 0, []
    async with asyncio.TaskGroup() as group:
        for n in range(STREAMS):
            group.create_task(load.call(n % SESSIONS))
            if n % 20 == 0:
                await asyncio.sleep(0.1)  # a ramp of ten seconds
        for _ in range(8):
            before = cpu_s([place.pid])
            await asyncio.sleep(1)
            shares.append(cpu_s([place.pid]) - before)
            most = max(most, load.open)
        memory = memory_mb([place.pid])
    await load.aclose()
    return {
        "gateway_open_streams": most,
        "gateway_open_streams_core_share": median(shares),
        "gateway_open_streams_mb": memory,
    }


async def measure(*, quick: bool) -> dict[str, float]:
    """Return what a call costs."""
    async with _place() as place:
        others = Others(place.on.cpu_s())
        found = await _cost(place, 2.0 if quick else 6.0)
        found[OTHERS] = others.cores(place.on.cpu_s())
    return found


async def _at_half(sizes: Sequence[int], *, quick: bool) -> dict[str, float]:
    seconds = 2.0 if quick else 6.0
    async with _place() as place:
        own_ms = await _cpu_of_a_call(place.url, place.pid, place.tokens, seconds / 2)
    found: dict[str, float] = {}
    for in_flight in sizes:
        async with _place() as place, _peer(place.on, "proxy-aiohttp", place.upstream) as (bare, _):
            found |= await _added(place, bare, SHARE * 1000 / own_ms, in_flight, seconds)
    return found


async def measure_latency(*, quick: bool) -> dict[str, float]:
    """Return what is added with 1 and 64 calls in flight."""
    return await _at_half((1, SESSIONS), quick=quick)


async def measure_many(*, quick: bool) -> dict[str, float]:
    """Return what is added with 512 calls in flight."""
    return await _at_half((512,), quick=quick)


async def measure_crowds(*, quick: bool) -> dict[str, float]:
    """Return how it bears many calls at once, and many open streams."""
    async with _place() as place:
        found = await _throughput(place, 2.0 if quick else 6.0)
    async with _place() as place:
        found |= await _streams(place)
    return found


async def measure_log(*, quick: bool) -> dict[str, float]:
    """Return what a conversation of 200 turns costs the log over what one of 100 costs."""
    del quick
    return {"log_growth_200_over_100_turns": await log_bytes(200) / await log_bytes(100)}
