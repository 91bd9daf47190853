"""The envelope: what is known about every event, whoever wrote it."""

from __future__ import annotations

from datetime import datetime

from pydantic import ConfigDict, SerializeAsAny, SkipValidation

from schemas.base import Event, Frozen
from schemas.ids import capture_key


class Envelope(Frozen):
    """One event with its identity and its place in the log.

    `epoch` is the sequence of the claim it was written under (0 for the command line, which claims nothing); `ordinal` counts
    the aggregate's events from 1 without gaps, claims and snapshots not counted (they carry the last one's). `place` is where a
    request was addressed, None for facts. `sequence` is the place in the stream, 0 before the event is stored.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    event_id: str
    type: str
    run_id: str
    rollout_id: str
    attempt: int
    actor: str
    key: str
    epoch: int
    ordinal: int
    causation_id: str | None
    recorded_at: datetime
    data: SkipValidation[SerializeAsAny[Event]]
    place: str | None = None
    sequence: int = 0

    @property
    def correlation_id(self) -> str:
        """Return what all events of one attempt have in common: the run and the capture key."""
        return f"{self.run_id}/{capture_key(self.rollout_id, self.attempt)}"
