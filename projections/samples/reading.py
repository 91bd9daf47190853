"""From the events of one attempt to its model calls; they may be handed over in any order, their sequence is what counts."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Final

import pydantic_core

from projections.samples.call import Call, CallState, Knobs, Recorded, Restored, Stray
from projections.samples.ids import Ids
from projections.samples.restoring import restored
from schemas.envelope import Envelope
from schemas.events import (
    ModelCallCompleted,
    ModelCallFailed,
    ModelCallLate,
    ModelCallLost,
    ModelCallRequested,
    SessionRequested,
)
from schemas.values import Sampling

Answered = ModelCallCompleted | ModelCallFailed | ModelCallLost

SYSTEM: Final = frozenset({"system", "developer"})
REFUSED: Final = range(400, 500)
ANSWERED_TWICE: Final = "answered_twice"
PARENT_UNKNOWN: Final = "parent_unknown"


def by_attempt(events: Iterable[Envelope]) -> dict[int, list[Envelope]]:
    """Return a rollout's events by the attempt that they are of, attempts ascending."""
    found: dict[int, list[Envelope]] = {}
    for event in events:
        found.setdefault(event.attempt, []).append(event)
    return dict(sorted(found.items()))


def read_calls(events: Iterable[Envelope]) -> Recorded:
    """Return the calls that `events`, all of one attempt at one rollout, tell of; raises `ValueError` for others or none.

    Conversations of all keys are read. Of two answers to one call the first counts (`answered_twice`).
    """
    ordered = sorted(events, key=lambda event: event.sequence)
    about = {(event.run_id, event.rollout_id, event.attempt) for event in ordered}
    if len(about) != 1:
        msg = f"want the events of one attempt at one rollout, got those of {sorted(about)}"
        raise ValueError(msg)
    [(run_id, rollout_id, attempt)] = about
    reader = _Reader()
    for event in ordered:
        reader.take(event)
    task_id = reader.session.task.task_id if reader.session else None
    calls, strays = _calls_and_strays(reader)
    return Recorded(run_id, rollout_id, attempt, task_id, calls, strays)


@dataclass
class _Reader:
    """Requests and answers so far, by the request's id; `ids` of the calls answered so far."""

    session: SessionRequested | None = None
    asked: dict[str, tuple[Envelope, ModelCallRequested]] = field(default_factory=dict)
    answers: dict[str, tuple[Envelope, Answered]] = field(default_factory=dict)
    late: dict[str, tuple[Envelope, ModelCallLate]] = field(default_factory=dict)
    twice: set[str] = field(default_factory=set)

    def take(self, event: Envelope) -> None:
        """Take in the next event."""
        match event.data:
            case SessionRequested() if self.session is None:
                self.session = event.data
            case ModelCallRequested():
                self.asked.setdefault(event.event_id, (event, event.data))
            case ModelCallCompleted() | ModelCallFailed() | ModelCallLost():
                if event.data.request_id in self.answers:
                    self.twice.add(event.data.request_id)
                self.answers.setdefault(event.data.request_id, (event, event.data))
            case ModelCallLate():
                self.late.setdefault(event.data.request_id, (event, event.data))
            case _:
                pass


def _calls_and_strays(reader: _Reader) -> tuple[tuple[Call, ...], tuple[Stray, ...]]:
    tokens = _restore(reader)
    sampling = reader.session.sampling if reader.session else Sampling()
    calls: dict[str, Call] = {}
    for call_id, (event, asked) in reader.asked.items():
        parent = calls.get(asked.parent_id or "")
        calls[call_id] = _call(reader, event, asked, parent, sampling, tokens.get(call_id))
    strays = [
        Stray(request_id, event.key, _counted(data))
        for request_id, (event, data) in (reader.answers | reader.late).items()
        if request_id not in calls
    ]
    return tuple(calls.values()), tuple(strays)


def _restore(reader: _Reader) -> dict[str, Restored]:
    """Return the tokens of the completed calls; each is put together from calls that were answered before it."""
    ids: dict[str, Ids] = {}
    found: dict[str, Restored] = {}
    for request_id, (_, data) in reader.answers.items():
        if isinstance(data, ModelCallCompleted) and data.tokens is not None:
            found[request_id] = whole = restored(data.tokens, ids)
            if whole.ids is not None:
                ids[request_id] = whole.ids
    return found


def _call(
    reader: _Reader,
    event: Envelope,
    asked: ModelCallRequested,
    parent: Call | None,
    sampling: Sampling,
    tokens: Restored | None,
) -> Call:
    answer, data = reader.answers.get(event.event_id, (None, None))
    late = reader.late.get(event.event_id)
    done = data if isinstance(data, ModelCallCompleted) else None
    gaps = [*asked.gaps]
    gaps += [PARENT_UNKNOWN] if asked.parent_id is not None and parent is None else []
    gaps += [ANSWERED_TWICE] if event.event_id in reader.twice else []
    return Call(
        id=event.event_id,
        conversation=event.key,
        parent_id=asked.parent_id,
        turn=asked.turn,
        tries=asked.tries,
        asked_at=event.sequence,
        state=_state(data),
        context_digest=asked.context_digest,
        system_digest=parent.system_digest if parent else None if asked.parent_id else _system_digest(asked),
        tools_digest=asked.tools_digest,
        knobs=_knobs(asked, sampling),
        gaps=tuple(gaps),
        answered_at=answer.sequence if answer else None,
        stop_reason=done.stop_reason if done else None,
        output_tokens=_counted(done or (late[1] if late else None)),
        is_unread=bool(done and done.is_unread),
        is_refused=isinstance(data, ModelCallFailed) and data.status in REFUSED,
        is_late=late is not None and done is None,
        policy_versions=done.policy_versions if done else (),
        tokens=tokens,
        untrainable=done.untrainable if done else None,
    )


def _state(answer: Answered | None) -> CallState:
    match answer:
        case None:
            return "open"
        case ModelCallCompleted():
            return "completed"
        case ModelCallFailed():
            return "failed"
        case ModelCallLost():
            return "lost"


def _counted(answer: Answered | ModelCallLate | None) -> int | None:
    """Return how many tokens an answer has: ids if there are any, else the backend's count, of which 0 means that it does not say."""
    match answer:
        case ModelCallCompleted() if answer.tokens and (answer.tokens.generated or answer.untrainable is None):
            return len(answer.tokens.generated)
        case ModelCallCompleted() | ModelCallLate():
            return answer.usage.output_tokens or None
        case _:
            return None


def _system_digest(asked: ModelCallRequested) -> str:
    """Return the digest of what the conversation begins with in the roles system and developer, however it is cut or hinted."""
    said: list[Any] = []
    for turn in asked.new_turns:
        if turn.role not in SYSTEM:
            break
        said += [part.model_dump(mode="json", exclude={"cache"}, exclude_defaults=True) for part in turn.parts]
    for message in () if asked.new_turns else asked.new_messages:
        if message.role not in SYSTEM:
            break
        said.append({"type": "text", "text": message.content})
    return hashlib.sha256(pydantic_core.to_json(said)).hexdigest()


def _knobs(asked: ModelCallRequested, sampling: Sampling) -> Knobs:
    """Return what was in force: what the client asked for, or for a native agent the session's, with the configuration's over it."""
    own = sampling.model_dump() if asked.dialect is None else asked.parameters
    given = {**own, **asked.overrides}
    top_k = _number(given.get("top_k"))
    return Knobs(_number(given.get("temperature")), _number(given.get("top_p")), None if top_k is None else int(top_k))


def _number(value: Any) -> float | None:
    return value if isinstance(value, int | float) and not isinstance(value, bool) else None
