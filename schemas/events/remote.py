"""An agent that somebody runs somewhere else: what it was asked, and what it said. All written by `harness`."""

from __future__ import annotations

from typing import ClassVar

from schemas.base import Event
from schemas.values import Failure


class RemoteAsked(Event):
    """A session asks the agent at `url` to do its `activation`-th input: under one key, however often it has to be asked.

    `session_id` is what the session is called to the agent, `idempotency_key` names this one thing that it is to do; both are unlike
    those of any other session. `model` is what the agent calls its model, `timeout_s` what it has. Its token for the gateway is made
    where it is asked, and is in no event.
    """

    TYPE: ClassVar[str] = "remote_asked.v1"

    activation: int
    url: str
    session_id: str
    idempotency_key: str
    model: str
    timeout_s: float


class RemoteAccepted(Event):
    """The agent has taken what it was asked, and says how it is getting on at `status_url`, its `number`-th such address.

    `asked_id` is the event that asked.
    """

    TYPE: ClassVar[str] = "remote_accepted.v1"

    asked_id: str
    status_url: str
    number: int = 1


class RemoteAnswered(Event):
    """The agent has come to an end: `answer` and `stop_reason`, or the `failure` that it tells of; all is its own word.

    `cleanup_confirmed` says whether something of it still runs, None where it does not say.
    """

    TYPE: ClassVar[str] = "remote_answered.v1"

    asked_id: str
    answer: str | None = None
    stop_reason: str = "stop"
    cleanup_confirmed: bool | None = None
    failure: Failure | None = None


class RemoteFailed(Event):
    """The agent could not be asked, or what it said was no answer. Whether it has done anything is not known."""

    TYPE: ClassVar[str] = "remote_failed.v1"

    asked_id: str
    failure: Failure
