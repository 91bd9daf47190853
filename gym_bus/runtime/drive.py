"""Running one aggregate: claim it, fold it, then decide, append and act until it is done.

The loop is: append what the machine decides, start what it wants going on, wait for a fact (another actor's event, or the outcome of an
effect), fold it, again. It stops silently when it is fenced.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Generic, TypeVar

import structlog

from gym_bus import boundary
from gym_bus.bus import Delivery, Slots
from gym_bus.clock import Clock
from gym_bus.errors import BusUnavailable, Corrupt, Fenced, Retryable, TooDeep
from gym_bus.event_log import NEW, Draft, EventLog, Held, Tail, Writer
from gym_bus.runtime.machine import Alarm, AwaitAnswer, Effect, Machine, S
from gym_bus.subjects import CLAIM, SNAPSHOT, AggregateId, event_subject, rollout_pattern
from schemas.base import Answer
from schemas.envelope import Envelope
from schemas.events import Claimed, ModelCallLost, RequestParked, Snapshot, ToolCallLost
from schemas.ids import RUN_LEVEL
from schemas.values import Failure

log = structlog.get_logger(__name__)

CLAIM_TRIES: Final = 8
MESSAGE_MAX: Final = 2000

Outcome = Draft | None
"""What a handler returns: the event that states what came of it, or None if it has stated it itself."""
Handler = Callable[["Drive[Any]", Any], Awaitable[Outcome]]


@dataclass(frozen=True, slots=True)
class Shell:
    """What a drive needs of its surroundings; one for each worker."""

    kind: str
    log: EventLog
    clock: Clock
    handlers: Mapping[type[Effect], Handler]
    is_alive: Callable[[str], bool]
    max_takeovers: int
    snapshot_every: int
    sibling_logs: Mapping[str, EventLog] = field(default_factory=dict)

    def log_of(self, actor: str) -> EventLog:
        """Return the log as the bus user of `actor`, which may be another than the drive's own."""
        return self.sibling_logs.get(actor, self.log)


T = TypeVar("T")


class Interrupted(Exception):
    """The effect is no longer wanted: state what came of it and end."""


class Wake:
    """Put into an inbox: only look again (at the clock, or at the log)."""


LOOK: Final = Wake()
REREAD: Final = Wake()


@dataclass(frozen=True, slots=True)
class _Done:
    """Put into an inbox: an effect is over, with an outcome or an error."""

    effect_id: str
    outcome: Outcome = None
    error: Exception | None = None


