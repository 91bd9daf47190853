"""Giving a session that waits for it a further input, and hearing what came of it; all of it is in the log, and nowhere else."""

from __future__ import annotations

import asyncio
import re
import secrets
import time
from collections.abc import Callable
from contextlib import suppress
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
    RequestParked,
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
INPUT_MAX_BYTES: Final = 1024 * 1024
NAME: Final = re.compile(r"[A-Za-z0-9_-]+")


class NotTaken(Permanent):
    """A session did not take an input; the message says why."""


class Overtaken(NotTaken):
    """Somebody else gave another input under the same number before."""


class NoAnswerYet(Retryable):
    """The answer to an input is not there yet: to the one that was given, or to the one before it."""


@dataclass
class Standing:
    """A rollout's newest session as its log tells it: the activations that it took, by number, and what came of each.

    The first `own` of them are its task's, or were given to an earlier attempt. `refused` has the reasons for inputs that were not
    taken, by the events that gave them.
    """

    run_id: str
    rollout_id: str
    attempt: int = 0
    own: int = 1
    is_waiting_allowed: bool = False
    inputs: dict[int, str] = field(default_factory=dict)
    fingerprints: dict[int, str] = field(default_factory=dict)
    answers: dict[int, ActivationCompleted | ActivationFailed] = field(default_factory=dict)
    refused: dict[str, str] = field(default_factory=dict)
    end: SessionClosed | SessionFailed | None = None
    parked: str | None = None
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
            self.attempt, self.end, self.parked = event.attempt, None, None
            self.is_waiting_allowed = data.task.awaits_input_s is not None
            self.own = 1 + len(data.task.follow_ups)
            self.inputs, self.fingerprints, self.answers = {}, {}, {}
            self._take(1, fingerprint_of(data.task.messages), data.task.messages)
        if event.attempt != self.attempt:
            return
        match data:
            case ActivationStarted():
                self._take(data.activation, data.fingerprint, data.messages)
            case ActivationCompleted() | ActivationFailed():
                self.answers.setdefault(data.activation, data)
            case ActivationRefused():
                self.refused[data.asked_id] = data.reason
            case SessionClosed() | SessionFailed():
                self.end = data
            case RequestParked() if data.request_type.startswith("session_requested."):
                self.parked = data.failure.message
            case _:
                pass

    def _take(self, number: int, fingerprint: str, messages: tuple[Message, ...]) -> None:
        self.inputs[number] = "\n\n".join(message.content or "" for message in messages if message.role == "user")
        self.fingerprints[number] = fingerprint

    @property
    def newest(self) -> int:
        """Return the number of the newest activation."""
        return max(self.fingerprints)

    @property
    def stands(self) -> str:
        """Return in a word how it stands."""
        if self.parked or self.end:
            return "parked" if self.parked else "over"
        return "waits for an input" if self.is_waiting_allowed and self.is_waiting else "works"

    @property
    def is_waiting(self) -> bool:
        """Say whether its newest input has its answer, and the next one is not its own."""
        return self.newest >= self.own and self.newest in self.answers


async def standing_of(log: EventLog, run_id: str, rollout_id: str) -> Standing:
    """Return a rollout's newest session; raises `Permanent` if it has none yet."""
    standing = Standing(run_id, rollout_id)
    if NAME.fullmatch(run_id) and NAME.fullmatch(rollout_id):
        await standing.refresh(log)
    if standing.attempt == 0:
        msg = f"run {run_id} has no session of a rollout {rollout_id} (yet): `gym-bus eval status {run_id}` lists what is under way"
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
    """Give a session its `activation`-th input, and wait for what comes of it; return its number in `standing`.

    Without a number it is the next one, and what is under way is waited for first. The same input for the same number is taken once:
    its answer is found again. Raises `NotTaken`, and `NoAnswerYet` after `within_s` seconds, with which nothing ends.
    """
    if len(words.encode(errors="replace")) > INPUT_MAX_BYTES:
        raise NotTaken(f"an input has {INPUT_MAX_BYTES:,} bytes at most")
    messages = (Message(role="user", content=log.codec.cleaned(words)),)
    deadline = time.monotonic() + within_s
    if activation is not None:
        return await _given(log, standing, messages, activation, deadline)
    while True:
        await _until(log, standing, deadline, lambda: standing.is_waiting)
        number = standing.newest + 1
        with suppress(Overtaken):
            return await _given(log, standing, messages, number, deadline)


async def _given(log: EventLog, standing: Standing, messages: tuple[Message, ...], number: int, deadline: float) -> int:
    fingerprint = fingerprint_of(messages)
    given = None
    if standing.fingerprints.get(number) != fingerprint:
        _check_open(standing)
        asked = ActivationAsked(activation=number, fingerprint=fingerprint, messages=messages)
        given = await _append(log, standing, asked)

    def is_answered() -> bool:
        if given and (reason := standing.refused.get(given.event_id)):
            raise (Overtaken if number in standing.fingerprints else NotTaken)(reason)
        return standing.fingerprints.get(number) == fingerprint and number in standing.answers

    await _until(log, standing, deadline, is_answered, number)
    return number


async def _until(
    log: EventLog, standing: Standing, deadline: float, holds: Callable[[], bool], number: int | None = None
) -> None:
    """Look at the log until `holds()`, which may raise; raises `NotTaken` where the session ends before, and `NoAnswerYet`.

    What is waited for is the answer to the input of this `number`, or, without one, that any input can be given.
    """
    attempt = standing.attempt
    while True:
        await standing.refresh(log)
        if standing.attempt != attempt:
            raise NotTaken(
                f"attempt {attempt} is over: attempt {standing.attempt} begins anew, and is given what was taken before it"
            )
        if holds():
            return
        _check_open(standing)
        if time.monotonic() >= deadline:
            raise NoAnswerYet(
                f"no answer in that time; the session goes on: say the same with --activation {number} to wait for it"
                if number
                else f"activation {standing.newest} has no answer in that time, so this was not given: say it later"
            )
        await asyncio.sleep(LOOK_EVERY_S)


async def end(log: EventLog, standing: Standing) -> None:
    """Say that a session gets no further input; raises `NotTaken` if it waits for none."""
    _check_open(standing)
    await _append(log, standing, SessionEndAsked())


def _check_open(standing: Standing) -> None:
    where = f"the session of {standing.run_id}/{standing.rollout_id}"
    if isinstance(standing.end, SessionFailed):
        raise NotTaken(f"{where} failed: {standing.end.failure.kind}: {standing.end.failure.message}")
    if standing.parked:
        raise NotTaken(f"{where} is parked: {standing.parked}: `gym-bus dlq list`")
    if standing.end:
        raise NotTaken(f"{where} is closed: it takes no further input")
    if not standing.is_waiting_allowed:
        raise NotTaken(f"{where} waits for no input from outside: its task has no awaits_input_s")


async def _append(log: EventLog, standing: Standing, data: Event) -> Envelope:
    key = f"input-{secrets.token_hex(6)}"
    where = aggregate(standing.run_id, standing.rollout_id, USER, key, 1)
    return await log.append_alone(where, standing.attempt, Draft(data, None))
