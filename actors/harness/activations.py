"""The inputs of a session, numbered from 1: which may be begun now, which has its answer already, which is refused and why.

All of it is folded from the session's own log, so it holds for whoever takes the session over, on whatever host.
"""

from __future__ import annotations

from dataclasses import dataclass

from schemas.base import Frozen
from schemas.tasks import DoneActivation, Evidence, TaskInput, fingerprint_of
from schemas.values import Failure


class Taken(Frozen):
    """An input that the session has begun with, and what came of it: `answer` or `failure`, neither while it is under way."""

    index: int
    fingerprint: str
    answer: Evidence | None = None
    failure: Failure | None = None

    @property
    def is_open(self) -> bool:
        """Say whether it is under way."""
        return self.answer is None and self.failure is None


@dataclass(frozen=True, slots=True)
class Begin:
    """The input is the next one."""


@dataclass(frozen=True, slots=True)
class Refused:
    """The input is not taken, for a reason that is told."""

    reason: str


class Course(Frozen):
    """The inputs that a session has taken, in order: their numbers are their places, from 1."""

    taken: tuple[Taken, ...] = ()

    @property
    def current(self) -> int:
        """Return the number of the newest activation."""
        return len(self.taken)

    @property
    def is_between(self) -> bool:
        """Say whether the newest activation has its answer, and none is under way."""
        return bool(self.taken) and self.taken[-1].answer is not None

    def is_open(self, index: int) -> bool:
        """Say whether activation `index` is under way."""
        return 0 < index <= len(self.taken) and self.taken[index - 1].is_open

    def judged(self, index: int, fingerprint: str) -> Begin | Taken | Refused:
        """Say what becomes of an input: it is begun, or was taken before (with its answer, if it has one by now), or is refused."""
        if 0 < index <= len(self.taken):
            known = self.taken[index - 1]
            if known.fingerprint == fingerprint:
                return known
            return Refused(f"activation {index} was given another input before")
        last = self.taken[-1] if self.taken else None
        if last and last.failure:
            return Refused(f"activation {last.index} failed ({last.failure.kind}): the session takes no further input")
        if index != len(self.taken) + 1:
            return Refused(f"activation {index} is out of order: the next one is {len(self.taken) + 1}")
        if last and last.is_open:
            return Refused(f"activation {last.index} is still under way")
        return Begin()

    def begun(self, index: int, fingerprint: str) -> Course:
        """Return the course with an input that is taken; the same course if it is not."""
        if not isinstance(self.judged(index, fingerprint), Begin):
            return self
        return Course(taken=(*self.taken, Taken(index=index, fingerprint=fingerprint)))

    def ended(self, index: int, answer: Evidence | None = None, failure: Failure | None = None) -> Course:
        """Return the course with what came of activation `index`, if that was not known yet."""
        if not self.is_open(index):
            return self
        done = self.taken[index - 1].replaced(answer=answer, failure=failure)
        return Course(taken=(*self.taken[: index - 1], done, *self.taken[index:]))

    def whole(self, last: Evidence) -> Evidence:
        """Return what the session as a whole is closed with: the last answer, and the turns of all activations."""
        return last.replaced(turns=sum(done.answer.turns for done in self.taken if done.answer))

    def record(self) -> tuple[DoneActivation, ...]:
        """Return what came of each activation, where there was more than one."""
        return tuple(
            DoneActivation(
                activation=done.index,
                fingerprint=done.fingerprint,
                stop_reason=done.answer.stop_reason,
                turns=done.answer.turns,
            )
            for done in self.taken
            if done.answer and len(self.taken) > 1
        )


def begun_with(task: TaskInput) -> Course:
    """Return the course of a session that has just been asked for: its first input is the request's."""
    return Course().begun(1, fingerprint_of(task.messages))


def is_at_limit(answer: Evidence) -> bool:
    """Say whether an answer ended at a limit that holds for the inputs after it too."""
    return answer.stop_reason == "max_steps" or answer.stop_reason.startswith("budget:")


def is_last(task: TaskInput, index: int, answer: Evidence) -> bool:
    """Say whether nothing can follow activation `index`: it had the last input, or a limit was reached that holds for all."""
    return is_at_limit(answer) or (index > len(task.follow_ups) and not task.awaits_input_s)
