"""What an actor is: a pure state machine over the events of a rollout, and the effects it wants.

The state is folded from the log: the aggregate's own events, and what other actors answered. `decide` says which events must now be
appended, `pending` which effects must now be going on; both look at nothing but the state, so a worker that takes a rollout over
continues where the log ends, and nothing is remembered that is not written down.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol, TypeVar

from gym_bus.event_log import Draft
from schemas.base import Event, Frozen
from schemas.envelope import Envelope
from schemas.values import Failure


@dataclass(frozen=True, slots=True)
class Effect:
    """Something to do outside; `id` names it within its aggregate, and it runs at most once at a time."""

    id: str


@dataclass(frozen=True, slots=True)
class AwaitAnswer(Effect):
    """Another actor has been asked: nothing to do but to hear, and to read the log when it takes long."""


@dataclass(frozen=True, slots=True)
class Alarm(Effect):
    """Look at the clock again at `at`."""

    at: datetime


S = TypeVar("S", bound=Frozen)


class Machine(Protocol[S]):
    """The rules of one kind of aggregate. Everything is pure, total and synchronous."""

    @property
    def state_type(self) -> type[S]:
        """Return the state's class, to restore snapshots."""
        ...

    @property
    def opened_by(self) -> type[Event]:
        """Return the type of the request that starts the aggregate."""
        ...

    def begin(self, request: Envelope) -> S:
        """Return the state after the request that starts the aggregate."""
        ...

    def evolve(self, state: S, event: Envelope) -> S:
        """Return the state after `event`, which may be any actor's; never raises on a known event, repeats change nothing."""
        ...

    def taken_over(self, state: S) -> S:
        """Return the state when the worker that held it is gone, with everything it held in memory."""
        ...

    def decide(self, state: S, now: datetime) -> Sequence[Draft]:
        """Return the events to append now; they are appended in order and folded before it is asked again."""
        ...

    def pending(self, state: S) -> Sequence[Effect]:
        """Return what must be going on now."""
        ...

    def is_done(self, state: S) -> bool:
        """Say whether nothing more can happen."""
        ...

    def crashed(self, state: S, failure: Failure) -> Sequence[Draft]:
        """Return the events that answer everyone who waits when a handler has broken down."""
        ...