class Drive(Generic[S]):
    """One aggregate at work in this process."""

    def __init__(
        self,
        shell: Shell,
        machine: Machine[S],
        aggregate: AggregateId,
        attempt: int,
        request: Envelope | None = None,
        begin: Callable[[], S] | None = None,
    ) -> None:
        """Prepare to work on `aggregate` because of `request`; `begin` gives the first state where no request does."""
        self.shell = shell
        self.machine = machine
        self.aggregate = aggregate
        self.attempt = attempt
        self.deliveries: dict[str, Delivery] = {}
        self.waiting_since: float | None = None
        self.rereads = 0
        self.held: Any = None
        self.kept_slots: list[Slots] = []
        self.opener_id = request.event_id if request and isinstance(request.data, machine.opened_by) else None
        self.is_redriven = False
        self.state: S
        self.writer: Writer
        self.on_answered: Callable[[str], None] = lambda _: None
        self.on_over: Callable[[], None] = lambda: None
        self.on_broken: Callable[[], None] = lambda: None
        self.opens: Callable[[Envelope], bool] = lambda _: True
        self.hears_unasked: Callable[[Any], bool] = lambda _: False
        self.looks_back: Callable[[S, Envelope], S] = lambda state, _: state
        self.takes_from_living = False
        self.may_have_missed = False
        self._request = request
        self._begin = begin
        self._inbox: asyncio.Queue[Envelope | _Done | Wake] = asyncio.Queue()
        self._siblings: dict[AggregateId, Writer] = {}
        # Nothing is decided, and no handler ended, while one is stating something that the state does not know yet.
        self._stating = asyncio.Lock()
        self._running: dict[str, asyncio.Task[None]] = {}
        self._alarms: dict[str, asyncio.TimerHandle] = {}
        self._interrupts: dict[str, Callable[[], object]] = {}
        self._interrupted: set[str] = set()
        self._asked: dict[tuple[str, str], int] = {}  # request and aspect of the answer
        self._answers: set[tuple[str, str]] = set()
        self._read_to = max(0, request.sequence - 1) if request else 0
        self._is_opener = request is None or isinstance(request.data, machine.opened_by)

    @property
    def is_open(self) -> bool:
        """Say whether it has been claimed and folded, so that there is a state to look at."""
        return hasattr(self, "state")

    # -- what others do to it --------------------------------------------------------------------------------------------------

    def offer(self, item: Envelope | Wake) -> None:
        """Hand it a fact, or make it look again."""
        self._inbox.put_nowait(item)

    async def run(self, group: asyncio.TaskGroup) -> None:
        """Work until the aggregate is done, with effects as tasks of `group`; raises `Fenced`, `Held`, `Corrupt`, `Retryable` only."""
        try:
            if await self._open():
                await self._loop(group)
        finally:
            self._stop_effects()

    # -- opening ---------------------------------------------------------------------------------------------------------------

    async def _open(self) -> bool:
        """Claim and fold; return False if there is nothing left to do for the request."""
        request_id = self._request.event_id if self._request else None
        if self._is_opener:
            writer = await self.shell.log.claim(self.aggregate, self.attempt, request_id)
            if writer:
                self.writer = writer
                self.state = self._first_state(self._request)
                return True
        for _ in range(CLAIM_TRIES):
            snapshot = await self.shell.log.last(event_subject(self.aggregate, SNAPSHOT))
            events = await self._read_rollout(snapshot)
            own = [e for e in events if (e.actor, e.key) == (self.aggregate.actor, self.aggregate.key)]
            if request_id and self._has_answer(request_id, own):
                self._answered(request_id)
                return False
            await self._check_owner(own)
            vain = self._vain_claims(own)
            is_suspect = len(vain) >= self.shell.max_takeovers and self._request and not self.is_redriven
            if is_suspect and not await self._came_further(vain[0].sequence):
                await self._park(own)
                return False
            after = Tail(own[-1].sequence, own[-1].ordinal) if own else NEW
            if writer := await self.shell.log.claim(self.aggregate, self.attempt, request_id, after):
                self.writer = writer
                return self._fold(snapshot, events)
        msg = f"{self.aggregate.prefix} is contended: {CLAIM_TRIES} claims were overtaken"
        raise BusUnavailable(msg)

    def _has_answer(self, request_id: str, own: Sequence[Envelope]) -> bool:
        """Say whether the request has been answered; one that was set aside has not, once it is driven again."""
        answers = [e.data for e in own if isinstance(e.data, Answer) and e.data.request_id == request_id]
        return any(not (self.is_redriven and isinstance(a, RequestParked)) for a in answers)

    def _first_state(self, request: Envelope | None) -> S:
        if self._begin:
            return self._begin()
        if request is None:
            msg = f"{self.aggregate.prefix}: the request that started it is not in the log"
            raise Corrupt(msg)
        return self.machine.begin(request)

    async def _read_rollout(self, snapshot: Envelope | None) -> list[Envelope]:
        after = int(snapshot.data.state["read_after"]) if snapshot and isinstance(snapshot.data, Snapshot) else 0
        where = self.aggregate
        events = [
            e async for e in self.shell.log.read(rollout_pattern(where.shard, where.run_id, where.rollout_id), after)
        ]
        self._read_to = after
        return events

    async def _check_owner(self, own: Sequence[Envelope]) -> None:
        claims = [e for e in own if isinstance(e.data, Claimed)]
        owner = claims[-1] if claims else await self.shell.log.last(event_subject(self.aggregate, CLAIM))
        if owner and isinstance(owner.data, Claimed):
            worker = owner.data.worker
            if worker != self.shell.log.worker and not self.takes_from_living and self.shell.is_alive(worker):
                raise Held(worker)

    @staticmethod
    def _vain_claims(own: Sequence[Envelope]) -> list[Envelope]:
        """Return the claims since the last event: workers that took it over and stated nothing in it."""
        last = max((n for n, event in enumerate(own) if not isinstance(event.data, Claimed)), default=-1)
        return list(own[last + 1 :])

    async def _came_further(self, since: int) -> bool:
        """Say whether anything was answered in the rollout (in all of the run, for what concerns a run) after the sequence `since`.

        Then workers did not die of the request: a run is stated in few events of its own, and lives through many hosts.
        """
        where = self.aggregate
        rollout = "*" if where.rollout_id == RUN_LEVEL else where.rollout_id
        pattern = rollout_pattern(where.shard, where.run_id, rollout)
        async for event in self.shell.log.read(pattern, since):
            if isinstance(event.data, Answer) and not isinstance(
                event.data, ModelCallLost | ToolCallLost | RequestParked
            ):
                return True
        return False

    async def _park(self, own: Sequence[Envelope]) -> None:
        """Set the request aside: every worker that took it has died of it."""
        request = self._request
        if request is None:
            return
        tries = len(self._vain_claims(own))
        failure = Failure(kind="parked", message=f"{tries} workers in a row took it and came no further", terminal=True)
        after = Tail(own[-1].sequence, own[-1].ordinal) if own else NEW
        writer = await self.shell.log.claim(self.aggregate, self.attempt, request.event_id, after)
        if writer:
            parked = RequestParked(request_id=request.event_id, request_type=request.type, tries=tries, failure=failure)
            await self.shell.log.append(writer, Draft(parked, request.event_id))
            self._answered(request.event_id)

    def _fold(self, snapshot: Envelope | None, events: Sequence[Envelope]) -> bool:
        """Rebuild the state from the last snapshot and the tail."""
        folded_to = 0
        if snapshot and isinstance(snapshot.data, Snapshot):
            self.state = self.machine.state_type.model_validate(snapshot.data.state["state"])
            folded_to = snapshot.sequence
            self.writer.snapshot_ordinal = snapshot.ordinal
        else:
            opener = next(
                (
                    event
                    for event in events
                    if isinstance(event.data, self.machine.opened_by)
                    and event.attempt == self.attempt
                    and self.opens(event)
                ),
                None,
            )
            self.state = self._first_state(opener or (self._request if self._is_opener else None))
        for event in events:
            if self._is_own(event) and event.sequence <= folded_to:
                self._note_asked(event)
            else:
                self._evolve(event)
        self.state = self.machine.taken_over(self.state)
        return True

    # -- the loop --------------------------------------------------------------------------------------------------------------

    async def _loop(self, group: asyncio.TaskGroup) -> None:
        while True:
            async with self._stating:
                await self._settle()
                if self.machine.is_done(self.state):
                    return
                self._reconcile(group)
            await self._absorb(await self._inbox.get())
            while not self._inbox.empty():
                await self._absorb(self._inbox.get_nowait())

    async def _settle(self) -> None:
        """Append what is decided until nothing more is."""
        while drafts := self.machine.decide(self.state, self.shell.clock.now()):
            boundary.reach(self.shell.kind, "decided")
            for draft in drafts:
                await self.append(draft)
        if self.writer.ordinal - self.writer.snapshot_ordinal >= self.shell.snapshot_every:
            await self._snapshot()

    async def append(self, draft: Draft) -> Envelope:
        """Append one event to the own aggregate, fold it, and acknowledge the request it answers."""
        event = await self.shell.log.append(self.writer, draft)
        self._evolve(event)
        if isinstance(event.data, Answer):
            self._answered(event.data.request_id)
        return event

    async def append_sibling(self, aggregate: AggregateId, draft: Draft) -> Envelope:
        """Append one event to another aggregate that belongs to this one, claiming it on first use; it is folded too."""
        log_ = self.shell.log_of(aggregate.actor)
        async with self._stating:
            writer = self._siblings.get(aggregate)
            if writer is None:
                writer = await log_.claim(aggregate, self.attempt, draft.cause)
                writer = writer or await log_.claim_over(aggregate, self.attempt, draft.cause)
                self._siblings[aggregate] = writer
            event = await log_.append(writer, draft)
            self._evolve(event)
        return event

    async def _snapshot(self) -> None:
        first_asked = 1 if self.hears_unasked(self.state) else self.writer.last_sequence + 1
        read_after = min([*self._asked.values(), first_asked]) - 1
        state = {"state": self.state.model_dump(mode="json"), "read_after": read_after}
        await self.shell.log.append(self.writer, Draft(Snapshot(state=state), None, str(self.writer.ordinal)))

    def _evolve(self, event: Envelope) -> None:
        if event.attempt != self.attempt and event.rollout_id != RUN_LEVEL:
            if event.attempt < self.attempt:
                self.state = self.looks_back(self.state, event)
            return
        self._note_asked(event)
        if isinstance(event.data, Answer):
            what = event.data.request_id, event.data.ASPECT
            self._asked.pop(what, None)
            if event.actor == self.aggregate.actor and not isinstance(event.data, RequestParked):
                self._answers.add(what)
        self.state = self.machine.evolve(self.state, event)

    def _is_own(self, event: Envelope) -> bool:
        return (event.actor, event.key) == (self.aggregate.actor, self.aggregate.key)

    def _note_asked(self, event: Envelope) -> None:
        """Remember what of the own requests waits for an answer: a snapshot must not be read on from after it."""
        if event.data.TO is not None and self._is_own(event):
            for aspect in event.data.wanted():
                self._asked[event.event_id, aspect] = event.sequence

    def _answered(self, request_id: str) -> None:
        delivery = self.deliveries.pop(request_id, None)
        if delivery:
            boundary.reach(self.shell.kind, "before_ack")
            delivery.ack()
            boundary.reach(self.shell.kind, "acked")
        self.on_answered(request_id)

    async def _absorb(self, item: Envelope | _Done | Wake) -> None:
        if isinstance(item, Envelope):
            boundary.reach(self.shell.kind, "fact_received")
            self.rereads = 0
            self._evolve(item)
        elif isinstance(item, _Done):
            self._running.pop(item.effect_id, None)
            self._interrupts.pop(item.effect_id, None)
            self._interrupted.discard(item.effect_id)
            if item.error:
                await self._break_down(item.effect_id, item.error)
            elif isinstance(item.outcome, Draft) and not self._is_answered(item.outcome):
                try:
                    await self.append(item.outcome)
                except TooDeep as error:
                    log.error("outcome_too_deep", effect=item.effect_id, reason=str(error))  # noqa: TRY400  the data's fault
                    await self._crash(error)
                boundary.reach(self.shell.kind, "result_appended")
        elif item is REREAD:
            where = self.aggregate
            pattern = rollout_pattern(where.shard, where.run_id, where.rollout_id)
            # First the newest event of each kind, which nearly always is the answer; later all, which costs the server more.
            async for event in self.shell.log.read(pattern, self._read_to, latest=self.rereads <= 1):
                if not self._is_own(event):
                    self._evolve(event)
                elif isinstance(event.data, Claimed) and event.sequence > self.writer.epoch:
                    msg = f"{where.prefix} is written by {event.data.worker} since {event.sequence}"
                    raise Fenced(msg)

    def _is_answered(self, draft: Draft) -> bool:
        """Say whether the request was answered while the effect was still on its way; a request has one answer."""
        return isinstance(draft.data, Answer) and (draft.data.request_id, draft.data.ASPECT) in self._answers

    async def _break_down(self, effect_id: str, error: Exception) -> None:
        if isinstance(error, Fenced | Corrupt | Retryable):
            raise error
        log.error("handler_broke", effect=effect_id, exc_info=error)
        await self._crash(error)

    async def _crash(self, error: Exception) -> None:
        """State what the machine makes of an effect that came to nothing."""
        text = f"{type(error).__name__}: {error}"[:MESSAGE_MAX]
        for draft in self.machine.crashed(self.state, Failure(kind="internal", message=text)):
            await self.append(draft)

    # -- effects ---------------------------------------------------------------------------------------------------------------

    def _reconcile(self, group: asyncio.TaskGroup) -> None:
        """Start what is pending and not yet going on; end what goes on and is no longer wanted."""
        wanted = {effect.id: effect for effect in self.machine.pending(self.state)}
        for effect_id in [e for e in self._running if e not in wanted]:
            if interrupt := self._interrupts.pop(effect_id, None):
                interrupt()
            elif effect_id not in self._interrupted:
                self._running.pop(effect_id).cancel()
        for effect_id in [e for e in self._alarms if e not in wanted]:
            self._alarms.pop(effect_id).cancel()
        is_waiting = False
        for effect in wanted.values():
            if isinstance(effect, AwaitAnswer):
                is_waiting = True
            elif isinstance(effect, Alarm):
                self._set_alarm(effect)
            elif effect.id not in self._running:
                self._running[effect.id] = group.create_task(self._run_effect(effect))
        self.waiting_since = self.shell.clock.monotonic() if is_waiting else None

    def _set_alarm(self, alarm: Alarm) -> None:
        if alarm.id not in self._alarms:
            delay_s = max(0.0, (alarm.at - self.shell.clock.now()).total_seconds()) + 0.001
            self._alarms[alarm.id] = asyncio.get_running_loop().call_later(delay_s, self._ring, alarm.id)

    def _ring(self, alarm_id: str) -> None:
        self._alarms.pop(alarm_id, None)
        self.offer(LOOK)

    async def _run_effect(self, effect: Effect) -> None:
        try:
            boundary.reach(self.shell.kind, "effect_started")
            outcome = await self.shell.handlers[type(effect)](self, effect)
            boundary.reach(self.shell.kind, "effect_done")
        except Exception as error:  # noqa: BLE001  the one place: whatever a handler raises is answered, never swallowed
            self._inbox.put_nowait(_Done(effect.id, error=error))
        else:
            self._inbox.put_nowait(_Done(effect.id, outcome))

    async def interruptible(self, effect_id: str, work: Awaitable[T]) -> T:
        """Await `work`; raise `Interrupted` when the machine no longer wants the effect.

        A handler that appends must be ended this way: cancelling it in the middle of an append would lose the writer's place.
        """
        task = asyncio.current_task()
        is_interrupted = False

        def interrupt() -> None:
            nonlocal is_interrupted
            is_interrupted = True
            self._interrupted.add(effect_id)
            if task:
                task.cancel()

        self._interrupts[effect_id] = interrupt
        try:
            return await work
        except asyncio.CancelledError:
            if is_interrupted and task and task.uncancel() == 0:
                raise Interrupted(effect_id) from None
            raise
        finally:
            self._interrupts.pop(effect_id, None)

    async def effect_over(self, effect_id: str) -> None:
        """Wait until the effect is no longer running."""
        if (task := self._running.get(effect_id)) is not None:
            await asyncio.wait({task})

    def _stop_effects(self) -> None:
        for task in self._running.values():
            task.cancel()
        for alarm in self._alarms.values():
            alarm.cancel()
