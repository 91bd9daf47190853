"""The model of a recorded run, for native agents: every call is answered as it was, and the first that differs says where.

A call is found by its task, its repeat and its turn, and is the recorded one if all that it is told is: the context's digest, which the
log has, is worked out again from what is told now.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

from providers.models.base import ModelAnswer, ModelCall, ModelError, Target, context_digest
from providers.models.failures import failed
from providers.models.replay_difference import first_difference, parameter_difference
from providers.models.replay_recording import BadRecording, RecordedCall, RecordedSession, Recording
from schemas.config import ReplayModel as ReplayModelConfig
from schemas.events import ModelCallCompleted, ModelCallFailed


class Tape:
    """A recording that is read when it is first needed."""

    def __init__(self, path: str) -> None:
        """Read `path` later."""
        self._path = Path(path)
        self._recording: Recording | None = None
        self._reading = asyncio.Lock()

    async def session(self, task_id: str, repeat: int) -> RecordedSession:
        """Return what was said about a task; raises `ModelError` if nothing was, or the recording cannot be read."""
        session = await self.find(task_id, repeat)
        if session is None:
            raise diverged(task_id, repeat, "the recording has no rollout of it")
        return session

    async def find(self, task_id: str, repeat: int) -> RecordedSession | None:
        """Return what was said about a task, None if nothing was; raises `ModelError` if the recording cannot be read."""
        async with self._reading:
            if self._recording is None:
                try:
                    self._recording = await asyncio.to_thread(Recording, self._path)
                except BadRecording as error:
                    raise failed("provider_bad_request", f"model.recording: {error}", terminal=True) from error
        return self._recording.session(task_id, repeat)


class ReplayModel:
    """See the module."""

    def __init__(self, config: ReplayModelConfig) -> None:
        """Answer from `config.recording`."""
        self._tape = Tape(config.recording)

    async def target(self, call: ModelCall) -> Target:
        """Return that nobody is called, and what was laid over the parameters then: the log-probabilities are of those."""
        try:
            session = await self._tape.find(call.task_id, call.repeat)
        except ModelError:  # which the call itself will say
            session = None
        recorded = session.by_turn.get(call.turn) if session else None
        return Target(None, overrides=recorded.overrides if recorded else {})

    async def complete(self, call: ModelCall) -> ModelAnswer:
        """Answer as recorded; raise `ModelError` for what failed then, and for what was not asked then (`replay_diverged`)."""
        session = await self._tape.session(call.task_id, call.repeat)
        recorded = session.by_turn.get(call.turn)
        if recorded is None:
            text = f"call {call.turn} is not in the recording, which has {len(session.by_turn)}"
            raise diverged(call.task_id, call.repeat, text)
        while recorded.refused and _digest_now(recorded, call) != recorded.digest:
            recorded = recorded.refused
        if _digest_now(recorded, call) != recorded.digest:
            difference = first_difference(recorded.messages(), call.messages)
            text = difference or "the recording contradicts itself: the context's digest is of something else"
            raise diverged(call.task_id, call.repeat, f"call {call.turn}, {text}")
        if changed := parameter_difference(session.sampling.model_dump(), call.sampling.model_dump()):
            raise diverged(call.task_id, call.repeat, f"call {call.turn}, {changed}")
        outcome = outcome_of(recorded, call.tries, call.task_id, call.repeat)
        return ModelAnswer(outcome.message, outcome.stop_reason, outcome.usage, tokens=session.evidence(outcome))

    async def aclose(self) -> None:
        """Give back nothing."""


def _digest_now(recorded: RecordedCall, call: ModelCall) -> str | None:
    """Return the digest of what is told now, cut where the recording is cut; None if it cannot be cut so."""
    line: list[RecordedCall] = [recorded]
    while line[-1].before is not None:
        line.append(line[-1].before)
    digest, place = "", 0
    for earlier in reversed(line):
        for added in earlier.new_messages:
            digest = context_digest(digest, call.messages[place : place + len(added)])
            place += len(added)
        if earlier is not recorded:
            if earlier.answer is None or call.messages[place : place + 1] != (earlier.answer.message,):
                return None
            place += 1
    return digest if place == len(call.messages) else None


def outcome_of(recorded: RecordedCall, tries: int, task_id: str, repeat: int) -> ModelCallCompleted:
    """Return the recorded answer of a try; raises `ModelError` if it failed, or nothing came of it.

    What came of the last try stands for those that a replay makes beyond it, as it does when a process dies.
    """
    outcomes = recorded.outcomes
    tries = max(1, tries - len(recorded.refused.outcomes)) if recorded.refused else tries
    outcome = outcomes[min(tries, len(outcomes)) - 1] if outcomes else None
    has_more = isinstance(outcome, ModelCallFailed) and outcome.retry_in_s is not None
    if outcome is None or (has_more and tries > len(outcomes)):
        raise diverged(task_id, repeat, f"call {recorded.turn}: the recording ends before its answer")
    if isinstance(outcome, ModelCallFailed):
        raise ModelError(outcome.failure, outcome.retry_in_s)
    return outcome


def diverged(task_id: str, repeat: int, text: str) -> ModelError:
    """Return the error for a call that the recording does not hold."""
    return failed("replay_diverged", f"task {task_id}, repeat {repeat}: {text}", terminal=True)
