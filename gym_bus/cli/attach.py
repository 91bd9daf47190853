"""Watching a run until it is over, paused, or the watcher leaves. The run goes on without being watched."""

from __future__ import annotations

import asyncio
import signal
import time
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from gym_bus.cli import questions
from gym_bus.cli.course import Course
from gym_bus.cli.installs import Installs
from gym_bus.cli.lazy import DETACHED, FAILED, OK, PAUSED
from gym_bus.cli.plain import plain
from gym_bus.cli.progress import Progress, Rate, View
from gym_bus.cli.setup import start_supervisor
from gym_bus.cli.tables import as_words
from gym_bus.client import ProjectorSilent, QueryFailed, query, request_cancel
from gym_bus.errors import Retryable
from gym_bus.status_file import read_status, supervisor_pid

if TYPE_CHECKING:
    from gym_bus.event_log import EventLog
    from gym_bus.nats_bus import NatsBus
    from gym_bus.settings import Settings
    from schemas.events import RunFinished

LOOK_EVERY_S: Final = 0.25
DETACH_WAIT_S: Final = 2.0
SUPERVISOR_EVERY_S: Final = 1.0
STORE_PATIENCE_S: Final = 60.0
SILENT_AFTER_S: Final = 5.0
STARTING_S: Final = 30.0
"""How long a projector may take until its first answer: all of the log is read before that."""
SUPERVISOR_SILENT_S: Final = 10.0


@dataclass
class Interrupts:
    """Ctrl-C, counted. The first detaches, the second cancels, the third leaves at once."""

    count: int = 0
    changed: asyncio.Event = field(default_factory=asyncio.Event)

    def hit(self) -> None:
        """Count one."""
        self.count += 1
        self.changed.set()


