"""A verdict as a pure state machine: graded in the grader's own process, or by tests that the sandbox actor runs."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, Literal, Protocol

import pydantic_core

from actors.verifier import tests_run
from adapters.benchmarks import tool_tasks
from adapters.benchmarks.base import Grade
from adapters.benchmarks.catalog import RUN_IN_A_MACHINE
from gym_bus.errors import BadTaskset, GymBusError
from gym_bus.event_log import Draft
from gym_bus.runtime.drive import Drive, Outcome
from gym_bus.runtime.machine import AwaitAnswer, Effect
from gym_bus.subjects import EVENTS
from schemas.base import Event, Frozen
from schemas.envelope import Envelope
from schemas.events import (
    GradingDone,
    GradingFailed,
    GradingRequested,
    RequestParked,
    TaskToolCallCompleted,
    VerdictFailed,
    VerdictIssued,
    VerdictRequested,
)
from schemas.tasks import Evidence
from schemas.values import Failure

Records = dict[str, list[Any]]
RECORDED: Final = TaskToolCallCompleted.subject_kind()


@dataclass(frozen=True, slots=True)
class GradeEvidence(Effect):
    """Grade what was handed in."""


class VerdictState(Frozen):
    """What is known of a verdict; it was asked for at the sequence `asked_at`."""

    request: VerdictRequested
    request_id: str
    asked_at: int = 0
    is_over: bool = False
    asked: str | None = None
    done: GradingDone | None = None
    failure: Failure | None = None

    @property
    def is_run(self) -> bool:
        """Say whether tests are run for it."""
        return self.request.verifier in RUN_IN_A_MACHINE


class VerdictMachine:
    """See `gym_bus.runtime.machine.Machine`."""

    state_type = VerdictState
    opened_by: type[Event] = VerdictRequested

    def begin(self, request: Envelope) -> VerdictState:
        """Start with the request."""
        data = request.data
        if not isinstance(data, VerdictRequested):
            raise TypeError(request.type)
        return VerdictState(request=data, request_id=request.event_id, asked_at=request.sequence)

    def evolve(self, state: VerdictState, event: Envelope) -> VerdictState:
        """Fold one event."""
        data = event.data
        match data:
            case VerdictIssued() | VerdictFailed() if data.request_id == state.request_id:
                return state.replaced(is_over=True)
            case GradingRequested():
                return state.replaced(asked=event.event_id)
            case GradingDone() if data.request_id == state.asked:
                return state.replaced(done=data)
            case GradingFailed() | RequestParked() if data.request_id == state.asked:
                return state.replaced(failure=state.failure or data.failure)
            case _:
                return state

    def taken_over(self, state: VerdictState) -> VerdictState:
        """Grading is repeatable: it starts again."""
        return state

    def decide(self, state: VerdictState, now: datetime) -> Sequence[Draft]:  # noqa: ARG002, PLR0911  one return a case
        """Have tests run, and say what came of them; what the grader's process grades is its handler's outcome."""
        if state.is_over or not state.is_run:
            return ()
        if state.failure:
            return (Draft(VerdictFailed(request_id=state.request_id, failure=state.failure), state.request_id),)
        if state.done:
            grade, graded = tests_run.worth(state.request, state.done), tests_run.graded(state.request)
            if isinstance(grade, Failure):
                return (Draft(VerdictFailed(request_id=state.request_id, failure=grade), state.request_id),)
            issued = _issued(state.request_id, state.request.evidence, grade, tests_run.VERSION, graded)
            return (Draft(issued, state.request_id),)
        if refused := state.request.evidence.refused:
            grade, graded = Grade(0.0, failure_reason=refused), tests_run.graded(state.request)
            issued = _issued(state.request_id, state.request.evidence, grade, tests_run.VERSION, graded)
            return (Draft(issued, state.request_id),)
        if state.asked:
            return ()
        try:
            return (Draft(tests_run.wanted(state.request), state.request_id),)
        except BadTaskset as error:
            failure = Failure(kind="verifier_error", message=str(error), stage="verification", terminal=True)
            return (Draft(VerdictFailed(request_id=state.request_id, failure=failure), state.request_id),)

    def pending(self, state: VerdictState) -> Sequence[Effect]:
        """Grade, once."""
        if state.is_over:
            return ()
        return (AwaitAnswer("tests"),) if state.is_run else (GradeEvidence("grade"),)

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
    return hashlib.sha256(evidence.model_dump_json(exclude_defaults=True).encode()).hexdigest()[:32]


def _records_digest(records: Records) -> str:
    return hashlib.sha256(pydantic_core.to_json(records)).hexdigest()[:32]


def _issued(
    request_id: str,
    evidence: Evidence,
    grade: Grade,
    version: str,
    graded: Literal["answer", "files", "machine", "records"],
    records: Records | None = None,
) -> VerdictIssued:
    return VerdictIssued(
        request_id=request_id,
        reward=grade.reward,
        components=dict(grade.components),
        failure_reason=grade.failure_reason,
        evidence_digest=evidence_digest(evidence),
        records_digest=None if records is None else _records_digest(records),
        verifier_version=version,
        graded=graded,
    )


async def _records(drive: Drive[VerdictState]) -> Records:
    """Return what calls of each tool left in the attempt's environment, in order, before a verdict was asked for."""
    where, found = drive.aggregate, Records()
    pattern = f"{EVENTS}{where.shard}.{where.run_id}.{where.rollout_id}.verifier.*.{RECORDED}"
    async for event in drive.shell.log.read(pattern):
        is_earlier = event.attempt == drive.attempt and event.sequence < drive.state.asked_at
        if is_earlier and isinstance(event.data, TaskToolCallCompleted) and event.data.record is not None:
            found.setdefault(event.data.tool, []).append(event.data.record)
    return found


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
        records = await _records(drive) if request.verifier == tool_tasks.VERIFIER else None
        data = request.verifier_data if records is None else {**request.verifier_data, "recorded": records}
        try:
            grade = await self._grader.grade(request.verifier, data, request.evidence)
        except GymBusError as error:
            failure = Failure(kind="verifier_error", message=str(error)[:2000], stage="verification")
            return Draft(VerdictFailed(request_id=request_id, failure=failure), request_id)
        graded: Literal["answer", "records"] = "answer" if records is None else "records"
        issued = _issued(request_id, request.evidence, grade, self._grader.version, graded, records)
        return Draft(issued, request_id)

    def table(self) -> dict[type[Any], Any]:
        """Return which handler does which effect."""
        return {GradeEvidence: self.grade}
