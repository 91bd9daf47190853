"""The conversations that a gateway has in memory, and how many calls each may have under way, and make in a second."""

from __future__ import annotations

import itertools
from collections import OrderedDict
from dataclasses import dataclass
from http import HTTPStatus
from typing import Final

from actors.budget import RunSpending
from actors.gateway.conversation import Conversation
from actors.gateway.grants import Grant
from actors.gateway.sessions import OpenSession
from gym_bus.clock import Clock
from gym_bus.errors import GymBusError
from gym_bus.event_log import EventLog
from gym_bus.runtime.presence import Presence

IN_FLIGHT_MAX: Final = 2048
SESSION_IN_FLIGHT_MAX: Final = 64
SESSION_PER_S: Final = 50.0
SESSION_BURST: Final = 200.0
"""Some agents ask again at once, for ever, when an answer does not please them: this many calls, then `SESSION_PER_S`."""
KEPT: Final = 10_000
IDLE_S: Final = 600.0
SWEPT_AT_ONCE: Final = 8
"""What nobody has asked for ten minutes is forgotten, and read from the log again if somebody does; looked for a few at a time."""


class TooMuch(GymBusError):
    """More than may be at once, or larger than it may be."""

    def __init__(self, status: int, message: str) -> None:
        """Say what, with the HTTP status for it."""
        super().__init__(message)
        self.status = status


@dataclass(slots=True)
class Known:
    """A conversation, how many of its calls are under way, and how many more may begin at once (as of `counted_at`)."""

    name: str
    conversation: Conversation
    counted_at: float
    in_flight: int = 0
    allowance: float = SESSION_BURST


class Conversations:
    """See the module."""

    def __init__(self, log: EventLog, clock: Clock, presence: Presence) -> None:
        """Record in `log`; a conversation that another gateway has is left to it while `presence` knows it alive."""
        self._log = log
        self._presence = presence
        self._clock = clock
        self._spending = RunSpending(log, clock)
        self._known: OrderedDict[str, Known] = OrderedDict()
        self._in_flight = 0

    def begin(self, grant: Grant, session: OpenSession) -> Known:
        """Count a call in; whoever gets a conversation says `end` of it. Raises `TooMuch`."""
        known = self._known.get(grant.session) or self._made(grant, session)
        now = self._clock.monotonic()
        known.allowance = min(SESSION_BURST, known.allowance + (now - known.counted_at) * SESSION_PER_S)
        known.counted_at = now
        if known.in_flight >= SESSION_IN_FLIGHT_MAX:
            raise _too_many(f"{known.in_flight} calls of this session are under way already")
        if self._in_flight >= IN_FLIGHT_MAX:
            raise _too_many(f"{self._in_flight} calls are under way already")
        if known.allowance < 1:
            raise _too_many(f"this session makes more than {SESSION_PER_S:g} calls a second")
        known.allowance -= 1
        known.in_flight += 1
        self._in_flight += 1
        return known

    def end(self, known: Known) -> None:
        """Count a call out."""
        known.in_flight -= 1
        self._in_flight -= 1

    def drop(self, grant: Grant) -> None:
        """Give back the memory of a conversation whose session is over, unless a call of it is still under way."""
        known = self._known.get(grant.session)
        if known and known.in_flight == 0:
            del self._known[grant.session]

    def _made(self, grant: Grant, session: OpenSession) -> Known:
        now = self._clock.monotonic()
        for name in list(itertools.islice(self._known, SWEPT_AT_ONCE)):  # those that were asked the longest ago
            known = self._known[name]
            is_idle = now - known.counted_at > IDLE_S or len(self._known) >= KEPT
            if known.in_flight or not is_idle:
                self._known.move_to_end(name)
            else:
                del self._known[name]
        conversation = Conversation(self._log, grant, session, self._spending, self._presence)
        known = self._known[grant.session] = Known(grant.session, conversation, self._clock.monotonic())
        return known


def _too_many(message: str) -> TooMuch:
    return TooMuch(HTTPStatus.TOO_MANY_REQUESTS, message)
