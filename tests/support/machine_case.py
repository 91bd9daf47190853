"""Given events, when decided, then these: how the pure machines are tested."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any, Generic, TypeVar

from gym_bus.event_log import Draft
from gym_bus.runtime.machine import Effect, Machine
from schemas.base import Event, Frozen
from schemas.envelope import Envelope
from schemas.values import Failure
from tests.support.examples import AT, writer_of

S = TypeVar("S", bound=Frozen)


def envelope(data: Event, event_id: str, *, attempt: int = 1, actor: str | None = None, sequence: int = 1) -> Envelope:
    """Return `data` as an event of rollout 1-0, recorded at `AT`."""
    return Envelope(
        event_id=event_id,
        type=data.TYPE,
        run_id="r1",
        rollout_id="1-0",
        attempt=attempt,
        actor=actor or writer_of(data),
        key="b1" if (actor or writer_of(data)) == "sandbox" else "s1",
        epoch=7,
        ordinal=1,
        causation_id=None,
        recorded_at=AT,
        data=data,
        sequence=sequence,
    )


class Case(Generic[S]):
    """A machine and its state after what was given; immutable, so that a test may go on from anywhere."""

    def __init__(self, machine: Machine[S], state: S, *, number: int = 1, now: datetime = AT) -> None:
        self.machine = machine
        self.state = state
        self.now = now
        self._number = number

    def given(self, *events: Event | Envelope | tuple[str, Event]) -> Case[S]:
        """Fold events; a plain one gets the ids e1, e2 …, a pair names its own."""
        state, number = self.state, self._number
        for event in events:
            if isinstance(event, Envelope):
                folded = event
            elif isinstance(event, tuple):
                folded = envelope(event[1], event[0], sequence=number)
            else:
                folded = envelope(event, f"e{number}", sequence=number)
            state = self.machine.evolve(state, folded)
            number += 1
        return Case(self.machine, state, number=number, now=self.now)

    def after_s(self, seconds: float) -> Case[S]:
        """Let time pass."""
        return Case(self.machine, self.state, number=self._number, now=self.now + timedelta(seconds=seconds))

    def taken_over(self) -> Case[S]:
        """Let the worker that held it be gone."""
        return Case(self.machine, self.machine.taken_over(self.state), number=self._number, now=self.now)

    @property
    def drafts(self) -> Sequence[Draft]:
        """Return what is decided now."""
        return self.machine.decide(self.state, self.now)

    @property
    def decided(self) -> list[Event]:
        """Return the decided events without their causes."""
        return [draft.data for draft in self.drafts]

    @property
    def effects(self) -> list[Effect]:
        """Return what must be going on."""
        return list(self.machine.pending(self.state))

    def does(self) -> set[str]:
        """Return the kinds of effects that must be going on."""
        return {type(effect).__name__ for effect in self.effects}

    def then(self, *events: Event) -> Case[S]:
        """Assert that exactly these are decided, and go on after they were appended."""
        assert self.decided == list(events)
        return self.given(*events)

    def then_types(self, *types: type[Event]) -> Case[S]:
        """Assert that events of exactly these types are decided, and go on after they were appended."""
        assert [type(data) for data in self.decided] == list(types)
        return self.given(*self.decided)

    def then_nothing(self) -> Case[S]:
        """Assert that there is nothing to append."""
        assert self.decided == []
        return self

    @property
    def is_done(self) -> bool:
        """Say whether nothing more can happen."""
        return self.machine.is_done(self.state)

    def crashed(self, message: str = "broken") -> list[Event]:
        """Return the events that answer everyone when a handler has broken down."""
        failure = Failure(kind="internal", message=message)
        return [draft.data for draft in self.machine.crashed(self.state, failure)]


def settle(case: Case[Any], most: int = 20) -> Case[Any]:
    """Append what is decided until nothing more is; it must come to an end."""
    for _ in itertools.repeat(None, most):
        decided = case.decided
        if not decided:
            return case
        case = case.given(*decided)
    message = f"decides for ever: {case.decided}"
    raise AssertionError(message)
