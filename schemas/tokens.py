"""Tokens of a model call, as the backend itself named them; nothing here is ever worked out from text."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from schemas.base import Frozen

LogprobKind = Literal["raw", "processed"]


class CallTokens(Frozen):
    """The token ids of one call, all from one answer of the backend.

    The prompt is stored as what is new: its first `shared` ids are the first ones of the call `parent_id` (its prompt, then what it
    generated), `prompt` is the rest. `logprobs` are natural logarithms, one for each of `generated`: `raw` before temperature
    and the like were applied, `processed` after. `digest` is `gym_bus.token_ids.digest_of` of the whole prompt and what was generated.
    """

    parent_id: str | None = None
    shared: int = Field(default=0, ge=0)
    prompt: tuple[int, ...]
    generated: tuple[int, ...]
    logprobs: tuple[float, ...]
    logprob_kind: LogprobKind | None = None
    digest: str
