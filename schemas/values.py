"""Values that several events share: messages, tools, failures, blobs, evidence."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from schemas.base import Frozen


class BlobRef(Frozen):
    """Content kept outside the log, named by its SHA-256 (hex); `size` in bytes."""

    sha256: str = Field(pattern="^[0-9a-f]{64}$")
    size: int = Field(ge=0)
    media_type: str = "application/octet-stream"


class ToolCall(Frozen):
    """A call as the model wrote it; `arguments` is its raw text, never repaired."""

    id: str
    name: str
    arguments: str


class Message(Frozen):
    """One message of a conversation."""

    role: Literal["system", "user", "assistant", "tool"]
    content: str | None = None
    tool_calls: tuple[ToolCall, ...] = ()
    tool_call_id: str | None = None


class ToolSpec(Frozen):
    """A tool as the model sees it; `parameters` is a JSON Schema object."""

    name: str
    description: str
    parameters: dict[str, Any]


class Usage(Frozen):
    """Tokens of one model call."""

    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0
    reasoning_tokens: int = 0


class Sampling(Frozen):
    """Sampling parameters; None means the backend's default. `seed` differs from repeat to repeat if asked."""

    temperature: float | None = None
    top_p: float | None = None
    max_output_tokens: int | None = None
    seed: int | None = None


Seconds = Annotated[float, Field(gt=0, le=7 * 24 * 3600)]
TokenBound = Annotated[int, Field(le=10**9)]
"""How many tokens one prompt or answer may have."""

FailureKind = Literal[
    "transport_unreachable",
    "transport_timeout",
    "provider_unavailable",
    "provider_rate_limited",
    "provider_auth",
    "provider_bad_request",
    "provider_bad_answer",
    "context_overflow",
    "replay_diverged",
    "sandbox_unavailable",
    "sandbox_create_failed",
    "install_failed",
    "gateway_unreachable",
    "sandbox_lost",
    "checkpoint_failed",
    "tool_lost",
    "tool_unreachable",
    "verifier_error",
    "reward_missing",
    "reward_invalid",
    "agent_timeout",
    "agent_failed",
    "launch_lost",
    "unsupported",
    "budget_exhausted",
    "cancelled",
    "stale",
    "not_lent",
    "internal",
    "parked",
]

HALTING: frozenset[str] = frozenset({"provider_auth", "sandbox_unavailable", "gateway_unreachable"})
"""Failures that every further rollout would meet too: they pause the run instead of using up attempts."""


class Failure(Frozen):
    """Why something did not come about; `terminal` if trying again cannot help."""

    kind: FailureKind
    message: str
    stage: Literal["admission", "seed", "agent", "model", "tool", "verification", "cleanup"] = "agent"
    terminal: bool = False


class Party(Frozen):
    """An aggregate of the same rollout, by the kind of its actor and its key."""

    actor: str = Field(pattern=r"^[A-Za-z0-9_-]{1,64}$")
    key: str = Field(pattern=r"^[A-Za-z0-9_-]{1,64}$")


class AskedAgain(Frozen):
    """A tool call whose command is to run once more, by its place; `tries` is how often it was asked for so far."""

    turn: int
    index: int
    tries: int


class NetworkAttempt(Frozen):
    """One connection that a sandbox asked for: where to, what became of it and why, bytes out and in.

    `address` is the one that was connected to, None if none was; `phase` the sandbox's when it began.
    """

    host: str
    port: int
    address: str | None = None
    is_allowed: bool
    reason: str = ""
    sent_bytes: int = 0
    received_bytes: int = 0
    duration_s: float = 0.0
    phase: str = ""
