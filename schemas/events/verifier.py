"""Verdicts. Written by `verifier`."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field

from schemas.base import Answer, Event
from schemas.cases import CaseRun
from schemas.sandboxes import SandboxConfig
from schemas.tasks import Staged
from schemas.values import BlobRef, Failure


class VerdictIssued(Answer):
    """An attempt was graded; `failure_reason` says in words why the reward is not full.

    `evidence_digest` names what was graded; `graded` says whether that was the answer, files that were handed in, all that the agent
    left in its machine, which it could prepare for the tests, or what its calls of the task's tools left behind (`records`, named by
    `records_digest`).
    """

    TYPE: ClassVar[str] = "verdict_issued.v1"

    reward: float
    components: dict[str, float] = Field(default_factory=dict)
    failure_reason: str | None = None
    evidence_digest: str
    records_digest: str | None = None
    verifier_version: str
    graded: Literal["answer", "files", "machine", "records"] = "answer"


class VerdictFailed(Answer):
    """An attempt could not be graded; there is no reward."""

    TYPE: ClassVar[str] = "verdict_failed.v1"

    failure: Failure


class GradingRequested(Event):
    """The verifier wants tests to be run in a fresh machine, on what an agent handed in.

    Of the snapshot `files`, those that match `artifacts` are put into its workspace, as plain files; all as it was with `is_whole`.
    `services` are commands that go on beside. `tests` (path to text) come last, to a directory of their own; then `command` runs, if
    there is one, in the workspace, and its exit code is what counts; then each of `cases`, whose output counts. `staged` come to a
    place that the task names; with `rewards_in` what counts is what the command writes in that directory, which is emptied before it
    begins.
    """

    TYPE: ClassVar[str] = "grading_requested.v1"
    TO: ClassVar[str | None] = "sandbox"

    sandbox: SandboxConfig
    files: BlobRef | None = None
    artifacts: tuple[str, ...] = ()
    is_whole: bool = False
    services: tuple[str, ...] = ()
    tests: dict[str, str]
    command: str | None = None
    timeout_s: float
    cases: tuple[CaseRun, ...] = ()
    staged: Staged | None = None
    rewards_in: str | None = None
