"""A recorded run in memory: which model calls each conversation made, what was known at each, and what came of it.

The file is what `gym-bus log export` writes: one envelope as JSON a line. Of a rollout that was tried several times the last attempt
counts. A try whose worker died has no outcome, and stands for nothing here.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from pydantic import ValidationError

from gym_bus.errors import Permanent
from providers.models.evidence import TokenEvidence
from providers.models.recorded_answer import parts_of
from schemas.base import Event
from schemas.conversation import Turn
from schemas.events import ModelCallCompleted, ModelCallFailed, ModelCallRequested, SessionRequested
from schemas.registry import EVENT_TYPES, upcast
from schemas.values import Message, Sampling

NEEDED: Final = (SessionRequested, ModelCallRequested, ModelCallCompleted, ModelCallFailed)
UNDECODABLE: Final = "undecodable"
"""What an export says of an event that it could not read."""
CALLS_MAX: Final = 1_000_000
Outcome = ModelCallCompleted | ModelCallFailed


class BadRecording(Permanent):
    """A recording cannot be read; the message names the file and the line."""


@dataclass
class RecordedCall:
    """One call of a conversation with the outcomes of its tries, in order.

    `overrides` are the parameters that its configuration laid over, `parameters` what the client of a gateway asked for.
    `before` is the call that it continues. `new_messages` are what a native agent added since, one list for each try that added
    some; `new_turns` the same of a call through the gateway. `refused` is the same turn as it was asked in a longer context.
    """

    turn: int
    digest: str
    before: RecordedCall | None
    refused: RecordedCall | None = None
    new_messages: list[tuple[Message, ...]] = field(default_factory=list)
    new_turns: tuple[Turn, ...] = ()
    overrides: Mapping[str, Any] = field(default_factory=dict)
    parameters: Mapping[str, Any] = field(default_factory=dict)
    outcomes: list[Outcome] = field(default_factory=list)

    @property
    def answer(self) -> ModelCallCompleted | None:
        """Return what the model said in the end, None if it never answered."""
        return next((o for o in reversed(self.outcomes) if isinstance(o, ModelCallCompleted)), None)

    def messages(self) -> tuple[Message, ...]:
        """Return all that a native agent's call was told."""
        told: list[Message] = []
        for call in self._line():
            told += [message for added in call.new_messages for message in added]
            if call is not self and call.answer:
                told.append(call.answer.message)
        return tuple(told)

    def turns(self) -> tuple[Turn, ...]:
        """Return all that a call through the gateway was told."""
        told: list[Turn] = []
        for call in self._line():
            told += call.new_turns
            if call is not self and call.answer:
                told.append(Turn(role="assistant", parts=parts_of(call.answer)))
        return tuple(told)

    def _line(self) -> list[RecordedCall]:
        line: list[RecordedCall] = []
        at: RecordedCall | None = self
        while at is not None:
            line.append(at)
            at = at.before
        return line[::-1]


