"""Claims and appends: the one rule by which every event exists once and every aggregate has one writer.

Every append is conditional on the aggregate's last sequence. After a lost acknowledgement the retry is refused too, so the last event
is read back: the same event id under the same epoch is success; a foreign claim means `Fenced`.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Final

import structlog

from gym_bus import boundary
from gym_bus.bus import Bus, Conflict, Stored
from gym_bus.clock import Clock
from gym_bus.codec import Codec, Head
from gym_bus.errors import BusUnavailable, Corrupt, Fenced, Retryable, StoreFull
from gym_bus.redaction import MASK
from gym_bus.subjects import ANY, CLAIM, SNAPSHOT, AggregateId, event_subject, request_subject
from schemas.base import Event
from schemas.envelope import Envelope
from schemas.events import Claimed, Snapshot
from schemas.ids import digest_id

log = structlog.get_logger(__name__)

BACKOFF_MIN_S: Final = 0.05
BACKOFF_MAX_S: Final = 2.0
CLAIM_TRIES: Final = 8


@dataclass(frozen=True, slots=True)
class Draft:
    """An event that has been decided and not yet been stored.

    `cause` is the id of what led to it; `tag` tells apart several events of one type with one cause. `place` is set for requests.
    """

    data: Event
    cause: str | None
    tag: str = ""
    place: str = ANY


@dataclass(slots=True)
class Writer:
    """The right to write one aggregate: its epoch, where its tail is, and how many events it has."""

    aggregate: AggregateId
    attempt: int
    epoch: int
    last_sequence: int
    ordinal: int
    snapshot_ordinal: int = 0


@dataclass(frozen=True, slots=True)
class Tail:
    """Where an aggregate ends: its last sequence, and how many events it has."""

    sequence: int
    ordinal: int


NEW: Final = Tail(0, 0)


class Held(Retryable):
    """The aggregate is claimed by a worker that still lives: leave the request to it."""

    def __init__(self, owner: str, free_in_s: float | None = None) -> None:
        """Name the owner's incarnation, and how long it would have to stay silent to lose the aggregate, if that is known."""
        super().__init__(f"held by {owner}")
        self.owner = owner
        self.free_in_s = free_in_s


