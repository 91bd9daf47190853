"""What a model is to the rest of gym-bus: one call, one answer, one way to fail."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import pydantic_core

from gym_bus.errors import GymBusError
from providers.dialects.counting import COUNT_MAX
from providers.models.evidence import TokenEvidence
from schemas.events.model import StopReason
from schemas.values import Failure, Message, Sampling, ToolSpec, Usage


@dataclass(frozen=True, slots=True)
class Target:
    """What the log says about where a call goes; see `schemas.events.ModelCallRequested`. `url` is None where nobody is called."""

    url: str | None
    route: str | None = None
    routing_digest: str | None = None
    overrides: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ModelCall:
    """One try at one call.

    `call_id` is the id of the try's `ModelCallRequested`; `turn` counts the conversation's calls from 1. `task_id`, `repeat` and
    `turn` identify what is asked independently of time, attempt and process. `session` says whose conversation it is: the calls of
    one session go to one address as long as that is there.
    """

    call_id: str
    task_id: str
    repeat: int
    turn: int
    tries: int
    messages: tuple[Message, ...]
    tools: tuple[ToolSpec, ...]
    sampling: Sampling
    parallel_tool_calls: bool = True
    session: str = ""


@dataclass(frozen=True, slots=True)
class ModelAnswer:
    """What came back, exactly as the model wrote it; `reply_id` and `served_model` are what the backend calls it and itself.

    `cost_usd` and `tokens` are the backend's own word, `queue_s` how long the call waited for its turn to be sent; None where nobody
    says.
    """

    message: Message
    stop_reason: StopReason
    usage: Usage
    cost_usd: float | None = None
    queue_s: float | None = None
    tokens: TokenEvidence | None = None
    reply_id: str | None = None
    served_model: str | None = None


def context_digest(parent: str, new_messages: Sequence[Message]) -> str:
    """Return the digest of a conversation: of its parent's digest and what is new, so that it costs what is new."""
    return hashlib.sha256(parent.encode() + pydantic_core.to_json(tuple(new_messages))).hexdigest()[:32]


def counted(tokens: int | None) -> int:
    """Return a backend's count of tokens; one that nobody can have counted (negative, beyond 2^53) is not known: 0."""
    return tokens if tokens is not None and 0 <= tokens <= COUNT_MAX else 0


class ModelError(GymBusError):
    """A call failed; `failure.terminal` says that repeating it cannot help. `retry_after_s` is the backend's own wish."""

    def __init__(self, failure: Failure, retry_after_s: float | None = None) -> None:
        """Keep the failure; its message is the error's text."""
        super().__init__(failure.message)
        self.failure = failure
        self.retry_after_s = retry_after_s


class Model(Protocol):
    """A model backend. One instance serves all calls of one configuration in a process."""

    async def target(self, call: ModelCall) -> Target:
        """Return where `call` will go, and what is laid over its parameters; its `call_id` is not known yet."""
        ...

    async def complete(self, call: ModelCall) -> ModelAnswer:
        """Answer `call`; raise `ModelError` for every failure, within the configured `timeout_s`."""
        ...

    async def aclose(self) -> None:
        """Give back connections."""
        ...
