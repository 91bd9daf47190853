"""What is known of the sessions of all kinds of agents: their inputs, their end, their failure, and the files that they hand in."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Final, Self, TypeVar

from actors.harness.activations import Course, begun_with
from schemas.base import Frozen
from schemas.envelope import Envelope
from schemas.events import SessionRequested
from schemas.tasks import Evidence
from schemas.values import BlobRef, Failure, Message

OVERTIME_S: Final = 120.0
"""What a session waits beyond its agent's time: what runs is ended in the sandbox, and that has to be heard."""
SHORTEST_S: Final = 1.0
MAX_STALE_TRIES: Final = 5
"""How often what was refused as an earlier owner's wish is asked for again."""


class Offered(Frozen):
    """An input that somebody gave from outside, by the event `asked_id`."""

    asked_id: str
    activation: int
    fingerprint: str
    messages: tuple[Message, ...]


class SessionCore(Frozen):
    """What is known of any session, whose newest activation was asked for at `asked_at`, with `messages_asked` as what was new.

    `offered` are inputs that came from outside and are not begun, `crowded` those that came when there were enough of these, `heard`
    the newest of all that came, by their events. `waits_since` is when the last answer was there, `is_enough` says that nobody will
    give more. `evidence` is what it is closed with, as the event `activation_id` stated. `files_request` is the event that asks for the
    files that are handed in; `refused` is why they cannot be.
    """

    request: SessionRequested
    request_id: str
    asked_at: datetime
    course: Course
    messages_asked: tuple[Message, ...] = ()
    offered: tuple[Offered, ...] = ()
    crowded: tuple[tuple[str, int], ...] = ()
    heard: tuple[str, ...] = ()
    waits_since: datetime | None = None
    is_enough: bool = False
    evidence: Evidence | None = None
    activation_id: str | None = None
    files_request: str | None = None
    files: BlobRef | None = None
    refused: str | None = None
    failure: Failure | None = None
    is_closed: bool = False

    @property
    def activation(self) -> int:
        """Return the number of the newest activation."""
        return self.course.current

    @property
    def may_go_on(self) -> bool:
        """Say whether another input may follow the newest one: the task has one, or somebody outside may give one."""
        task, is_over = self.request.task, self.is_enough and self.course.is_between
        return self.activation <= len(task.follow_ups) or (task.awaits_input_s is not None and not is_over)

    @property
    def misses_files(self) -> bool:
        """Say whether what is to be handed in has not been kept yet."""
        return self.request.task.hands_in != "answer" and self.files is None and self.refused is None

    def failed(self, failure: Failure | None) -> Self:
        """Return the state with `failure`, unless it has one already."""
        return self.replaced(failure=self.failure or failure)


Core = TypeVar("Core", bound=SessionCore)
"""A kind of session."""


def opened(kind: type[Core], request: Envelope, **more: Any) -> Core:
    """Return the state of a session that has just been asked for, with what its kind has beside."""
    data = request.data
    if not isinstance(data, SessionRequested):
        raise TypeError(request.type)
    course, asked = begun_with(data.task), data.task.messages
    at = request.recorded_at
    return kind(request=data, request_id=request.event_id, asked_at=at, course=course, messages_asked=asked, **more)


def unsupported(message: str) -> Failure:
    """Return why a session ends before anything was made for it."""
    return Failure(kind="unsupported", message=message, stage="seed", terminal=True)
