"""One model call as the log tells it, its token ids put back together."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from projections.samples.ids import Ids
from schemas.tokens import LogprobKind

CallState = Literal["open", "completed", "failed", "lost"]


@dataclass(frozen=True, slots=True)
class Knobs:
    """The sampling parameters that were in force for a call; None is the backend's own default."""

    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None


@dataclass(frozen=True, slots=True)
class Restored:
    """The tokens of a completed call.

    `ids` is the whole prompt and then what was generated, None if that could not be restored; its first `prompt_length` are the
    prompt. `parent_id` is the call whose tokens the log shares. `generated`, `logprobs` and `digest` are as recorded.
    """

    parent_id: str | None
    ids: Ids | None
    prompt_length: int
    generated: tuple[int, ...]
    logprobs: tuple[float, ...]
    logprob_kind: LogprobKind | None
    digest: str


@dataclass(frozen=True, slots=True)
class Call:
    """A try to have the model continue a conversation, and what came of it.

    `asked_at` and `answered_at` are sequences of the log, its only order. `parent_id` is the call that it continued by what was
    said. `output_tokens` is the backend's own count, None if it gave none; `is_refused` if the backend refused with a status of
    4xx, so that nothing was generated. `is_late` if an answer came after the call was given up as lost. `untrainable` is the code
    that was recorded with the answer.
    """

    id: str
    conversation: str
    parent_id: str | None
    turn: int
    tries: int
    asked_at: int
    state: CallState
    context_digest: str
    system_digest: str | None
    tools_digest: str | None
    knobs: Knobs
    gaps: tuple[str, ...] = ()
    answered_at: int | None = None
    stop_reason: str | None = None
    output_tokens: int | None = None
    is_unread: bool = False
    is_refused: bool = False
    is_late: bool = False
    policy_versions: tuple[str, ...] = ()
    tokens: Restored | None = None
    untrainable: str | None = None

    @property
    def ids(self) -> Ids | None:
        """Return the whole prompt and what was generated, None if that is not known or something about it was found wrong."""
        tokens = self.tokens
        if tokens is None or self.untrainable is not None or len(tokens.logprobs) != len(tokens.generated):
            return None
        return tokens.ids

    @property
    def logprobs(self) -> tuple[float, ...] | None:
        """Return one logarithmic probability for each generated token, None if the recorded ones are no such thing."""
        if self.tokens is None or len(self.tokens.logprobs) != len(self.tokens.generated):
            return None
        return self.tokens.logprobs if all(map(math.isfinite, self.tokens.logprobs)) else None

    @property
    def setup(self) -> tuple[str | None, str | None]:
        """Return what tells one agent from another: the digests of its system prompt and of its tools."""
        return self.system_digest, self.tools_digest


@dataclass(frozen=True, slots=True)
class Stray:
    """An answer whose request is not in the log: nothing is known of its place, so nothing of it can be trained."""

    request_id: str
    conversation: str
    tokens: int | None


@dataclass(frozen=True, slots=True)
class Recorded:
    """What the log holds of the model calls of one attempt, in the order in which they were asked."""

    run_id: str
    rollout_id: str
    attempt: int
    task_id: str | None
    calls: tuple[Call, ...]
    strays: tuple[Stray, ...] = ()
