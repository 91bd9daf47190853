"""What a backend says about the tokens of one call: ids and log-probabilities, from one answer and one place in it."""

from __future__ import annotations

from dataclasses import dataclass

from schemas.tokens import LogprobKind


@dataclass(frozen=True, slots=True)
class TokenEvidence:
    """Token ids of the whole prompt and of what was generated, with a natural logarithm for each of the latter.

    `policy_versions` are the weights that answered, in order. `problem` is a code that says why this cannot be learned from.
    """

    prompt: tuple[int, ...]
    generated: tuple[int, ...]
    logprobs: tuple[float, ...]
    logprob_kind: LogprobKind | None = None
    policy_versions: tuple[str, ...] = ()
    problem: str | None = None
