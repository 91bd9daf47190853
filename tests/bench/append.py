"""What the fence costs: conditional appends against a bare publish loop on the same stream, same bodies, same subjects."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from statistics import median
from typing import Any, Final

import nats

from gym_bus.blobs import MemoryBlobs
from gym_bus.clock import SystemClock
from gym_bus.codec import Codec, Head
from gym_bus.event_log import Draft, EventLog
from gym_bus.nats_bus import NatsBus
from gym_bus.subjects import AggregateId, event_subject
from schemas.events import ModelCallCompleted
from schemas.values import Message, Usage
from tests.bench.stage import stage

IN_FLIGHT: Final = 64
PER_AGGREGATE: Final = 20
BODY_BYTES: Final = 700
PAIRS: Final = 5
Chain = Callable[[AggregateId], Awaitable[None]]


def _event(padding: int) -> ModelCallCompleted:
    message = Message(role="assistant", content="x" * padding)
    return ModelCallCompleted(
        request_id="y" * 16, turn=1, message=message, stop_reason="stop", usage=Usage(), duration_s=0.1
    )


def _sample() -> tuple[ModelCallCompleted, bytes]:
    """Return an event whose stored form has the wanted size, and that form."""
    codec = Codec(MemoryBlobs())
    head = Head("e" * 16, 1, 10_000, 10, "c" * 16, datetime.now(UTC))
    event = _event(1 + BODY_BYTES - len(codec.encode(head, _event(1))))
    return event, codec.encode(head, event)


async def _rate(chain: Chain, events: int) -> float:
    """Return events a second of `chain`s of 20, 64 at a time."""
    run = f"a{secrets.token_hex(4)}"
    places = iter([AggregateId(0, run, f"{n}-0", "model", "s1") for n in range(events // PER_AGGREGATE)])
    total = events // PER_AGGREGATE * PER_AGGREGATE

    async def one_after_the_other() -> None:
        for place in places:
            await chain(place)

    began = time.perf_counter()
    async with asyncio.TaskGroup() as group:
        for _ in range(IN_FLIGHT):
            group.create_task(one_after_the_other())
    return total / (time.perf_counter() - began)


def _fenced(bus: NatsBus, body: bytes) -> Chain:
    async def chain(where: AggregateId) -> None:
        last, prefix = 0, where.prefix
        subject = event_subject(where, "model_call_completed")
        for _ in range(PER_AGGREGATE):
            last = await bus.append(subject, body, fence=prefix, expected=last)

    return chain


def _bare(stream: Any, body: bytes) -> Chain:
    async def chain(where: AggregateId) -> None:
        subject = event_subject(where, "model_call_completed")
        for _ in range(PER_AGGREGATE):
            await stream.publish(subject, body)

    return chain


def _unfenced(bus: NatsBus, body: bytes) -> Chain:
    """Publish without a fence through our own client: what the fence alone costs."""

    async def chain(where: AggregateId) -> None:
        subject = event_subject(where, "model_call_completed")
        for _ in range(PER_AGGREGATE):
            await bus.mailbox.ask(subject, body, 10)

    return chain


def _logged(log: EventLog, event: ModelCallCompleted) -> Chain:
    async def chain(where: AggregateId) -> None:
        writer = await log.claim(where, 1, None)
        if writer is None:
            msg = f"{where.prefix} is not new"
            raise RuntimeError(msg)
        for n in range(PER_AGGREGATE - 1):
            await log.append(writer, Draft(event, "c" * 16, str(n)))

    return chain


async def measure(*, quick: bool) -> dict[str, float]:
    """Return the ratio (median of interleaved pairs) and the three rates."""
    events = 4_000 if quick else 12_000
    event, body = _sample()
    async with stage(hosts=0, projector=False) as on:
        address = on.server.address()
        if address is None:
            msg = "the server has ended"
            raise RuntimeError(msg)
        plain = await nats.connect(address.url, user="admin", password=address.passwords["admin"])
        try:
            log = EventLog(on.admin, Codec(MemoryBlobs()), SystemClock(), worker="h0.bench", patience_s=10)
            ways = {
                "append_per_s": _fenced(on.admin, body),
                "bare_per_s": _bare(plain.jetstream(), body),
                "unfenced_per_s": _unfenced(on.admin, body),
                "eventlog_per_s": _logged(log, event),
            }
            for chain in ways.values():
                await _rate(chain, 2_000)
            rates: dict[str, list[float]] = {name: [] for name in ways}
            for _ in range(PAIRS):
                for name, chain in ways.items():
                    rates[name].append(await _rate(chain, events))
        finally:
            await plain.close()
    pairs = zip(rates["append_per_s"], rates["bare_per_s"], strict=True)
    alike = zip(rates["append_per_s"], rates["unfenced_per_s"], strict=True)
    return {
        "append_ratio": median(ours / bare for ours, bare in pairs),
        "append_ratio_same_client": median(ours / bare for ours, bare in alike),
        **{name: median(values) for name, values in rates.items()},
        "append_body_bytes": len(body),
    }
