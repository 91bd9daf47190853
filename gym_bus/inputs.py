"""Giving a session that waits for it a further input, and hearing what came of it; all of it is in the log, and nowhere else."""

from __future__ import annotations

import asyncio
import secrets
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from gym_bus.codec import Undecodable
from gym_bus.errors import Permanent, Retryable
from gym_bus.event_log import Draft
from gym_bus.subjects import aggregate
from schemas.base import Event
from schemas.envelope import Envelope
from schemas.events import (
    ActivationAsked,
    ActivationCompleted,
    ActivationFailed,
    ActivationRefused,
    ActivationStarted,
    SessionClosed,
    SessionEndAsked,
    SessionFailed,
    SessionRequested,
)
from schemas.tasks import fingerprint_of
from schemas.values import Message

if TYPE_CHECKING:
    from gym_bus.event_log import EventLog

USER: Final = "cli"
LOOK_EVERY_S: Final = 0.2


class NotTaken(Permanent):
    """A session did not take an input; the message says why."""


class NoAnswerYet(Retryable):
    """An input was given, and its answer is not there yet."""


@dataclass
class Standing:
    """A rollout's newest session as its log tells it: the activations that it took, by number, and what came of each.

    `refused` has the reasons for inputs that were not taken, by the events that gave them.
    """

    run_id: str
    rollout_id: str
    attempt: int = 0
    is_waiting_allowed: bool = False
    fingerprints: dict[int, str] = field(default_factory=dict)
    answers: dict[int, ActivationCompleted | ActivationFailed] = field(default_factory=dict)
    refused: dict[str, str] = field(default_factory=dict)
    end: SessionClosed | SessionFailed | None = None
    _after: int = 0

    async def refresh(self, log: EventLog, shard: int = 0) -> None:
        """Take in what is new in the log."""
        async for stored in log.bus.read(f"gym.evt.{shard}.{self.run_id}.{self.rollout_id}.>", after=self._after):
            self._after = stored.sequence
            try:
                self._fold(log.decode(stored))
            except Undecodable:
                continue

    def _fold(self, event: Envelope) -> None:
        data = event.data
        if isinstance(data, SessionRequested) and event.attempt > self.attempt:
            self.attempt, self.end = event.attempt, None
            self.is_waiting_allowed = data.task.awaits_input_s is not None
            self.fingerprints, self.answers = {1: fingerprint_of(data.task.messages)}, {}
        if event.attempt != self.attempt:
            return
        match data:
            case ActivationStarted():
                self.fingerprints.setdefault(data.activation, data.fingerprint)
            case ActivationCompleted() | ActivationFailed():
                self.answers.setdefault(data.activation, data)
            case ActivationRefused():
                self.refused[data.asked_id] = data.reason
            case SessionClosed() | SessionFailed():
                self.end = data
            case _:
                pass


async def standing_of(log: EventLog, run_id: str, rollout_id: str) -> Standing:
    """Return a rollout's newest session; raises `Permanent` if it has none yet."""
    standing = Standing(run_id, rollout_id)
    await standing.refresh(log)
    if standing.attempt == 0:
        msg = f"there is no session of rollout {rollout_id} in run {run_id}: `gym-bus eval status {run_id}` lists what is under way"
        raise Permanent(msg)
    return standing


async def give(
    log: EventLog,
    standing: Standing,
    words: str,
    *,
    activation: int | None = None,
    within_s: float,
) -> int:
    """Give a session its next input, or its `activation`-th, and wait for what comes of it; return its number in `standing`.

    The same input for the same number is taken once: its answer is returned again. Raises `NotTaken`, and `NoAnswerYet` after
    `within_s` seconds, with which nothing ends.
    """
    messages = (Message(role="user", content=words),)
    number, fingerprint = activation or max(standing.fingerprints) + 1, fingerprint_of(messages)
    is_known = standing.fingerprints.get(number) == fingerprint
    if not is_known:
        _check_open(standing)
    asked = ActivationAsked(activation=number, fingerprint=fingerprint, messages=messages)
    given = None if is_known else await _append(log, standing, asked)
    attempt, deadline = standing.attempt, time.monotonic() + within_s
    while True:
        await standing.refresh(log)
        if standing.attempt != attempt:
            raise NotTaken(
                f"attempt {attempt} is over, and attempt {standing.attempt} begins with the task's first input"
            )
        if given and (reason := standing.refused.get(given.event_id)):
            raise NotTaken(reason)
        if standing.fingerprints.get(number) == fingerprint and number in standing.answers:
            return number
        _check_open(standing)
        if time.monotonic() >= deadline:
            msg = f"no answer within {within_s:g} s; the session goes on: say the same with --activation {number} to wait for it"
            raise NoAnswerYet(msg)
        await asyncio.sleep(LOOK_EVERY_S)


async def end(log: EventLog, standing: Standing) -> None:
    """Say that a session gets no further input; raises `NotTaken` if it waits for none."""
    _check_open(standing)
    await _append(log, standing, SessionEndAsked())


def _check_open(standing: Standing) -> None:
    where = f"the session of {standing.run_id}/{standing.rollout_id}"
    if isinstance(standing.end, SessionFailed):
        raise NotTaken(f"{where} failed: {standing.end.failure.kind}: {standing.end.failure.message}")
    if standing.end:
        raise NotTaken(f"{where} is closed: it takes no further input")
    if not standing.is_waiting_allowed:
        raise NotTaken(f"{where} waits for no input from outside: its task has no awaits_input_s")


async def _append(log: EventLog, standing: Standing, data: Event) -> Envelope:
    key = f"input-{secrets.token_hex(6)}"
    where = aggregate(standing.run_id, standing.rollout_id, USER, key, 1)
    return await log.append_alone(where, standing.attempt, Draft(data, None))
