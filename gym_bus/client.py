"""What anyone may ask of gym-bus over the bus: a run, its end, its continuation, rows of the projection, its results.

Everything goes through the bus user `cli`: requests are events like all others, questions go to the projector and are
not stored.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Final

import pydantic_core

from gym_bus.blobs import DirectoryBlobs
from gym_bus.clock import SystemClock
from gym_bus.codec import Codec
from gym_bus.errors import Fenced, Permanent, Retryable
from gym_bus.event_log import Draft, EventLog
from gym_bus.nats_bus import NatsBus, connect
from gym_bus.redaction import Redactor
from gym_bus.secrets_store import SecretsStore
from gym_bus.server import BusAddress, EmbeddedServer
from gym_bus.settings import Settings
from gym_bus.subjects import ANY, CONTROL, AggregateId, aggregate, parse_event
from gym_bus.topology import event_stream
from schemas.config import RunConfig
from schemas.envelope import Envelope
from schemas.events import RunCancelRequested, RunRequested, RunResumeRequested
from schemas.events.cli import REDRIVEN
from schemas.ids import RUN_LEVEL

USER: Final = "cli"
PATIENCE_S: Final = 20.0
QUERY_TIMEOUT_S: Final = 10.0
EXPORT_SAID_WITHIN_S: Final = 10.0
MAX_ROWS: Final = 10_000


class ProjectorSilent(Retryable):
    """Nobody answers questions: the projector does not run, or is busy. It says nothing about what there is."""


class QueryFailed(Permanent):
    """The projector refused a question: bad SQL, or more than it may cost."""


@dataclass(frozen=True, slots=True)
class Answer:
    """Rows of the projection; `cursor` is how far it has read each shard, `lag` how many events are not in it yet."""

    columns: list[str]
    types: list[str]
    rows: list[list[Any]]
    truncated: bool = False
    cursor: Mapping[str, int] | None = None
    lag: int | None = None

    def dicts(self) -> list[dict[str, Any]]:
        """Return the rows with their columns' names."""
        return [dict(zip(self.columns, row, strict=True)) for row in self.rows]


def find_address(settings: Settings) -> BusAddress | None:
    """Return where the bus is, None if the embedded one does not run."""
    if settings.bus_url:
        return BusAddress(settings.bus_url, {USER: settings.bus_password or ""})
    return EmbeddedServer(settings.data_dir / "bus").address()


@asynccontextmanager
async def connect_cli(settings: Settings) -> AsyncGenerator[NatsBus]:
    """Connect as `cli`; raises `Retryable` if no bus runs or it does not answer."""
    address = find_address(settings)
    if address is None:
        msg = f"no bus runs under {settings.data_dir}: `gym-bus bus up` starts it"
        raise Retryable(msg)
    async with connect(address.url, USER, address.passwords.get(USER)) as bus:
        yield bus


def open_log(bus: NatsBus, settings: Settings) -> EventLog:
    """Return the log as the command line sees it; it masks every secret of the data directory."""
    redactor = Redactor(SecretsStore(settings.data_dir / "secrets").all_values())
    codec = Codec(DirectoryBlobs(settings.data_dir / "blobs"), redactor)
    return EventLog(bus, codec, SystemClock(), worker=USER, patience_s=PATIENCE_S)


def start_of(run_id: str, shards: int = 1) -> AggregateId:
    """Return the aggregate that holds the request for a run, and nothing else."""
    return aggregate(run_id, RUN_LEVEL, USER, "start", shards)


async def find_request(log: EventLog, run_id: str) -> Envelope | None:
    """Return the request that began a run, None if there is no such run."""
    return await log.last(f"{start_of(run_id).prefix}.>")


async def request_run(
    log: EventLog, *, run_id: str, config: RunConfig, digest: str, output_dir: str, versions: Mapping[str, str]
) -> Envelope:
    """Ask for a run; asking again for the same changes nothing. Raises `Permanent` if the name is taken."""
    data = RunRequested(config=config, config_digest=digest, output_dir=output_dir, versions=dict(versions))
    try:
        stored = await log.append_alone(start_of(run_id, config.shards), 1, Draft(data, None, place=ANY))
    except Fenced as error:
        msg = f"run {run_id} exists and began otherwise ({error}): choose another --run-id"
        raise Permanent(msg) from error
    if isinstance(stored.data, RunRequested) and stored.data.config_digest != digest:
        msg = f"run {run_id} exists with another configuration ({stored.data.config_digest}): choose another --run-id"
        raise Permanent(msg)
    return stored


