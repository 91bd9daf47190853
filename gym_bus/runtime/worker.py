"""Taking requests of one kind: which drive gets what, what is kept alive, and what is set aside.

A worker that is handed what it already holds keeps the newer delivery (after a server restart the older one's acknowledgement is never
answered) and does nothing else. What it has answered lately it acknowledges without a look at the log.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Coroutine, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Final

import structlog

from gym_bus import boundary
from gym_bus.bus import Delivery, Slots, Stored
from gym_bus.codec import Undecodable
from gym_bus.errors import Corrupt, Fenced, GymBusError, Retryable
from gym_bus.event_log import Draft, Held
from gym_bus.runtime.drive import REREAD, Drive, Shell
from gym_bus.runtime.presence import Presence
from gym_bus.settings import Settings
from gym_bus.subjects import AggregateId, event_subject, parse_event, run_aggregate
from schemas.base import Event
from schemas.envelope import Envelope
from schemas.events import RequestParked
from schemas.events.cli import RequestRedriven
from schemas.ids import RUN_LEVEL
from schemas.values import Failure

log = structlog.get_logger(__name__)

ANSWERED_KEPT: Final = 20_000
RUN_FACTS_KEPT: Final = 1_000
CLOCKS_DIFFER: Final = timedelta(seconds=10)
"""By how much the clocks of hosts may differ: what was asked for at about the time a worker began may be older than that."""
SWEEP_S: Final = 0.25
REREAD_MAX_S: Final = 30.0
REREADS_A_SWEEP: Final = 16
MakeDrive = Callable[[Shell, AggregateId, Envelope], Drive[Any]]


@dataclass(frozen=True, slots=True)
class Role:
    """What makes a worker one of its kind.

    `places` are where it takes requests; `hears` the events of other kinds that its drives wait for, as (kind, event) pairs; `target`
    says which aggregate a request is about; `make` builds its drive. With `slot_until_done` the request that opens an aggregate
    keeps its slot until the drive ends (a machine takes room for as long as it lives), else until it is answered. `beside` goes on
    while the worker runs, and is cancelled with it.
    """

    kind: str
    hears: Sequence[tuple[str, type[Event]]]
    hears_run: Sequence[tuple[str, type[Event]]]
    target: Callable[[AggregateId, Envelope], AggregateId]
    make: MakeDrive
    slot_until_done: bool = False
    beside: Callable[[], Coroutine[Any, Any, None]] | None = None


class Redriven:
    """The delivery of an order to try again, in the shape of the original request."""

    def __init__(self, stored: Stored, order: Delivery) -> None:
        """Hand out `stored`; what is said of it is said of the order."""
        self.stored = stored
        self.ack = order.ack
        self.in_progress = order.in_progress
        self.later = order.later


@dataclass(slots=True)
class _Holding:
    """A request in hand: since when its redelivery is held off."""

    delivery: Delivery
    slots: Slots
    kept_alive_at: float
    drive: Drive[Any] | None = None


@dataclass
class Worker:
    """One kind of actor in this process."""

    role: Role
    shell: Shell
    presence: Presence
    settings: Settings
    drives: dict[AggregateId, Drive[Any]] = field(default_factory=dict)
    _by_rollout: dict[tuple[str, str], list[Drive[Any]]] = field(default_factory=dict)
    _by_run: dict[str, dict[AggregateId, None]] = field(default_factory=dict)
    _holding: dict[str, _Holding] = field(default_factory=dict)
    _answered: OrderedDict[str, None] = field(default_factory=OrderedDict)
    _group: asyncio.TaskGroup | None = None
    _is_stopped: bool = False
    _run_facts: OrderedDict[str, Envelope] = field(default_factory=OrderedDict)
    _hears_since: datetime | None = None
    _fetching: list[asyncio.Task[None]] = field(default_factory=list)

    async def run(self, places: Sequence[tuple[str, Slots]]) -> None:
        """Take requests at `places` until cancelled; the drives go on until they are done or the worker is cancelled."""
        bus = self.shell.log.bus
        async with AsyncExitStack() as stack, asyncio.TaskGroup() as group:
            self._group = group
            for kind, event in self.role.hears:
                await stack.enter_async_context(
                    bus.listen(f"gym.live.*.*.*.{kind}.*.{event.subject_kind()}", self._on_fact)
                )
            for kind, event in self.role.hears_run:
                pattern = f"gym.live.*.*.{RUN_LEVEL}.{kind}.*.{event.subject_kind()}"
                await stack.enter_async_context(bus.listen(pattern, self._on_run_fact))
            self._hears_since = self.shell.clock.now()
            for place, slots in places:
                self._fetching.append(group.create_task(bus.work(self.role.kind, place, slots, self.taker(slots))))
            group.create_task(self._sweep())
            if self.role.beside:
                group.create_task(self.role.beside())

    def stop(self) -> None:
        """Take nothing any more: the worker is about to be cancelled."""
        self._is_stopped = True

    async def drain(self, timeout_s: float) -> None:
        """Take nothing new and wait until what is in hand is over, at most `timeout_s`."""
        for task in self._fetching:
            task.cancel()
        deadline = self.shell.clock.monotonic() + timeout_s
        while self.drives and self.shell.clock.monotonic() < deadline:  # noqa: ASYNC110  once in a life
            await asyncio.sleep(0.05)

    def taker(self, slots: Slots) -> Callable[[Delivery], None]:
        """Return what takes deliveries that have used one of `slots`."""

        def take(delivery: Delivery) -> None:
            self.take(delivery, slots)

        return take

    def take(self, delivery: Delivery, slots: Slots) -> None:
        """Give a request to its drive."""
        stored = delivery.stored
        if self._is_stopped:  # what arrives now is handed out again after `ack_wait`
            slots.give()
            return
        try:
            request = self.shell.log.decode(stored)
        except (Undecodable, Corrupt) as error:  # Corrupt: its blob is missing or differs
            slots.give()
            self._spawn(self._park(stored, delivery, error))
            return
        if isinstance(request.data, RequestRedriven):
            self._spawn(self._redrive(request.data, delivery, slots))
            return
        boundary.reach(self.role.kind, "received")
        held = self._holding.get(request.event_id)
        if held:
            held.delivery = delivery
            if held.drive and request.event_id in held.drive.deliveries:
                held.drive.deliveries[request.event_id] = delivery
            slots.give()
            return
        if request.event_id in self._answered:
            slots.give()
            delivery.ack()
            return
        self._accept(request, delivery, slots)

    async def _redrive(self, wanted: RequestRedriven, delivery: Delivery, slots: Slots) -> None:
        """Take a request out of the log again that had been set aside."""
        async for stored in self.shell.log.bus.read(wanted.original_subject, after=wanted.original_sequence - 1):
            if stored.sequence == wanted.original_sequence:
                again = Redriven(stored, delivery)
                try:
                    request = self.shell.log.decode(stored)
                except Undecodable as error:
                    log.error("redrive_refused", sequence=stored.sequence, reason=str(error))  # noqa: TRY400  the data's fault
                else:
                    self._answered.pop(request.event_id, None)
                    self._accept(request, again, slots)
                    return
            break
        slots.give()
        delivery.ack()

    def _accept(self, request: Envelope, delivery: Delivery, slots: Slots) -> None:
        target = self.role.target(parse_event(delivery.stored.subject).aggregate, request)
        holding = _Holding(delivery, slots, self.shell.clock.monotonic())
        self._holding[request.event_id] = holding
        drive = self.drives.get(target)
        if drive is not None:
            holding.drive = drive
            drive.deliveries[request.event_id] = delivery
            drive.offer(request)
            return
        drive = self.role.make(self.shell, target, request)
        drive.may_have_missed = self._hears_since is None or request.recorded_at <= self._hears_since + CLOCKS_DIFFER
        holding.drive = drive
        drive.is_redriven = isinstance(delivery, Redriven)
        drive.deliveries[request.event_id] = delivery
        self.start(drive)

    def start(self, drive: Drive[Any]) -> None:
        """Run a drive in the background."""
        drive.on_answered = self._on_answered
        self._register(drive)
        if fact := self._run_facts.get(drive.aggregate.run_id):
            drive.offer(fact)
        self._spawn(self._run(drive))

    async def _catch_up(self, drive: Drive[Any]) -> None:
        """Tell a drive what was said of its whole run before this worker could hear it."""
        if drive.aggregate.run_id in self._run_facts:
            return
        for _, kind in self.role.hears_run:
            run = run_aggregate(drive.aggregate.run_id)
            if event := await self.shell.log.last(event_subject(run, kind.subject_kind())):
                drive.offer(event)

    def _register(self, drive: Drive[Any]) -> None:
        self.drives[drive.aggregate] = drive
        self._by_rollout.setdefault(drive.aggregate.rollout, []).append(drive)
        self._by_run.setdefault(drive.aggregate.run_id, {})[drive.aggregate] = None

    def _unregister(self, drive: Drive[Any]) -> None:
        if self.drives.get(drive.aggregate) is drive:
            del self.drives[drive.aggregate]
        siblings = self._by_rollout.get(drive.aggregate.rollout, [])
        if drive in siblings:
            siblings.remove(drive)
        if not siblings:
            self._by_rollout.pop(drive.aggregate.rollout, None)
        same_run = self._by_run.get(drive.aggregate.run_id, {})
        same_run.pop(drive.aggregate, None)
        if not same_run:
            self._by_run.pop(drive.aggregate.run_id, None)

    async def _run(self, drive: Drive[Any]) -> None:
        held_back: float | None = 0.05
        try:
            try:
                if drive.may_have_missed:
                    await self._catch_up(drive)
                await drive.run(self._tasks())
            except Exception:
                drive.on_broken()
                raise
        except Fenced as error:
            held_back = None
            log.info("fenced", kind=self.role.kind, aggregate=drive.aggregate.prefix, reason=str(error))
        except Held as error:
            held_back = self.presence.remaining_s(error.owner)
        except Retryable as error:
            held_back = 1.0
            log.warning("drive_delayed", aggregate=drive.aggregate.prefix, reason=str(error))
        except GymBusError as error:
            log.exception("drive_broke", aggregate=drive.aggregate.prefix)
            await self._give_up(drive, error)
        except (
            Exception
        ) as error:  # a machine that raises is a defect: its requests are set aside, its neighbours go on
            log.exception("drive_broke", aggregate=drive.aggregate.prefix)
            await self._give_up(drive, error)
        finally:
            self._unregister(drive)
            for event_id in list(drive.deliveries):
                self._let_go(event_id, held_back)
            for slots in drive.kept_slots:
                slots.give()
            drive.on_over()

    def _let_go(self, event_id: str, held_back: float | None) -> None:
        holding = self._holding.pop(event_id, None)
        if holding:
            holding.slots.give()
            if held_back is not None:
                holding.delivery.later(held_back)

    def _on_answered(self, request_id: str) -> None:
        self._answered[request_id] = None
        if len(self._answered) > ANSWERED_KEPT:
            self._answered.popitem(last=False)
        if holding := self._holding.pop(request_id, None):
            if self.role.slot_until_done and holding.drive and holding.drive.opener_id == request_id:
                holding.drive.kept_slots.append(holding.slots)
            else:
                holding.slots.give()

    async def _give_up(self, drive: Drive[Any], error: Exception) -> None:
        for event_id, delivery in list(drive.deliveries.items()):
            await self._park(delivery.stored, delivery, error)
            self._on_answered(event_id)

    async def _park(self, stored: Stored, delivery: Delivery, error: Exception) -> None:
        """Set a request aside that nobody could finish: an event of its own, which also answers whoever asked."""
        asked = parse_event(stored.subject).aggregate
        raw_type, request_id, attempt = "unknown", f"sequence-{stored.sequence}", 1
        try:
            raw = self.shell.log.codec.raw(stored.body)
            raw_type, request_id, attempt = (
                raw["type"],
                str(raw.get("event_id", request_id)),
                int(raw.get("attempt", 1)),
            )
        except (Undecodable, Corrupt, ValueError):
            pass
        failure = Failure(kind="parked", message=f"{type(error).__name__}: {error}"[:2000], terminal=True)
        parked = RequestParked(request_id=request_id, request_type=raw_type, tries=1, failure=failure)
        where = asked.sibling(self.role.kind, f"p{stored.sequence}")
        await self.shell.log.append_alone(where, attempt, Draft(parked, request_id))
        log.error("request_parked", request=request_id, type=raw_type, sequence=stored.sequence, reason=failure.message)
        delivery.ack()

    def _tasks(self) -> asyncio.TaskGroup:
        if self._group is None:
            msg = "a worker takes requests only while it runs"
            raise RuntimeError(msg)
        return self._group

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        self._tasks().create_task(work)

    # -- facts -----------------------------------------------------------------------------------------------------------------

    def _on_fact(self, stored: Stored) -> None:
        drives = self._by_rollout.get(tuple(stored.subject.split(".", 5)[3:5]))  # type: ignore[arg-type]
        if drives:
            self._hand_out(stored, drives)

    def _on_run_fact(self, stored: Stored) -> None:
        """Hand it to the run's drives, and keep it for those that start later."""
        try:
            event = self.shell.log.decode(stored)
        except Undecodable as error:
            log.warning("fact_undecodable", subject=stored.subject, reason=str(error))
            return
        self._run_facts[event.run_id] = event
        if len(self._run_facts) > RUN_FACTS_KEPT:
            self._run_facts.popitem(last=False)
        for aggregate in self._by_run.get(event.run_id, {}):
            self.drives[aggregate].offer(event)

    def _hand_out(self, stored: Stored, drives: Sequence[Drive[Any]]) -> None:
        try:
            event = self.shell.log.decode(stored)
        except Undecodable as error:
            log.warning("fact_undecodable", subject=stored.subject, reason=str(error))
            return
        for drive in list(drives):
            drive.offer(event)

    async def _sweep(self) -> None:
        """Keep long requests alive, and read the log for drives that have waited long for an answer."""
        while True:
            await asyncio.sleep(SWEEP_S)
            now = self.shell.clock.monotonic()
            for holding in self._holding.values():
                if now - holding.kept_alive_at > self.settings.ack_wait_s / 3:
                    holding.kept_alive_at = now
                    holding.delivery.in_progress()
            self._reread_some(now)

    def _reread_some(self, now: float) -> None:
        """Make those read the log who have waited longest; few at a time, so that a slow log is not made slower."""
        late = []
        for drive in self.drives.values():
            if drive.waiting_since is not None:
                patience_s = min(self.settings.reread_s * 2.0**drive.rereads, REREAD_MAX_S)
                if now - drive.waiting_since > patience_s:
                    late.append(drive)
        late.sort(key=lambda drive: drive.waiting_since or 0.0)
        for drive in late[:REREADS_A_SWEEP]:
            drive.waiting_since = now
            drive.rereads += 1
            drive.offer(REREAD)

    def reread_all(self) -> None:
        """Make every drive read the log: the bus was away."""
        for drive in list(self.drives.values()):
            drive.offer(REREAD)
