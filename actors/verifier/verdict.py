"""A verdict as a pure state machine, and the one thing it does outside: grading in the grader's own process."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Protocol

import pydantic_core

from adapters.benchmarks.base import Grade
from gym_bus.errors import GymBusError
from gym_bus.event_log import Draft
from gym_bus.runtime.drive import Drive, Outcome
from gym_bus.runtime.machine import Effect
from schemas.base import Event, Frozen
from schemas.envelope import Envelope
from schemas.events import VerdictFailed, VerdictIssued, VerdictRequested
from schemas.tasks import Evidence
from schemas.values import Failure


@dataclass(frozen=True, slots=True)
class GradeEvidence(Effect):
    """Grade what was handed in."""


class VerdictState(Frozen):
    """What is known of a verdict."""

    request: VerdictRequested
    request_id: str
    is_over: bool = False


class VerdictMachine:
    """See `gym_bus.runtime.machine.Machine`."""

    state_type = VerdictState
    opened_by: type[Event] = VerdictRequested

    def begin(self, request: Envelope) -> VerdictState:
        """Start with the request."""
        data = request.data
        if not isinstance(data, VerdictRequested):
            raise TypeError(request.type)
        return VerdictState(request=data, request_id=request.event_id)

    def evolve(self, state: VerdictState, event: Envelope) -> VerdictState:
        """Fold one event."""
        if isinstance(event.data, VerdictIssued | VerdictFailed) and event.data.request_id == state.request_id:
            return state.replaced(is_over=True)
        return state

    def taken_over(self, state: VerdictState) -> VerdictState:
        """Grading is repeatable: it starts again."""
        return state

    def decide(self, state: VerdictState, now: datetime) -> Sequence[Draft]:  # noqa: ARG002  the handler's outcome is all there is
        """Nothing is decided without a grade."""
        return ()

    def pending(self, state: VerdictState) -> Sequence[Effect]:
        """Grade, once."""
        return () if state.is_over else (GradeEvidence("grade"),)

    def is_done(self, state: VerdictState) -> bool:
        """Say whether the verdict is out."""
        return state.is_over

    def crashed(self, state: VerdictState, failure: Failure) -> Sequence[Draft]:
        """No reward without a grade."""
        if state.is_over:
            return ()
        failure = failure.replaced(kind="verifier_error", stage="verification")
        return (Draft(VerdictFailed(request_id=state.request_id, failure=failure), state.request_id),)


def evidence_digest(evidence: Evidence) -> str:
    """Return the SHA-256 of what was graded, first 32 hex digits."""
    return hashlib.sha256(pydantic_core.to_json(evidence)).hexdigest()[:32]


class Grader(Protocol):
    """Where grading happens."""

    @property
    def version(self) -> str:
        """Return what identifies the code that grades."""
        ...

    async def grade(self, verifier: str, verifier_data: dict[str, Any], evidence: Evidence) -> Grade:
        """Grade; raises a `GymBusError` if that is not possible."""
        ...


class VerdictHandlers:
    """The handler of grading."""

    def __init__(self, grader: Grader) -> None:
        """Grade with `grader`."""
        self._grader = grader

    async def grade(self, drive: Drive[VerdictState], effect: GradeEvidence) -> Outcome:  # noqa: ARG002  all is in the state
        """Grade the evidence; what goes wrong on the way is a failure, never a reward."""
        request, request_id = drive.state.request, drive.state.request_id
        try:
            grade = await self._grader.grade(request.verifier, request.verifier_data, request.evidence)
        except GymBusError as error:
            failure = Failure(kind="verifier_error", message=str(error)[:2000], stage="verification")
            return Draft(VerdictFailed(request_id=request_id, failure=failure), request_id)
        issued = VerdictIssued(
            request_id=request_id,
            reward=grade.reward,
            components=dict(grade.components),
            failure_reason=grade.failure_reason,
            evidence_digest=evidence_digest(request.evidence),
            verifier_version=self._grader.version,
        )
        return Draft(issued, request_id)

    def table(self) -> dict[type[Any], Any]:
        """Return which handler does which effect."""
        return {GradeEvidence: self.grade}