class EventLog:
    """The log as one kind of actor in one incarnation of a host sees it."""

    def __init__(self, bus: Bus, codec: Codec, clock: Clock, *, worker: str, patience_s: float) -> None:
        """Write as `worker` (host and boot id); keep trying an append for `patience_s` when the bus is away or full."""
        self.bus = bus
        self.codec = codec
        self.worker = worker
        self._clock = clock

        self._patience_s = patience_s
        self.on_store_full: Callable[[], None] = lambda: None

    def decode(self, stored: Stored) -> Envelope:
        """Return the event of stored bytes; raises `Undecodable`."""
        return self.codec.decode(stored.subject, stored.body, stored.sequence)

    async def read(self, pattern: str, after: int = 0, *, latest: bool = False) -> AsyncIterator[Envelope]:
        """Yield the events under `pattern` above `after`; with `latest` only the newest of each subject."""
        async for stored in self.bus.read(pattern, after=after, latest=latest):
            yield self.decode(stored)

    async def last(self, pattern: str) -> Envelope | None:
        """Return the newest event under `pattern`."""
        stored = await self.bus.last(pattern)
        return self.decode(stored) if stored else None

    async def claim(
        self, aggregate: AggregateId, attempt: int, request_id: str | None, after: Tail = NEW
    ) -> Writer | None:
        """Become the writer of `aggregate` if `after` is its tail; None if it is not.

        Claiming what is new (the default) costs one append and no read. Raises the last `Retryable` if the bus stays away.
        """
        claimed = Claimed(worker=self.worker, nonce=secrets.token_hex(4), request_id=request_id)
        draft = Draft(claimed, request_id, f"{self.worker}/{claimed.nonce}")
        writer = Writer(aggregate, attempt, 0, after.sequence, after.ordinal)
        head = self._head(writer, after.ordinal, draft)
        try:
            subject = event_subject(aggregate, CLAIM)
            sequence, _ = await self._store(writer, subject, self.codec.encode(head, claimed), head.event_id)
        except (Fenced, Corrupt):
            return None
        boundary.reach(aggregate.actor, "claimed")
        return Writer(aggregate, attempt, sequence, sequence, after.ordinal)

    async def claim_over(
        self,
        aggregate: AggregateId,
        attempt: int,
        request_id: str | None,
        is_alive: Callable[[str], bool] | None = None,
    ) -> Writer:
        """Become the writer of `aggregate`, whoever had it: because its parent aggregate is ours, or unless that worker `is_alive`.

        Raises `Held` if it is, `BusUnavailable`.
        """
        for _ in range(CLAIM_TRIES):
            tail = await self.last(f"{aggregate.prefix}.>")
            if is_alive and tail:
                owner = await self.last(event_subject(aggregate, CLAIM))
                if owner and isinstance(owner.data, Claimed) and is_alive(owner.data.worker):
                    raise Held(owner.data.worker)
            after = Tail(tail.sequence, tail.ordinal) if tail else NEW
            if writer := await self.claim(aggregate, attempt, request_id, after):
                return writer
        msg = f"{aggregate.prefix} is contended: {CLAIM_TRIES} claims were overtaken"
        raise BusUnavailable(msg)

    async def append(self, writer: Writer, draft: Draft) -> Envelope:
        """Store one event and return it as it is stored (which may be an earlier try's body).

        Raises `Fenced` when another worker has claimed the aggregate, `Corrupt` when the tail is not explained by that, and the last
        `Retryable` when the bus stayed away for longer than the patience.
        """
        aggregate = writer.aggregate
        is_snapshot = isinstance(draft.data, Snapshot)
        ordinal = writer.ordinal + (0 if is_snapshot else 1)
        head = self._head(writer, ordinal, draft)
        if is_snapshot:
            subject = event_subject(aggregate, SNAPSHOT)
        elif draft.data.TO is not None:
            subject = request_subject(aggregate, draft.data.TO, draft.place)
        else:
            subject = event_subject(aggregate, draft.data.subject_kind())
        boundary.reach(aggregate.actor, "before_append")
        encoded = self.codec.encode(head, draft.data)
        sequence, other = await self._store(writer, subject, encoded, head.event_id)
        # What goes on in memory is what a takeover would fold: another try's body, and nothing that was masked.
        body = other or (encoded if MASK in encoded else None)
        stored = self.codec.decode(subject, body, sequence) if body else _stored(writer, head, draft, sequence)
        writer.last_sequence, writer.ordinal = sequence, ordinal
        if is_snapshot:
            writer.snapshot_ordinal = ordinal
        boundary.reach(aggregate.actor, "appended")
        return stored

    async def append_alone(self, aggregate: AggregateId, attempt: int, draft: Draft) -> Envelope:
        """Store the only event of an aggregate that needs no claim; storing it again returns the first one."""
        writer = Writer(aggregate, attempt, 0, 0, 0)
        return await self.append(writer, draft)

    def _head(self, writer: Writer, ordinal: int, draft: Draft) -> Head:
        where = writer.aggregate
        event_id = digest_id(
            where.run_id, where.rollout_id, where.actor, where.key, draft.cause or "", draft.data.TYPE, draft.tag
        )
        now = self._clock.now()
        stored_now = now.replace(microsecond=now.microsecond // 1000 * 1000)  # what the stored bytes hold
        return Head(event_id, writer.attempt, writer.epoch, ordinal, draft.cause, stored_now)

    async def _store(self, writer: Writer, subject: str, body: bytes, event_id: str) -> tuple[int, bytes | None]:
        """Append the same bytes until they are stored; return the sequence, and the stored body if it is another try's."""
        backoff, deadline = BACKOFF_MIN_S, self._clock.monotonic() + self._patience_s
        while True:
            try:
                prefix = writer.aggregate.prefix
                return await self.bus.append(subject, body, fence=prefix, expected=writer.last_sequence), None
            except Conflict:
                try:
                    tail = await self.bus.last(f"{writer.aggregate.prefix}.>")
                except Retryable:
                    await asyncio.sleep(backoff)
                    backoff = min(backoff * 2, BACKOFF_MAX_S)
                    continue
                if tail is None and writer.last_sequence:
                    msg = f"{writer.aggregate.prefix} is gone: the store is older than what it has acknowledged"
                    raise Corrupt(msg) from None
                if tail and (found := self._read_back(writer, tail, event_id)):
                    return found
                if self._clock.monotonic() > deadline:
                    msg = f"{subject} was refused again and again without another event there"
                    raise BusUnavailable(msg) from None
            except Retryable as error:
                if isinstance(error, StoreFull):
                    self.on_store_full()
                if self._clock.monotonic() > deadline:
                    raise
                log.warning("append_delayed", subject=subject, reason=str(error), wait_s=backoff)
            await asyncio.sleep(backoff)
            backoff = min(backoff * 2, BACKOFF_MAX_S)

    def _read_back(self, writer: Writer, tail: Stored, event_id: str) -> tuple[int, bytes] | None:
        """Explain a refused append by the aggregate's last event; None means the refusal has passed."""
        if tail.sequence == writer.last_sequence:
            return None
        envelope = self.decode(tail)
        if envelope.event_id == event_id and envelope.epoch == writer.epoch:
            return tail.sequence, tail.body
        is_foreign_claim = isinstance(envelope.data, Claimed) and envelope.sequence > writer.epoch
        if is_foreign_claim or envelope.epoch > writer.epoch:
            msg = f"{writer.aggregate.prefix} is written by another worker since {tail.sequence}"
            raise Fenced(msg)
        if envelope.epoch == 0 and writer.epoch == 0:
            msg = f"{writer.aggregate.prefix} holds another event already ({envelope.type})"
            raise Fenced(msg)
        msg = (
            f"{writer.aggregate.prefix}: expected {writer.last_sequence} at the tail and found {envelope.type} at {tail.sequence} "
            f"of the same epoch {writer.epoch}: two writers share one claim"
        )
        raise Corrupt(msg)


def _stored(writer: Writer, head: Head, draft: Draft, sequence: int) -> Envelope:
    """Return the event as it is stored, without reading it back."""
    where = writer.aggregate
    return Envelope.unchecked(
        event_id=head.event_id,
        type=draft.data.TYPE,
        run_id=where.run_id,
        rollout_id=where.rollout_id,
        attempt=head.attempt,
        actor=where.actor,
        key=where.key,
        epoch=head.epoch,
        ordinal=head.ordinal,
        causation_id=head.causation_id,
        recorded_at=head.recorded_at,
        data=draft.data,
        place=None if draft.data.TO is None else draft.place,
        sequence=sequence,
    )