async def request_cancel(log: EventLog, run_id: str, reason: str, shards: int = 1) -> Envelope:
    """Ask to end a run early."""
    where = aggregate(run_id, RUN_LEVEL, USER, f"cancel-{secrets.token_hex(6)}", shards)
    return await log.append_alone(where, 1, Draft(RunCancelRequested(reason=reason), None, place=CONTROL))


async def request_resume(log: EventLog, run_id: str, digest: str, shards: int = 1) -> Envelope:
    """Ask a paused run to go on."""
    where = aggregate(run_id, RUN_LEVEL, USER, f"resume-{secrets.token_hex(6)}", shards)
    return await log.append_alone(where, 1, Draft(RunResumeRequested(config_digest=digest), None, place=CONTROL))


async def redrive(log: EventLog, original: Envelope, subject: str) -> Envelope:
    """Ask that the parked request `original`, stored under `subject`, be tried again where it was addressed."""
    parsed = parse_event(subject)
    cls = REDRIVEN.get(parsed.to or "")
    if cls is None:
        msg = f"{subject} is no request to a worker: there is nothing to try again"
        raise Permanent(msg)
    data = cls(original_subject=subject, original_sequence=original.sequence, request_id=original.event_id)
    where = parsed.aggregate.sibling(USER, f"redrive-{original.sequence}-{secrets.token_hex(4)}")
    return await log.append_alone(where, original.attempt, Draft(data, original.event_id, place=parsed.place or ANY))


async def query(
    bus: NatsBus,
    sql: str,
    parameters: Sequence[Any] = (),
    *,
    max_rows: int = MAX_ROWS,
    after_seq: Mapping[str, int] | None = None,
    timeout_s: float = QUERY_TIMEOUT_S,
) -> Answer:
    """Return rows; with `after_seq`, of a projector that has read that far if it does so within 5 s.

    Raises `ProjectorSilent`, `QueryFailed`.
    """
    request = {
        "sql": sql,
        "parameters": list(parameters),
        "max_rows": max_rows,
        "after_seq": after_seq,
        "timeout_s": timeout_s,
    }
    answer = await _ask(bus, "gym.query", request, timeout_s + 2)
    if "error" in answer:
        msg = f"the projector refused: {answer['error']}"
        raise QueryFailed(msg)
    known = {name: answer[name] for name in Answer.__slots__ if name in answer}
    return Answer(**known)


async def log_ends(bus: NatsBus) -> dict[str, int] | None:
    """Return where the log ends now, None if the bus does not say."""
    try:
        info = await bus.api(f"STREAM.INFO.{event_stream(0)}")
        return {"0": int(info["state"]["last_seq"])}
    except (Retryable, KeyError):
        return None


async def export(bus: NatsBus, run_id: str, after_seq: Mapping[str, int]) -> dict[str, str] | None:
    """Have the results of a run written; return their paths by name, None while the projector is at it: ask again.

    The results know the log up to `after_seq` (shard to sequence). Raises `ProjectorSilent`, `QueryFailed`.
    """
    answer = await _ask(bus, "gym.export", {"run_id": run_id, "after_seq": dict(after_seq)}, EXPORT_SAID_WITHIN_S)
    if "error" in answer:
        msg = f"no results of {run_id}: {answer['error']}"
        raise QueryFailed(msg)
    paths: dict[str, str] | None = answer.get("paths")
    return paths


async def _ask(bus: NatsBus, subject: str, request: dict[str, Any], timeout_s: float) -> dict[str, Any]:
    try:
        message = await bus.mailbox.ask(subject, json.dumps(request).encode(), timeout_s)
    except Retryable as error:
        msg = f"the projector does not answer within {timeout_s:.0f} s: see `gym-bus bus status`"
        raise ProjectorSilent(msg) from error
    if not message.data:
        msg = "the projector does not run: `gym-bus bus up` starts it"
        raise ProjectorSilent(msg)
    answer: dict[str, Any] = pydantic_core.from_json(message.data)
    return answer
