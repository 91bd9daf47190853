"""Verdicts. Written by `verifier`."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field

from schemas.base import Answer
from schemas.values import Failure


class VerdictIssued(Answer):
    """An attempt was graded; `failure_reason` says in words why the reward is not full. `evidence_digest` names what was graded."""

    TYPE: ClassVar[str] = "verdict_issued.v1"

    reward: float
    components: dict[str, float] = Field(default_factory=dict)
    failure_reason: str | None = None
    evidence_digest: str
    verifier_version: str


class VerdictFailed(Answer):
    """An attempt could not be graded; there is no reward."""

    TYPE: ClassVar[str] = "verdict_failed.v1"

    failure: Failure