@dataclass
class Watch:
    """One run being watched."""

    settings: Settings
    bus: NatsBus
    log: EventLog
    run_id: str
    view: View
    shard: int = 0
    interrupts: Interrupts = field(default_factory=Interrupts)
    _rate: Rate = field(default_factory=Rate)
    _counts: dict[str, Any] = field(default_factory=dict)
    _problem: str | None = None
    _began_at: float = field(default_factory=time.monotonic)
    _answered_at: float | None = None
    _asked_at: float = 0.0
    _took_s: float = 0.0
    _looked_after_at: float = 0.0
    _paused_since: float | None = None
    _installs: Installs = field(init=False)

    def __post_init__(self) -> None:
        """See where this host installs."""
        self._installs = Installs(self.settings.programs)

    async def run(self) -> tuple[int, Course]:
        """Watch until there is an exit code; return it with what is known of the run."""
        loop = asyncio.get_running_loop()
        with suppress(NotImplementedError, RuntimeError):
            loop.add_signal_handler(signal.SIGINT, self.interrupts.hit)
        course = Course(self.run_id, self.shard)
        while True:
            if (code := await self._heed_interrupts()) is not None:
                return code, course
            with suppress(Retryable):  # the bus is being started again: nothing to see for a moment
                await course.refresh(self.log)
                await self._count()
            self._look_after_supervisor()
            self.view.show(self._progress(course))
            if (code := self._verdict(course)) is not None:
                return code, course
            with suppress(TimeoutError):
                async with asyncio.timeout(LOOK_EVERY_S):
                    await self.interrupts.changed.wait()

    @staticmethod
    def verdict(finished: RunFinished) -> int:
        """Return the exit code of a run that is over: 0 if every rollout was scored or masked."""
        is_whole = finished.state == "completed" and finished.failed == 0 and finished.missing == 0
        return OK if is_whole else FAILED

    def _verdict(self, course: Course) -> int | None:
        """Return the exit code if there is nothing more to wait for."""
        if course.finished:
            return self.verdict(course.finished)
        if course.parked:
            return FAILED
        if course.paused is None:
            self._paused_since = None
            return None
        self._paused_since = self._paused_since or time.monotonic()
        patience_s = STORE_PATIENCE_S if course.paused.kind == "store" else 0.0
        return PAUSED if time.monotonic() - self._paused_since >= patience_s else None

    async def _heed_interrupts(self) -> int | None:
        """Detach after one Ctrl-C if no second follows; cancel after two; leave at once after three."""
        if self.interrupts.count == 0:
            return None
        if self.interrupts.count == 1:
            self.view.say(self.ways(f"detaching in {DETACH_WAIT_S:.0f} s; Ctrl-C again cancels the run"))
            self.interrupts.changed.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(DETACH_WAIT_S):
                    await self.interrupts.changed.wait()
            if self.interrupts.count == 1:
                return DETACHED
        if self.interrupts.count > 2:  # noqa: PLR2004  the third
            return DETACHED
        if self.interrupts.changed.is_set():
            self.interrupts.changed.clear()
            await request_cancel(self.log, self.run_id, "Ctrl-C twice")
            self.view.say("cancelling: nothing new starts, what is under way winds up; Ctrl-C again leaves at once")
        return None

    def ways(self, first: str) -> str:
        """Return `first`, and how to come back to the run."""
        run = self.run_id
        return (
            f"{first}\n  watch it:   gym-bus eval attach {run}\n  end it:     gym-bus eval cancel {run}\n"
            f"  if all is stopped, go on:   gym-bus eval resume {run}"
        )

    async def _count(self) -> None:
        """Ask the projector how far the run is; as often as its answers allow, and without ever depending on them."""
        now = time.monotonic()
        if now - self._asked_at < max(LOOK_EVERY_S, 4 * self._took_s):
            return
        self._asked_at = now
        with suppress(ProjectorSilent, QueryFailed):
            answer = await query(self.bus, questions.PROGRESS, [self.run_id], timeout_s=5)
            rows = answer.dicts()
            problems = (await query(self.bus, questions.PROBLEMS, [self.run_id], timeout_s=5)).dicts()
            self._answered_at = time.monotonic()
            if rows:
                self._counts = rows[0]
            self._problem = shown_problem(problems[0]) if problems else None
        self._took_s = time.monotonic() - now

    def _progress(self, course: Course) -> Progress:
        counts, now = self._counts, time.monotonic()
        if course.finished:
            known = course.finished.model_dump(include={"scored", "failed", "masked"})
            counts = {**known, "open": 0, "mean_reward": None}  # the last mean is in the results
        planned = course.finished.planned if course.finished else course.started.planned if course.started else 0
        progress = Progress(
            self.run_id,
            course.state,
            planned,
            scored=int(counts.get("scored") or 0),
            failed=int(counts.get("failed") or 0),
            masked=int(counts.get("masked") or 0),
            open=int(counts.get("open") or 0),
            waiting_for_input=int(counts.get("waiting_for_input") or 0),
            mean_reward=counts.get("mean_reward"),
            problem=plain(course.paused.reason) if course.paused else self._problem,
        )
        progress.rate_per_s = self._rate.note(progress.done, now)
        if progress.rate_per_s and not course.finished:
            progress.left_s = (planned - progress.done) / progress.rate_per_s
        if not course.finished:
            progress.note = self._silence(now) or self._installs.note()
        status = read_status(self.settings.data_dir) or {}
        if status.get("age_s", 0.0) > SUPERVISOR_SILENT_S and not course.finished:
            progress.note = f"the supervisor has said nothing for {status['age_s']:.0f} s: is it stopped?"
        store = status.get("store", {})
        if store.get("state") == "full":
            progress.note = f"the store is full: {store.get('reason')}"
        return progress

    def _silence(self, now: float) -> str | None:
        """Return what is said of a projector that does not answer, None as long as it does or may be starting."""
        if self._answered_at is None:
            waited_s = now - self._began_at
            return (
                f"nothing has been counted in {waited_s:.0f} s: the projector does not answer"
                if waited_s > STARTING_S
                else None
            )
        age_s = now - self._answered_at
        return f"the counts are {age_s:.0f} s old: the projector does not answer" if age_s > SILENT_AFTER_S else None

    def _look_after_supervisor(self) -> None:
        """Start the supervisor again if it is gone."""
        now = time.monotonic()
        if now - self._looked_after_at >= SUPERVISOR_EVERY_S:
            self._looked_after_at = now
            if supervisor_pid(self.settings.data_dir) is None:
                start_supervisor(self.settings)


def shown_problem(row: dict[str, Any]) -> str | None:
    """Return what went wrong on the way, in one line; None if nothing did."""
    if not row.get("last_failure_kind"):
        return None
    counted = (
        ("model_retries", "model call", "tried again"),
        ("attempts_failed", "attempt", "failed"),
        ("lost_model_calls", "model call", "lost"),
        ("lost_tool_calls", "tool call", "lost"),
        ("lost_sandboxes", "sandbox", "lost"),
        ("parked", "request", "parked"),
    )
    counts = ", ".join(f"{as_words(row[key], noun)} {what}" for key, noun, what in counted if row.get(key))
    message = plain(str(row.get("last_failure_message") or row["last_failure_kind"])).split("\n", 1)[0]
    return f"{message}{f' ({counts})' if counts else ''}"
