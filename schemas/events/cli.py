"""What the command line says beside asking for runs: to try a parked request again, and further inputs. Written by `cli`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Final

from schemas.base import Event
from schemas.values import Message


class RequestRedriven(Event):
    """A parked request is to be tried again: the event stored as `original_sequence` under `original_subject`.

    One class for each kind of actor that may be asked, because a request's type says to whom it goes. `request_id` is
    the original's id: what answers it answers the original.
    """

    original_subject: str
    original_sequence: int
    request_id: str


class CollectorRequestRedriven(RequestRedriven):
    """A request to the collector is to be tried again."""

    TYPE: ClassVar[str] = "collector_request_redriven.v1"
    TO: ClassVar[str | None] = "collector"


class HarnessRequestRedriven(RequestRedriven):
    """A request to the harness is to be tried again."""

    TYPE: ClassVar[str] = "harness_request_redriven.v1"
    TO: ClassVar[str | None] = "harness"


class SandboxRequestRedriven(RequestRedriven):
    """A request to the sandbox actor is to be tried again."""

    TYPE: ClassVar[str] = "sandbox_request_redriven.v1"
    TO: ClassVar[str | None] = "sandbox"


class VerifierRequestRedriven(RequestRedriven):
    """A request to the verifier is to be tried again."""

    TYPE: ClassVar[str] = "verifier_request_redriven.v1"
    TO: ClassVar[str | None] = "verifier"


class ActivationAsked(Event):
    """Somebody gives a session its `activation`-th input; `messages` is all that is new in it.

    Whether it is taken the session says: with `ActivationStarted`, with `ActivationRefused`, or not at all where the same was taken.
    """

    TYPE: ClassVar[str] = "activation_asked.v1"

    activation: int
    fingerprint: str
    messages: tuple[Message, ...]


class SessionEndAsked(Event):
    """Somebody says that a session gets no further input: once nothing is under way, it is closed."""

    TYPE: ClassVar[str] = "session_end_asked.v1"


REDRIVEN: Final[Mapping[str, type[RequestRedriven]]] = {
    "collector": CollectorRequestRedriven,
    "harness": HarnessRequestRedriven,
    "sandbox": SandboxRequestRedriven,
    "verifier": VerifierRequestRedriven,
}
