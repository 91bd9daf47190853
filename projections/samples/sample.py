"""What the rebuild hands out: training rows, and for every generated token that is in none the reason."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal, Self

from pydantic import Field

from projections.samples.call import Recorded
from projections.samples.relations import Relation
from schemas.base import Frozen
from schemas.tokens import LogprobKind

NO_TRAINABLE_TOKENS: Final = "no_trainable_tokens"


class Span(Frozen):
    """One call in a row: ids [start, generated_start) are what its prompt added, [generated_start, end) what it generated.

    The whole prompt of the call is the row up to `generated_start`. `is_trained` says whether the mask is 1 on what it generated.
    `temperature`, `top_p` and `top_k` are those in force, None for the backend's default; `logprob_kind` says whether the row's
    logarithmic probabilities are from before (`raw`) or after (`processed`) those were applied; `policy_versions` are the weights
    that answered, in order.
    """

    call_id: str
    start: int = Field(ge=0)
    generated_start: int = Field(ge=0)
    end: int = Field(ge=0)
    stop_reason: str | None
    policy_versions: tuple[str, ...] = ()
    logprob_kind: LogprobKind | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    is_trained: bool


class Sample(Frozen):
    """One training row: a chain of n tokens, for each its id, whether it is trained, and its logarithmic probability.

    `token_ids`, `loss_mask` and `logprobs` are all n long. The mask is 1 on generated tokens that are trained in this row, else 0;
    logprobs are natural logarithms, and None where a token was not generated or its recorded values are no such thing. The first
    `prompt_length` ids are the first call's prompt. `sample_id` follows from what is in the row.

    `parent` is, for a branch or a rewritten prompt, the row that owns `parent_call_id`, the call it splits off or was asked after;
    `follows` the row that a restart goes on from; `during` rows that were going on when a sub-agent was asked for: all by `sample_id`.
    `system_digest` and `tools_digest` are those of the first call that the row owns; `asked_at` and `answered_at` are
    the places in the log of that call's request and of the row's last answer: the facts that `relation` is worked out from.
    """

    sample_id: str
    run_id: str
    rollout_id: str
    attempt: int
    task_id: str | None
    conversation: str
    relation: Relation
    follows: str | None = None
    parent: str | None = None
    parent_call_id: str | None = None
    during: tuple[str, ...] = ()
    system_digest: str | None
    tools_digest: str | None
    asked_at: int
    answered_at: int
    call_ids: tuple[str, ...]
    token_ids: tuple[int, ...]
    loss_mask: tuple[Literal[0, 1], ...]
    logprobs: tuple[float | None, ...]
    spans: tuple[Span, ...]
    gaps: tuple[str, ...] = ()
    prompt_length: int = Field(ge=0)


class TrainingRow(Sample):
    """A row with how its rollout stands: `state` and what that counts as, and the reward, None unless the rollout was scored."""

    state: str
    counted_as: str
    reward: float | None

    @classmethod
    def of(cls, sample: Sample, state: str, counted_as: str, reward: float | None) -> Self:
        """Return `sample` with how its rollout stands; a reward that was not scored is left out."""
        scored = reward if counted_as == "scored" else None
        return cls.unchecked(**sample.__dict__, state=state, counted_as=counted_as, reward=scored)


class Excluded(Frozen):
    """A call of which nothing is trained; `tokens` is how many it generated, None if nobody knows."""

    call_id: str
    conversation: str
    reason: str
    tokens: int | None


class Rejected(Frozen):
    """Calls that would have been the end of a row, had any of them been trainable; each is `Excluded` with a reason of its own."""

    call_ids: tuple[str, ...]
    reason: str = NO_TRAINABLE_TOKENS


@dataclass(frozen=True, slots=True)
class Rebuilt:
    """All that was made of one attempt, and what it was made from."""

    recorded: Recorded
    samples: tuple[Sample, ...]
    excluded: tuple[Excluded, ...]
    rejected: tuple[Rejected, ...]

    @property
    def trained(self) -> int:
        """Return how many tokens have a mask of 1."""
        return sum(sum(sample.loss_mask) for sample in self.samples)

    @property
    def excluded_by_reason(self) -> Mapping[str, tuple[int, int, int]]:
        """Return for each reason how many calls it has, their tokens, and how many of the calls have nobody knows how many."""
        found: dict[str, tuple[int, int, int]] = {}
        for one in self.excluded:
            calls, tokens, unknown = found.get(one.reason, (0, 0, 0))
            found[one.reason] = (calls + 1, tokens + (one.tokens or 0), unknown + (one.tokens is None))
        return found
