"""Which sessions are open, and what each may call: read from the log, and remembered for a few seconds."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from actors.gateway.grants import Grant, Refused, SessionOver
from gym_bus.clock import Clock
from gym_bus.event_log import EventLog
from schemas.events import (
    ActivationCompleted,
    ActivationFailed,
    SandboxRequested,
    SessionClosed,
    SessionFailed,
    SessionRequested,
)

TRUSTED_FOR_S: Final = 5.0
KEPT: Final = 10_000
SHARD_PATTERN: Final = "gym.evt.{shard}.{run}.{rollout}.collector._.cmd.harness.*"


@dataclass(frozen=True, slots=True)
class OpenSession:
    """What opened a session: the request, its event's id, and when it was made."""

    request: SessionRequested
    request_id: str
    asked_at: datetime


@dataclass(frozen=True, slots=True)
class _Known:
    session: OpenSession
    looked_at: float


class Sessions:
    """See the module."""

    def __init__(self, log: EventLog, clock: Clock) -> None:
        """Read `log`."""
        self._log = log
        self._clock = clock
        self._known: OrderedDict[Grant, _Known] = OrderedDict()

    async def find(self, grant: Grant) -> OpenSession:
        """Return what opened the grant's session; raises `Refused` if it is not open."""
        now = self._clock.monotonic()
        known = self._known.get(grant)
        if known is None or now - known.looked_at > TRUSTED_FOR_S:
            known = await self._look(grant, known, now)
            self._known[grant] = known
            self._known.move_to_end(grant)
            if len(self._known) > KEPT:
                self._known.popitem(last=False)
        return known.session

    async def _look(self, grant: Grant, known: _Known | None, now: float) -> _Known:
        where = grant.conversation
        session = where.sibling("harness", where.key)
        async for event in self._log.read(f"{session.prefix}.>", latest=True):
            match event.data:
                case SessionClosed() | SessionFailed():
                    what = "session"
                case ActivationCompleted(activation=ended) | ActivationFailed(activation=ended) if (
                    ended >= grant.activation
                ):
                    what = "activation"
                case SandboxRequested(number=newest) if newest > grant.launch:
                    what = "sandbox"
                case _:
                    continue
            self._known.pop(grant, None)
            msg = f"the {what} that this token was for is over"
            raise SessionOver(msg) if what == "session" else Refused(msg)
        if known:
            return _Known(known.session, now)
        pattern = SHARD_PATTERN.format(shard=where.shard, run=where.run_id, rollout=where.rollout_id)
        async for event in self._log.read(pattern):
            if isinstance(event.data, SessionRequested) and event.attempt == grant.attempt:
                return _Known(OpenSession(event.data, event.event_id, event.recorded_at), now)
        msg = "no session was ever opened for this token"
        raise Refused(msg)
