"""How any session ends: what each kind of agent's session states or hears of its answer, its files, its failure and its budget."""

from __future__ import annotations

from actors.harness import further
from actors.harness.activations import is_last
from actors.harness.core import Core
from schemas.envelope import Envelope
from schemas.events import (
    ActivationAsked,
    ActivationCompleted,
    ActivationFailed,
    ActivationRefused,
    CheckpointFailed,
    CheckpointSaved,
    InputEnded,
    LaunchSettled,
    RunCancelled,
    SessionClosed,
    SessionEndAsked,
    SessionFailed,
)
from schemas.values import Failure


def note(state: Core, event: Envelope) -> Core:  # noqa: PLR0911  one arm an event
    """Fold what any session states or hears of its end; what else happened leaves the state as it is."""
    data = event.data
    match data:
        case ActivationCompleted() if state.course.is_open(data.activation):
            course = state.course.ended(data.activation, data.evidence)
            is_end = is_last(state.request.task, data.activation, data.evidence)
            evidence = course.whole(data.evidence) if is_end else None
            at = event.recorded_at
            return state.replaced(course=course, evidence=evidence, activation_id=event.event_id, waits_since=at)
        case ActivationAsked() | ActivationRefused() | SessionEndAsked() | InputEnded():
            return further.note(state, event)
        case ActivationFailed():
            course = state.course.ended(data.activation, failure=data.failure)
            return state.replaced(course=course).failed(data.failure)
        case CheckpointSaved() if data.request_id == state.files_request:
            return state.replaced(files=data.snapshot)
        case CheckpointFailed() if data.request_id == state.files_request and state.files is None:
            is_agents = data.failure.terminal
            return state.replaced(refused=data.failure.message) if is_agents else state.failed(data.failure)
        case SessionClosed() | SessionFailed():
            return state.replaced(is_closed=True)
        case RunCancelled() if not state.evidence:
            return state.failed(Failure(kind="cancelled", message=f"run cancelled: {data.reason}", terminal=True))
        case _:
            return state


def note_settled(state: Core, data: LaunchSettled) -> Core:
    """End with what there is: of the rollout's own budget that may be graded; of the run's, the rollout was never to be finished."""
    settled = state.replaced(settled=data)
    if data.budget != "run":
        return settled
    message = f"the budget of the whole run is used up ({data.limit})"
    return settled.failed(Failure(kind="budget_exhausted", message=message, terminal=True))