@dataclass
class RecordedSession:
    """One conversation: a native agent's calls by their turn, calls through the gateway by the digest of what they were told."""

    attempt: int
    sampling: Sampling
    by_turn: dict[int, RecordedCall] = field(default_factory=dict)
    by_digest: dict[str, RecordedCall] = field(default_factory=dict)
    _by_id: dict[str, RecordedCall] = field(default_factory=dict)
    _token_ids: dict[str, tuple[int, ...]] = field(default_factory=dict)

    def ask(self, event_id: str, asked: ModelCallRequested) -> None:
        """Take in a try."""
        calls: dict[Any, RecordedCall] = self.by_turn if asked.dialect is None else self.by_digest
        name = asked.turn if asked.dialect is None else asked.context_digest
        known = calls.get(name)
        is_shrunk = known is not None and known.before is not None and asked.dialect is None and not asked.parent_id
        if known is None or is_shrunk:
            before = self._by_id.get(asked.parent_id) if asked.parent_id else None
            calls[name] = RecordedCall(
                asked.turn,
                asked.context_digest,
                before,
                refused=known,
                new_turns=asked.new_turns,
                overrides=asked.overrides,
                parameters=asked.parameters,
            )
        if asked.new_messages:
            calls[name].new_messages.append(asked.new_messages)
        self._by_id[event_id] = calls[name]

    def settle(self, outcome: Outcome) -> None:
        """Take in what came of a try."""
        if call := self._by_id.get(outcome.request_id):
            call.outcomes.append(outcome)
        if isinstance(outcome, ModelCallCompleted) and outcome.tokens:
            tokens = outcome.tokens
            known = self._token_ids.get(tokens.parent_id, ()) if tokens.parent_id else ()
            self._token_ids[outcome.request_id] = (*known[: tokens.shared], *tokens.prompt, *tokens.generated)

    def evidence(self, answer: ModelCallCompleted) -> TokenEvidence | None:
        """Return what was recorded about an answer's tokens, None if nothing was."""
        if (tokens := answer.tokens) is None:
            return None
        ids = self._token_ids[answer.request_id]
        prompt = ids[: len(ids) - len(tokens.generated)]
        return TokenEvidence(
            prompt,
            tokens.generated,
            tokens.logprobs,
            tokens.logprob_kind,
            answer.policy_versions,
            answer.untrainable,
        )


class Recording:
    """See the module."""

    def __init__(self, path: Path) -> None:
        """Read `path`; raises `BadRecording`."""
        self.path = path
        self._sessions: dict[tuple[str, int], RecordedSession] = {}
        names: dict[tuple[str, int], tuple[str, int]] = {}
        calls = 0
        for line, head, event in recorded_events(path, NEEDED):
            rollout = (head["rollout_id"], head["attempt"])
            if isinstance(event, SessionRequested):
                name = names[rollout] = (event.task.task_id, event.repeat)
                known = self._sessions.get(name)
                if known is None or known.attempt < head["attempt"]:
                    self._sessions[name] = RecordedSession(head["attempt"], event.sampling)
                continue
            session = self._sessions.get(names.get(rollout, ("", -1)))
            if session is None or session.attempt != head["attempt"]:
                continue
            if isinstance(event, ModelCallRequested):
                session.ask(head["event_id"], event)
                calls += 1
            elif isinstance(event, ModelCallCompleted | ModelCallFailed):
                session.settle(event)
            if calls > CALLS_MAX:
                msg = f"{path}:{line}: more than {CALLS_MAX:,} model calls"
                raise BadRecording(msg)

    def session(self, task_id: str, repeat: int) -> RecordedSession | None:
        """Return the conversation about a task in a repeat, None if there was none."""
        return self._sessions.get((task_id, repeat))


def recorded_events(path: Path, kinds: Sequence[type[Event]]) -> Iterator[tuple[int, dict[str, Any], Event]]:
    """Yield the events of these kinds, with the number of their line and the rest of their envelope; raises `BadRecording`."""
    needed = {cls.TYPE for cls in kinds}
    try:
        with path.open(encoding="utf-8") as lines:
            for number, line in enumerate(lines, 1):
                if not line.strip():
                    continue
                try:
                    head = json.loads(line)
                    if head["type"] == UNDECODABLE:
                        continue
                    type_, data = upcast(head["type"], head.pop("data"))
                    if type_ in needed:
                        yield number, head, EVENT_TYPES[type_].model_validate(data)
                except (ValueError, TypeError, LookupError, AttributeError, ValidationError, RecursionError) as error:
                    msg = f"{path}:{number}: no event as `gym-bus log export` writes them: {str(error)[:200]}"
                    raise BadRecording(msg) from error
    except (OSError, UnicodeDecodeError) as error:
        msg = f"{path}: cannot be read: {error}"
        raise BadRecording(msg) from error
