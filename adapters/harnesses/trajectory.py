"""What a harness did, in one form for all of them: items in the order in which they came about.

It is the harness's own account, out of files that lie beside the agent. What a model was asked and what it answered is in the gateway's
log; `joining.py` holds the two side by side. Texts and arguments are as the harness wrote them, never repaired.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final, Literal

Problem = Literal["auth", "budget", "rate_limit", "overflow", "model", "tool", "steps", "aborted", "other"]
"""Why a harness gave up or complained: the gateway's refusals, the model's errors, a tool's, its own bound of steps, a stop."""


@dataclass(frozen=True, slots=True)
class SessionNamed:
    """The harness's own id of its session, by which it is resumed."""

    session_id: str


@dataclass(frozen=True, slots=True)
class Said:
    """Words: of the model (`assistant`), or of whoever the harness lets speak to it."""

    role: Literal["system", "developer", "user", "assistant"]
    text: str


@dataclass(frozen=True, slots=True)
class Thought:
    """What the model thought, where the harness shows it; empty if only its encrypted form is kept."""

    text: str


@dataclass(frozen=True, slots=True)
class Planned:
    """What the harness shows as its plan: all of it, as it stands now, a line for each step."""

    text: str


@dataclass(frozen=True, slots=True)
class ToolAsked:
    """The model called a tool. `is_rewritten` if `arguments` is JSON that the harness parsed and we wrote, not the model's own text."""

    call_id: str
    name: str
    arguments: str
    is_rewritten: bool = False


@dataclass(frozen=True, slots=True)
class ToolDone:
    """What the model was told of a call. `exit_code`, `is_error` and `duration_s` are None where the harness does not say."""

    call_id: str
    text: str
    exit_code: int | None = None
    is_error: bool | None = None
    duration_s: float | None = None


@dataclass(frozen=True, slots=True)
class ReplyDone:
    """A model's reply is over: what came since the last one, results excepted, is of it. `reply_id` is the backend's word for it."""

    reply_id: str | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None
    cached_tokens: int | None = None
    reasoning_tokens: int | None = None


@dataclass(frozen=True, slots=True)
class Compacted:
    """The harness replaced its conversation's beginning: calls from here on continue nothing that was recorded before."""


@dataclass(frozen=True, slots=True)
class Complained:
    """Something went wrong, in the harness's words. `is_final` if it gave up."""

    problem: Problem
    message: str
    is_final: bool = False


@dataclass(frozen=True, slots=True)
class Finished:
    """The harness says that it is done, and why, in its own word."""

    reason: str


Item = SessionNamed | Said | Thought | Planned | ToolAsked | ToolDone | ReplyDone | Compacted | Complained | Finished

MESSAGE_MAX: Final = 2000
_ADDRESS: Final = re.compile(r"https?://\S+")
_TOKEN: Final = re.compile(r"/a/gbt\.[A-Za-z0-9_.-]+")


def complaint(message: str, *, is_final: bool = False) -> Complained:
    """Return a complaint with its class, told by what gateways and models write; 2,000 characters of it are kept.

    Agents name the address that they called, in which the token is: it is left out.
    """
    message = _TOKEN.sub("/a/[token]", message)
    lowered = _ADDRESS.sub("", message.lower())  # a port is no status
    for problem, signs in _SIGNS.items():
        if any(re.search(rf"\b{sign}\b" if sign.isdigit() else re.escape(sign), lowered) for sign in signs):
            return Complained(problem, message[:MESSAGE_MAX], is_final)
    return Complained("other", message[:MESSAGE_MAX], is_final)


_SIGNS: dict[Problem, tuple[str, ...]] = {
    "budget": ("budget_exhausted",),
    "overflow": ("context_overflow", "context length", "context window", "prompt is too long"),
    "auth": ("401", "authentication", "unauthorized", "invalid_api_key"),
    "rate_limit": ("429", "rate limit", "rate_limit", "too many requests"),
    "steps": ("max_turns", "step limit", "limitsexceeded", "max_steps"),
    "aborted": ("aborted", "interrupted", "cancelled"),
    "model": (
        "500", "502", "503", "504", "529", "overloaded", "stream disconnected", "connection", "timeout", "provider_",
    ),
}  # fmt: skip
