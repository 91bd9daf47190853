"""Conducting a run: a sliding window of rollouts, started on a ramp, retried when the machine failed, counted when they are over.

What it knows is rebuilt from the log: the last snapshot's bits, and the collector's own events since.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import heapq
from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Final

from actors.collector import plan
from actors.collector.plan import Planned
from actors.collector.rollout import RolloutMachine, RolloutState
from actors.collector.room import Admission
from actors.collector.run import Progress, RunState
from gym_bus.event_log import Draft
from gym_bus.runtime.drive import Drive, Shell
from gym_bus.subjects import AggregateId, aggregate, event_subject
from schemas.envelope import Envelope
from schemas.events import RolloutFinished, RunCancelled, RunFinished, RunPaused, Snapshot
from schemas.events.collector import COUNTED_AS
from schemas.ids import RUN_LEVEL
from schemas.values import HALTING, Failure

TICK_S: Final = 0.5
BROKEN_MAX: Final = 8
BROKEN_WAIT_S: Final = 0.1
"""An attempt whose course breaks off is taken up again after this wait, doubled each time; so often in a row, then the run pauses."""
AWAY_MAX: Final = 3
"""So many attempts in a row, of whichever rollouts, whose model could not be reached pause the run."""
SNAPSHOT_MIN: Final = 512

StartDrive = Callable[[Drive[Any]], None]


@dataclass(slots=True)
class _Course:
    """Where a rollout stands: its current attempt, how many attempts it has used up, and since which sequence.

    `is_open` says that the attempt was begun and that its end is not known; `broken` how often its course broke off in a row.
    """

    attempt: int = 1
    failures: int = 0
    cause: str | None = None
    since: int = 0
    is_open: bool = False
    broken: int = 0
    retry_at: datetime | None = None


@dataclass
class Conductor:
    """One run's window, in the process of the run's owner."""

    shell: Shell
    drive: Drive[RunState]
    start: StartDrive
    admission: Admission
    rollouts: Sequence[Planned]
    _courses: dict[int, _Course] = field(default_factory=dict)
    _done: bytearray = field(default_factory=bytearray)
    _counts: Counter[str] = field(default_factory=Counter)
    _orphaned: deque[int] = field(default_factory=deque)
    _fresh: deque[int] = field(default_factory=deque)
    _due: list[tuple[datetime, int]] = field(default_factory=list)
    _broken: list[tuple[datetime, int]] = field(default_factory=list)
    _left: list[int] = field(default_factory=list)
    _active: dict[int, Drive[RolloutState]] = field(default_factory=dict)
    _changed: asyncio.Event = field(default_factory=asyncio.Event)
    _launched: int = 0
    _began: float = 0.0
    _halted: str | None = None
    _away: int = 0
    _spent: Failure | None = None
    _snapshot_at: int = SNAPSHOT_MIN
    _cancelled: Envelope | None = None

    # -- recovery --------------------------------------------------------------------------------------------------------------

    async def recover(self) -> None:
        """Rebuild what is known from the log: finished rollouts, due retries, and those that an earlier owner left open.

        The last are taken up first, also when nothing new may start: their sessions are running.
        """
        state = self.drive.state
        index_of = {p.rollout_id: i for i, p in enumerate(self.rollouts)}
        self._done = bytearray(state.progress.bits().ljust((len(self.rollouts) + 7) // 8, b"\0"))
        self._counts = Counter(state.progress.counts)
        after = max(state.progress.read_after, 0) or state.started_sequence
        now = self.shell.clock.now()
        run_id, shards = self.drive.aggregate.run_id, state.request.config.shards
        for shard in range(shards):
            async for event in self.shell.log.read(f"gym.evt.{shard}.{run_id}.*.collector._.>", after):
                index = index_of.get(event.rollout_id)
                if event.rollout_id == RUN_LEVEL or index is None or self._is_done(index):
                    continue
                course = self._courses.setdefault(index, _Course(since=event.sequence))
                course.attempt, course.is_open = event.attempt, True
                if isinstance(event.data, RolloutFinished):
                    self._note(index, course, event.data, event.event_id)
        self._due = [(max(c.retry_at, now), i) for i, c in self._courses.items() if c.retry_at and not c.is_open]
        heapq.heapify(self._due)
        for index in range(len(self.rollouts)):
            known = self._courses.get(index)
            if not self._is_done(index) and (known is None or known.is_open):
                (self._fresh if known is None else self._orphaned).append(index)
        self._began = self.shell.clock.monotonic()
        self._snapshot_at = max(SNAPSHOT_MIN, int(sum(self._counts.values()) * 1.25))

    def _is_done(self, index: int) -> bool:
        return bool(self._done[index >> 3] & (1 << (index & 7)))

    def _note(self, index: int, course: _Course, finished: RolloutFinished, event_id: str) -> None:
        """Take in how an attempt ended."""
        if finished.failure and finished.failure.kind == "budget_exhausted":
            self._spent = finished.failure
        if finished.retry_at is None:
            self._done[index >> 3] |= 1 << (index & 7)
            self._counts[COUNTED_AS[finished.state]] += 1
            self._courses.pop(index, None)
            return
        if finished.failure and finished.failure.kind not in HALTING:
            course.failures += 1
        course.attempt += 1
        course.cause = event_id
        course.is_open, course.broken = False, 0
        course.retry_at = finished.retry_at

    # -- conducting ------------------------------------------------------------------------------------------------------------

    async def conduct(self) -> Draft:
        """Run the window until there is something to state about the run: a snapshot, a pause, its end."""
        self._halted, self._away = None, 0
        for index in self._left:
            self._courses[index].broken = 0
        self._orphaned += self._left
        self._left.clear()
        while True:
            self._changed.clear()
            if self.drive.state.cancelled is not None and self._cancelled is None:
                await self._pass_on_cancel()
            if statement := self._statement():
                return statement
            await self.admission.look(len(self._active))
            wait_s = self._launch()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(wait_s):
                    await self._changed.wait()

    async def _pass_on_cancel(self) -> None:
        """Tell the rollouts that the run is cancelled: each ends by itself, and says so, before the run is counted."""
        self._cancelled = await self.shell.log.last(event_subject(self.drive.aggregate, RunCancelled.subject_kind()))
        for rollout in self._active.values():
            self._tell(rollout)

    def _tell(self, rollout: Drive[RolloutState]) -> None:
        if self._cancelled:
            rollout.offer(self._cancelled)

    def _statement(self) -> Draft | None:
        state = self.drive.state
        is_idle = not self._active and not self._orphaned and not self._broken
        if state.cancelled is not None:
            return self._finish("cancelled") if is_idle else None
        if is_idle and (self._spent or not (self._fresh or self._due or self._left)):
            return self._finish("cancelled" if self._spent else "completed")
        for kind, reason in (("failure", self._halted), ("store", self.admission.refusal)):
            if reason and not self._active:
                pause = RunPaused(kind="store" if kind == "store" else "failure", reason=reason)
                self.admission.forget()
                return Draft(pause, state.started_id, str(state.pauses))
        if sum(self._counts.values()) >= self._snapshot_at:
            return self._snapshot()
        return None

    def _finish(self, how: str) -> Draft:
        counts, planned = self._counts, len(self.rollouts)
        known = counts["scored"] + counts["failed"] + counts["masked"]
        finished = RunFinished(
            request_id=self.drive.state.request_id,
            state="cancelled" if how == "cancelled" else "completed",
            planned=planned,
            scored=counts["scored"],
            failed=counts["failed"],
            masked=counts["masked"],
            missing=planned - known,
            failure=self._spent,
        )
        return Draft(finished, self.drive.state.started_id)

    def _snapshot(self) -> Draft:
        done = sum(self._counts.values())
        self._snapshot_at = max(done + SNAPSHOT_MIN, int(done * 1.25))
        first_open = min(
            (c.since for c in self._courses.values() if c.since), default=self.drive.writer.last_sequence + 1
        )
        progress = Progress(
            done=base64.b64encode(bytes(self._done)).decode(),
            counts=dict(self._counts),
            read_after=max(first_open - 1, self.drive.state.started_sequence),
        )
        state = self.drive.state.model_copy(update={"progress": progress})
        data = {"state": state.model_dump(mode="json"), "read_after": 0}
        return Draft(Snapshot(state=data), None, f"done-{done}")

    def _launch(self) -> float:
        """Start what may start; return the seconds until the next one might."""
        config = self.drive.state.request.config
        while self._orphaned and len(self._active) < config.num_samples_in_parallel:
            self._start(self._orphaned.popleft())
        while self._broken and self._broken[0][0] <= self.shell.clock.now():
            self._start(heapq.heappop(self._broken)[1])
        if self._halted or self._spent or self.admission.refusal or self.drive.state.cancelled is not None:
            return TICK_S
        while len(self._active) < config.num_samples_in_parallel and self.admission.allows_one:
            allowed_at = self._began + self._launched / config.ramp_per_s
            wait_s = allowed_at - self.shell.clock.monotonic()
            if self._launched < config.num_samples_in_parallel and wait_s > 0:
                return min(wait_s, TICK_S)
            index = self._next()
            if index is None:
                break
            self._launched += 1
            self.admission.take()
            self._start(index)
        if self._due:
            until = (self._due[0][0] - self.shell.clock.now()).total_seconds()
            return min(TICK_S, max(until, 0.001))
        return TICK_S

    def _next(self) -> int | None:
        if self._due and self._due[0][0] <= self.shell.clock.now():
            return heapq.heappop(self._due)[1]
        return self._fresh.popleft() if self._fresh else None

    def _start(self, index: int) -> None:
        state = self.drive.state
        planned, course = self.rollouts[index], self._courses.setdefault(index, _Course())
        machine = RolloutMachine(
            planned.task,
            planned.repeat,
            state.request.config,
            attempt=course.attempt,
            failures=course.failures,
            cause=course.cause or state.started_id or state.request_id,
        )
        rollout = Drive(self.shell, machine, self._aggregate(planned), course.attempt, begin=lambda: machine.first)
        rollout.takes_from_living = True
        rollout.looks_back = machine.looked_back
        rollout.on_over = lambda: self._over(index, rollout)
        course.is_open = True
        self._active[index] = rollout
        self._tell(rollout)
        self.start(rollout)

    def _aggregate(self, planned: Planned) -> AggregateId:
        return aggregate(
            self.drive.aggregate.run_id, planned.rollout_id, "collector", "_", self.drive.state.request.config.shards
        )

    def _over(self, index: int, rollout: Drive[RolloutState]) -> None:
        """Take in that a rollout's drive has ended, whatever the reason."""
        self._active.pop(index, None)
        self._changed.set()
        course = self._courses.setdefault(index, _Course())
        finished = rollout.state.finished if rollout.is_open else None
        if finished is None:  # it may have ended all the same: what was said to the log last has not been heard back
            course.broken += 1
            if course.broken <= BROKEN_MAX:
                wait = timedelta(seconds=BROKEN_WAIT_S * 2.0 ** (course.broken - 1))
                heapq.heappush(self._broken, (self.shell.clock.now() + wait, index))
                return
            self._left.append(index)
            self._halted = (
                self._halted or f"rollout {rollout.aggregate.rollout_id} broke off {course.broken} times in a row"
            )
            return
        course.since = course.since or rollout.writer.epoch
        if finished.failure and finished.failure.kind in HALTING and not self._halted:
            self._halted = f"{finished.failure.kind}: {finished.failure.message}"
        self._note_reach(finished.failure)
        self._note(index, course, finished, rollout.state.finished_id or "")
        if course.retry_at and not self._is_done(index):
            heapq.heappush(self._due, (course.retry_at, index))

    def _note_reach(self, failure: Failure | None) -> None:
        """Count attempts in a row whose model could not be reached: the run pauses before all rollouts have used theirs up."""
        self._away = self._away + 1 if failure and failure.kind == "transport_unreachable" else 0
        if failure and self._away >= AWAY_MAX and not self._halted:
            self._halted = f"{failure.kind}: {failure.message} (so ended the last {self._away} attempts)"


def rollouts_of(content: bytes, config: Any) -> list[Planned]:
    """Return the rollouts of a stored plan in the order of the configuration."""
    return plan.order(plan.load(content), config)
