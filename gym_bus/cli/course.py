"""A run's course as the log tells it, folded from the few events about the run itself.

What ends a watch is decided by this alone: the log knows at once, and the projection a moment later.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from schemas.events import RequestParked, RunCancelled, RunFinished, RunPaused, RunStarted

if TYPE_CHECKING:
    from gym_bus.event_log import EventLog


@dataclass
class Course:
    """Where a run stands; `refresh` reads what is new."""

    run_id: str
    shard: int = 0
    started: RunStarted | None = None
    paused: RunPaused | None = None
    cancelled: RunCancelled | None = None
    finished: RunFinished | None = None
    finished_sequence: int = 0
    resumed_sequence: int = 0
    parked: RequestParked | None = None
    """The run's own request, set aside: nobody works on the run until it is driven again."""

    async def refresh(self, log: EventLog) -> None:
        """Take in the run's own events since the last time; claims and snapshots say nothing here."""
        for kind in ("run_started", "run_cancelled", "run_finished"):
            if getattr(self, kind.removeprefix("run_")) is None:
                event = await log.last(f"{self._prefix}.{kind}")
                self._fold(event.data if event else None)
                if event and self.finished:
                    self.finished_sequence = event.sequence
        paused = await log.last(f"{self._prefix}.run_paused")
        resumed = await log.last(f"{self._prefix}.run_resumed") if paused else None
        self.resumed_sequence = resumed.sequence if resumed else 0
        is_over = resumed is not None and paused is not None and resumed.sequence > paused.sequence
        self.paused = paused.data if paused and isinstance(paused.data, RunPaused) and not is_over else None
        if self.cancelled or self.finished:
            self.paused = None
        newest = await log.last(f"gym.evt.{self.shard}.{self.run_id}._.collector.>")
        self.parked = None
        if newest and isinstance(newest.data, RequestParked) and newest.data.request_type.startswith("run_requested."):
            self.parked = newest.data

    @property
    def _prefix(self) -> str:
        return f"gym.evt.{self.shard}.{self.run_id}._.collector._"

    def _fold(self, data: object) -> None:
        match data:
            case RunStarted():
                self.started = data
            case RunCancelled():
                self.cancelled = data
            case RunFinished():
                self.finished = data
            case _:
                pass

    @property
    def state(self) -> str:
        """Return the state in the words of the view `runs`."""
        if self.finished:
            return self.finished.state
        if self.cancelled:
            return "cancelling"
        if self.paused:
            return "paused"
        if self.parked:
            return "parked"
        return "running" if self.started else "requested"
