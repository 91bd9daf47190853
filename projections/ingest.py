"""From stored bytes to rows: one transaction a batch, the cursor in it.

Python touches an event only to hand its subject and bytes over; DuckDB takes them apart in one vectorised pass
(`sql/stage.sql`). What does not fit that pass goes through the codec, one by one: blobs are put back, old versions
lifted, and what is no event at all is quarantined, with its bytes and the reason, while everything around it goes in.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import duckdb
import pydantic_core
import structlog

from gym_bus import boundary
from gym_bus.blobs import Blobs
from gym_bus.codec import Codec
from gym_bus.errors import GymBusError
from projections import queries
from projections.store import Connection, cursors
from schemas.envelope import Envelope
from schemas.values import BlobRef

log = structlog.get_logger(__name__)

Item = tuple[int, str, bytes]
"""A stored event: its sequence, its subject, its bytes."""

_INCOMING: Final = (
    "create or replace temp table incoming (shard integer, seq bigint, subject varchar, body varchar, checked boolean)"
)
_QUARANTINED_MAX: Final = 100_000
_SLOW_BYTES: Final = 4 * 1024 * 1024
"""How much of what is kept in blobs goes through the pass at a time: JSON of many MB takes DuckDB many times as much."""


class Gap(GymBusError):
    """Events before this batch have not been taken in: read again from the cursor."""


@dataclass(frozen=True, slots=True)
class Batch:
    """Events of one shard; all that the log holds between `after` and the last of them is here."""

    shard: int
    after: int
    items: Sequence[Item]
    generation: str = ""


@dataclass(slots=True)
class Applied:
    """What became of a batch: rows taken in, events set aside, runs that ended in it."""

    events: int = 0
    quarantined: int = 0
    finished_runs: list[str] = field(default_factory=list)


class Ingest:
    """Takes batches in; for one thread."""

    def __init__(self, connection: Connection, blobs: Blobs) -> None:
        """Write to `connection`; find large data and plans in `blobs`."""
        self._connection = connection
        self._blobs = blobs
        self._codec = Codec(blobs)
        self.cursor = {shard: seq for shard, (seq, _) in cursors(connection).items()}
        connection.execute(_INCOMING)
        connection.execute(queries.ingest("required"))

    def apply(self, batch: Batch) -> Applied:
        """Take in what is new in `batch`, or nothing at all. Raises `Gap`, and DuckDB's errors.

        A batch that the typed tables refuse (a number that is none, a field that is missing) is taken in again with
        every event looked at, so that what is quarantined depends on the event alone and never on its neighbours. One
        that takes more memory than there is is taken in by halves; a single event that does is quarantined.
        """
        try:
            return self._apply(batch, is_doubted=False)
        except duckdb.OutOfMemoryException as error:
            log.warning("batch_halved", shard=batch.shard, events=len(batch.items), reason=str(error)[:500])
            return self._by_halves(batch)
        except (duckdb.DataError, duckdb.IntegrityError) as error:
            log.warning("batch_doubted", shard=batch.shard, after=batch.after, reason=str(error)[:500])
            return self._apply(batch, is_doubted=True)

    def _by_halves(self, batch: Batch) -> Applied:
        """Take in a batch that was too much at once."""
        items, half = batch.items, len(batch.items) // 2
        if half == 0:
            return self._apply(batch, is_doubted=False, is_refused=True)
        first = self.apply(Batch(batch.shard, batch.after, items[:half], batch.generation))
        second = self.apply(Batch(batch.shard, items[half - 1][0], items[half:], batch.generation))
        return Applied(
            first.events + second.events,
            first.quarantined + second.quarantined,
            [*first.finished_runs, *second.finished_runs],
        )

    def _apply(self, batch: Batch, *, is_doubted: bool, is_refused: bool = False) -> Applied:
        known = self.cursor.get(batch.shard, 0)
        if batch.after > known:
            msg = f"shard {batch.shard}: a batch starts after {batch.after}, the projection ends at {known}"
            raise Gap(msg)
        fresh = {item[0]: item for item in batch.items if item[0] > known}
        if not fresh:
            return Applied()
        last = max(fresh)
        self._connection.execute("begin")
        try:
            items = [fresh[seq] for seq in sorted(fresh)]
            take = self._refuse if is_refused else self._take_in
            applied = take(batch.shard, items, is_doubted=is_doubted)
            self._connection.execute(
                "insert or replace into projection_cursor values (?, ?, ?)", [batch.shard, last, batch.generation]
            )
            boundary.reach("projector", "before_commit")
            self._connection.execute("commit")
        except BaseException:
            self._roll_back()
            raise
        self.cursor[batch.shard] = last
        boundary.reach("projector", "committed")
        return applied

    def _roll_back(self) -> None:
        try:
            self._connection.execute("rollback")
        except duckdb.Error as error:  # the failed statement may have ended the transaction, or the database, by itself
            log.debug("rollback_refused", reason=str(error))

    def _refuse(self, shard: int, items: list[Item], *, is_doubted: bool) -> Applied:  # noqa: ARG002  as `_take_in`
        applied = Applied()
        for seq, subject, body in items:
            self._quarantine(
                shard, seq, subject, body.decode(errors="replace"), "too large for the projection", applied
            )
        return applied

    def _take_in(self, shard: int, items: list[Item], *, is_doubted: bool) -> Applied:
        applied = Applied()
        rows: list[tuple[int, int, str, str, bool]] = []
        for seq, subject, body in items:
            try:
                rows.append((shard, seq, subject, body.decode(), False))
            except UnicodeDecodeError as error:
                self._quarantine(shard, seq, subject, body.decode(errors="replace"), f"not UTF-8: {error}", applied)
        self._stage(rows, applied, is_doubted=is_doubted)
        unfit = self._unfit()
        if unfit:
            self._slowly(shard, unfit, applied)
        return applied

    def _stage(self, rows: Sequence[tuple[int, int, str, str, bool]], applied: Applied, *, is_doubted: bool) -> None:
        """Put rows through the vectorised pass and into the tables."""
        execute = self._connection.execute
        execute("delete from incoming")
        if rows:
            appender = self._connection.appender("incoming")
            appender.append_rows(rows)
            appender.flush()
        execute(queries.ingest("stage"))
        if is_doubted:
            execute(queries.ingest("doubt"))
        counts = dict(execute("select type, count(*) from staged where fit group by type").fetchall())
        if not counts:
            return
        execute(queries.ingest("insert_events"))
        for types, statement in queries.typed_inserts():
            if not types.isdisjoint(counts):
                execute(statement)
        applied.events += sum(counts.values())
        if "run_started.v1" in counts:
            self._plan()
        if "run_finished.v1" in counts:
            applied.finished_runs += [r[0] for r in execute(queries.ingest("staged_finished_runs")).fetchall()]

    def _unfit(self) -> list[tuple[int, str, str]]:
        return self._connection.execute(queries.ingest("unfit")).fetchall()

    def _slowly(self, shard: int, unfit: Sequence[tuple[int, str, str]], applied: Applied) -> None:
        """Decode one by one as the actors do, and put what is an event through the pass again."""
        again: list[tuple[int, int, str, str, bool]] = []
        size = 0
        for seq, subject, body in unfit:
            try:
                text = _normal(self._codec.decode(subject, body.encode(), seq))
            except (GymBusError, ValueError) as error:
                self._quarantine(shard, seq, subject, body, str(error), applied)
                continue
            if again and size + len(text) > _SLOW_BYTES:
                self._again(shard, again, applied)
                again, size = [], 0
            again.append((shard, seq, subject, text, True))
            size += len(text)
        if again:
            self._again(shard, again, applied)

    def _again(self, shard: int, again: Sequence[tuple[int, int, str, str, bool]], applied: Applied) -> None:
        self._stage(again, applied, is_doubted=True)
        for seq, subject, body in self._unfit():
            self._quarantine(shard, seq, subject, body, "an event by its schema, but not by the projection's", applied)

    def _quarantine(self, shard: int, seq: int, subject: str, body: str, reason: str, applied: Applied) -> None:
        applied.quarantined += 1
        log.warning("event_quarantined", shard=shard, sequence=seq, subject=subject, reason=reason[:500])
        self._connection.execute(
            "insert into quarantine values (?, ?, ?, ?, ?)",
            [shard, seq, subject, body[:_QUARANTINED_MAX], reason[:2000]],
        )

    def _plan(self) -> None:
        """Take in the tasks of the plans that the staged batch names."""
        for run_id, plan in self._connection.execute(queries.ingest("staged_plans")).fetchall():
            try:
                tasks = _tasks(self._blobs.get(BlobRef.model_validate_json(plan)))
            except (GymBusError, ValueError, LookupError, TypeError) as error:
                log.warning("plan_unreadable", run_id=run_id, reason=str(error)[:500])
                continue
            if tasks:
                appender = self._connection.appender("planned_tasks")
                appender.append_rows([(run_id, i, index, task_id) for i, (index, task_id) in enumerate(tasks)])
                appender.flush()


def _tasks(content: bytes) -> list[tuple[int, str]]:
    """Return index and id of each task of a plan's lines."""
    lines = (pydantic_core.from_json(line) for line in content.split(b"\n") if line)
    return [(int(task["index"]), str(task["input"]["task_id"])) for task in lines]


def _normal(envelope: Envelope) -> str:
    """Return the stored form of a decoded event, data in its place."""
    raw: dict[str, Any] = {
        "event_id": envelope.event_id,
        "type": envelope.type,
        "attempt": envelope.attempt,
        "epoch": envelope.epoch,
        "ordinal": envelope.ordinal,
        "causation_id": envelope.causation_id,
        "recorded_at": envelope.recorded_at,
        "data": envelope.data.model_dump(mode="json", exclude_defaults=True),
    }
    return pydantic_core.to_json(raw, exclude_none=False).decode()
