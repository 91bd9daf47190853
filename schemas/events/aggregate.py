"""Events that any kind of actor may write about its own aggregates."""

from __future__ import annotations

from typing import Any, ClassVar

from schemas.base import Answer, Event
from schemas.values import Failure


class Claimed(Event):
    """A worker became the writer of this aggregate; the stored sequence of this event is its epoch."""

    TYPE: ClassVar[str] = "claim.v1"

    worker: str
    nonce: str
    request_id: str | None = None


class Snapshot(Event):
    """The aggregate's state after all earlier events; the state is this plus the tail that follows."""

    TYPE: ClassVar[str] = "snapshot.v1"

    state: dict[str, Any]


class RequestParked(Answer):
    """A request that nobody could finish was set aside; it can be listed and driven again."""

    TYPE: ClassVar[str] = "request_parked.v1"

    request_type: str
    tries: int
    failure: Failure
