"""How fast the log becomes rows: a real server, events as real actors write them, and the bare cost beside it.

Bare is what any projection in Python pays: the same stored bytes decoded to rows and inserted into the same table
with the same settings, by DuckDB's appender, in batches of 10,000. The projector's figure is the whole way from the
server to committed rows.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import tempfile
import time
from datetime import datetime
from pathlib import Path
from statistics import median
from typing import Any, Final

import pydantic_core
import structlog
import uvloop

from actors.projector import Projector
from gym_bus.blobs import DirectoryBlobs
from gym_bus.nats_bus import NatsBus, connect
from gym_bus.provision import provision
from gym_bus.server import BusAddress, EmbeddedServer
from projections import open_store
from tests.support.logs import RUN, finished_log

BATCH: Final = 10_000
LIVE_PER_S: Final = 2_000
LIVE_S: Final = 4.0
Event = tuple[str, bytes]


def synthetic(count: int, run_id: str) -> list[Event]:
    """Return `count` events of one large run: a simulated run of real actors, its rollouts renamed again and again."""
    stored, _ = finished_log(40, 2)
    own = [s for s in stored if ".cli." in s.subject or s.subject.endswith(".run_started")]
    rollouts = [s for s in stored if f".{RUN}._." not in s.subject]
    made = [(s.subject.replace(f".{RUN}.", f".{run_id}."), s.body) for s in own]
    for copy in range(count // len(rollouts) + 1):
        name = f"{run_id}{copy}".encode()
        for s in rollouts:
            body = s.body
            for field in (b"event_id", b"causation_id", b"request_id"):
                body = body.replace(b'"%s":"' % field, b'"%s":"%s' % (field, name), 1)
            task, _, rest = s.subject.removeprefix(f"gym.evt.0.{RUN}.").partition("-")
            made.append((f"gym.evt.0.{run_id}.{int(task) + 40 * copy}-{rest}", body))
    return made[:count]


def bare(path: Path, events: list[Event]) -> float:
    """Return how many events a second are decoded in Python and inserted."""
    connection = open_store(path)
    began = time.perf_counter()
    for start in range(0, len(events), BATCH):
        rows = [_row(start + n, *event) for n, event in enumerate(events[start : start + BATCH])]
        connection.execute("begin")
        appender = connection.appender("events")
        appender.append_rows(rows)
        appender.flush()
        connection.execute("commit")
    rate = len(events) / (time.perf_counter() - began)
    connection.close()
    return rate


def _row(seq: int, subject: str, body: bytes) -> tuple[Any, ...]:
    raw = pydantic_core.from_json(body)
    p = subject.split(".")
    is_request = p[7] == "cmd"
    data, type_ = raw["data"], raw["type"]
    return (
        int(p[2]), seq, datetime.fromisoformat(raw["recorded_at"]).replace(tzinfo=None), type_,
        type_.partition(".")[0] if is_request else p[7], p[3], p[4],
        raw["attempt"], p[5], p[6], raw["epoch"], raw["ordinal"],
        raw["event_id"], raw.get("causation_id"), p[9] if is_request else None, p[8] if is_request else None,
        data.get("request_id"), json.dumps(data),
    )  # fmt: skip


async def _publish(admin: NatsBus, events: list[Event]) -> None:
    for n, (subject, body) in enumerate(events):
        await admin.client.send(subject, body)
        if n % 500 == 499:
            await admin.client.flush()
    await admin.client.flush()


async def _stored(admin: NatsBus, count: int) -> None:
    while int((await admin.api("STREAM.INFO.GYM_EVT_0"))["state"]["last_seq"]) < count:
        await asyncio.sleep(0.05)


def _position(projector: Projector) -> int:
    return projector.position.get(0, 0)


async def _catch_up(address: BusAddress, admin: NatsBus, data_dir: Path, events: list[Event]) -> tuple[float, float]:
    """Return events a second from nothing, and the median lag in seconds while 2,000 a second arrive."""
    await _publish(admin, events)
    await _stored(admin, len(events))
    async with connect(address.url, "projector", address.passwords["projector"]) as bus:
        projector = Projector(bus, data_dir, "bench")
        began = time.perf_counter()
        task = asyncio.create_task(projector.run())
        while _position(projector) < len(events):
            await asyncio.sleep(0.01)
        rate = len(events) / (time.perf_counter() - began)
        await asyncio.sleep(3)
        lag = await _lag(admin, projector, len(events))
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
    return rate, lag


async def _lag(admin: NatsBus, projector: Projector, at: int) -> float:
    """Return the median time from sending an event to its row being committed."""
    events = synthetic(int(LIVE_PER_S * LIVE_S), "live")
    sent: list[float] = []
    lags: list[float] = []
    began, seen = time.perf_counter(), at
    while seen < at + len(events):
        now = time.perf_counter()
        due = min(len(events), int((now - began) * LIVE_PER_S))
        for subject, body in events[len(sent) : due]:
            await admin.client.send(subject, body)
            sent.append(now)
        position = _position(projector)
        if position > seen:
            lags += [now - moment for moment in sent[seen - at : position - at]]
            seen = position
        await asyncio.sleep(0.005)
    return median(lags)


async def _measure(events: int) -> dict[str, float]:
    with tempfile.TemporaryDirectory() as folder:
        data_dir = Path(folder)
        made = synthetic(events, "bench")
        blobs = DirectoryBlobs(data_dir / "blobs")
        for content in finished_log(40, 2)[1]._content.values():
            blobs.put(content)
        server = EmbeddedServer(data_dir / "bus")
        address = server.ensure()
        try:
            async with connect(address.url, "admin", address.passwords["admin"]) as admin:
                await provision(admin, shards=1, max_bytes=8 * 1024**3, ack_wait_s=10)
                rate, lag = await _catch_up(address, admin, data_dir, made)
        finally:
            server.stop()
        plain = bare(data_dir / "bare.duckdb", made)
    return {
        "projector_events_per_s": round(rate),
        "projector_bare_events_per_s": round(plain),
        "projector_ratio": round(rate / plain, 3),
        "projector_lag_s": round(lag, 3),
    }


def measure(events: int) -> dict[str, float]:
    """Return `projector_events_per_s`, `projector_ratio` (to bare), `projector_lag_s` (median, at 2,000 a second)."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
    return uvloop.run(_measure(events))


if __name__ == "__main__":
    print(measure(100_000))
