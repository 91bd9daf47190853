"""Model calls. Written by `model`: the gateway library, in the process that drives the conversation."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

from pydantic import Field

from schemas.base import Answer, Event
from schemas.config import BudgetLimit
from schemas.conversation import DialectName, HostedTool, Part, Tool, Turn
from schemas.tokens import CallTokens
from schemas.values import Failure, Message, Usage

StopReason = Literal["stop", "tool_calls", "length", "content_filter"]


class ModelCallRequested(Event):
    """A model is asked, for the `tries`-th time, to continue a conversation.

    `new_messages` is only what was added since the call `parent_id`; `context_digest` is over the whole conversation.

    A call that came through the gateway says instead: `new_turns`, in the `dialect` it was asked in; `tools` if they differ from
    the parent's (`tools_digest` always); `parameters`, what else was asked; `gaps`, codes for what could not be known about it.
    `overrides` are the sampling parameters that the configuration put in place of the client's; `backend` is the address asked;
    `route` and `routing_digest` are which way a routing backend was told to take, and the digest of its configuration.
    `invocation` is what the client says of itself in a header, with the header's name: which thread, which sub-agent.
    `activation` is the input that the agent worked on, `launch` the number of its program's launch for that.
    `purpose` says that the answer is not for the conversation itself: a `summary` is what takes the place of its beginning.
    """

    TYPE: ClassVar[str] = "model_call_requested.v1"

    turn: int
    tries: int
    parent_id: str | None
    new_messages: tuple[Message, ...]
    context_digest: str
    dialect: DialectName | None = None
    new_turns: tuple[Turn, ...] = ()
    tools: tuple[Tool | HostedTool, ...] | None = None
    tools_digest: str | None = None
    parameters: dict[str, Any] = Field(default_factory=dict)
    gaps: tuple[str, ...] = ()
    overrides: dict[str, Any] = Field(default_factory=dict)
    backend: str | None = None
    route: str | None = None
    routing_digest: str | None = None
    invocation: str | None = None
    activation: int = 1
    launch: int = 1
    purpose: Literal["summary"] | None = None


class ModelCallCompleted(Answer):
    """A model answered; never asked again for this turn. Times in seconds.

    `parts` is there when `message` cannot hold all that was said. `reply_id` and `served_model` are the backend's words;
    `first_token_s` is how long the first of a streamed answer took; `is_unread` if the client had left before its end; `queue_s` how
    long the call waited for its turn to be sent. `cost_usd` is the backend's own word, or worked out from the configured prices.
    `has_usage` is false if the backend said nothing of its usage, which is then what its token ids say, or 0.
    `tokens` are there if the backend gave them; `untrainable` is a code that says why those it gave cannot be learned from.
    `policy_versions` are the weights that answered, in order: two if they were changed in the middle.
    """

    TYPE: ClassVar[str] = "model_call_completed.v1"

    turn: int
    message: Message
    stop_reason: StopReason
    usage: Usage
    duration_s: float
    has_usage: bool = True
    parts: tuple[Part, ...] | None = None
    reply_id: str | None = None
    served_model: str | None = None
    stop_sequence: str | None = None
    first_token_s: float | None = None
    is_unread: bool = False
    queue_s: float | None = None
    cost_usd: float | None = None
    tokens: CallTokens | None = None
    untrainable: str | None = None
    policy_versions: tuple[str, ...] = ()


class ModelCallFailed(Answer):
    """A try failed; `retry_in_s` is the wait before the next one, None if there is none.

    `status` and `body` are the backend's answer, the body's beginning only; `parts` is what had come of a streamed one.
    """

    TYPE: ClassVar[str] = "model_call_failed.v1"

    turn: int
    failure: Failure
    retry_in_s: float | None
    duration_s: float
    status: int | None = None
    body: str | None = None
    parts: tuple[Part, ...] | None = None


class ModelCallLost(Answer):
    """A try's worker died before its outcome was recorded; it may have been billed."""

    TYPE: ClassVar[str] = "model_call_lost.v1"

    turn: int


class ModelCallRecalled(Event):
    """A program that was launched again asked what an earlier launch had asked, and was given that call's answer: no model was asked.

    `call_id` is the answered call's request, `turn` its turn. `launch` is the number of the launch that was given the answer, for
    its `activation`; it is given each answer once.
    """

    TYPE: ClassVar[str] = "model_call_recalled.v1"

    call_id: str
    turn: int
    activation: int
    launch: int


class ModelCallLate(Event):
    """An answer that came when its conversation was another process's already: what was said, for the record; nothing builds on it.

    It stands in an aggregate of its own, whose key begins with the conversation's.
    """

    TYPE: ClassVar[str] = "model_call_late.v1"

    request_id: str
    turn: int
    parts: tuple[Part, ...]
    usage: Usage
    was_shown: bool


class BudgetExhausted(Event):
    """A call was refused because a budget is used up; stated once for a conversation and limit. `scope` says whose budget it is."""

    TYPE: ClassVar[str] = "budget_exhausted.v1"

    scope: Literal["rollout", "run"]
    limit: BudgetLimit
    allowed: float
    used: float
