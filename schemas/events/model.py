"""Model calls. Written by `model`: the gateway library, in the process that drives the conversation."""

from __future__ import annotations

from typing import ClassVar, Literal

from schemas.base import Answer, Event
from schemas.values import Failure, Message, Usage

StopReason = Literal["stop", "tool_calls", "length", "content_filter"]


class ModelCallRequested(Event):
    """A model is asked, for the `tries`-th time, to continue a conversation.

    `new_messages` is only what was added since the call `parent_id`; `context_digest` is over the whole conversation.
    """

    TYPE: ClassVar[str] = "model_call_requested.v1"

    turn: int
    tries: int
    parent_id: str | None
    new_messages: tuple[Message, ...]
    context_digest: str


class ModelCallCompleted(Answer):
    """A model answered; never asked again for this turn. Times in seconds."""

    TYPE: ClassVar[str] = "model_call_completed.v1"

    turn: int
    message: Message
    stop_reason: StopReason
    usage: Usage
    duration_s: float


class ModelCallFailed(Answer):
    """A try failed; `retry_in_s` is the wait before the next one, None if there is none."""

    TYPE: ClassVar[str] = "model_call_failed.v1"

    turn: int
    failure: Failure
    retry_in_s: float | None
    duration_s: float


class ModelCallLost(Answer):
    """A try's worker died before its outcome was recorded; it may have been billed."""

    TYPE: ClassVar[str] = "model_call_lost.v1"

    turn: int
