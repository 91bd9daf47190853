"""What the command line asks of the collector, and what the collector states about runs and rollouts."""

from __future__ import annotations

from datetime import datetime
from typing import Any, ClassVar, Literal

from schemas.base import Answer, Event
from schemas.config import AgentConfig, Budgets, ModelConfig, RunConfig
from schemas.harnesses import Continuation
from schemas.readiness import Install
from schemas.sandboxes import Checkpoints, SandboxConfig, WarmSandboxes
from schemas.tasks import Evidence, Solution, TaskInput
from schemas.values import BlobRef, Failure, Sampling

RolloutState = Literal[
    "scored", "model_final", "judge_recoverable", "retryable", "exhausted", "terminal", "masked", "missing"
]

COUNTED_AS: dict[str, str] = {
    "scored": "scored",
    "model_final": "scored",
    "judge_recoverable": "failed",
    "retryable": "failed",
    "exhausted": "failed",
    "terminal": "failed",
    "masked": "masked",
    "missing": "missing",
}


class RunRequested(Event):
    """The command line asks for a run. Written by `cli`."""

    TYPE: ClassVar[str] = "run_requested.v1"
    TO: ClassVar[str | None] = "collector"

    config: RunConfig
    config_digest: str
    output_dir: str
    versions: dict[str, str]


class RunCancelRequested(Event):
    """The command line asks to end a run early. Written by `cli`, addressed to `ctl`."""

    TYPE: ClassVar[str] = "run_cancel_requested.v1"
    TO: ClassVar[str | None] = "collector"

    reason: str


class RunResumeRequested(Event):
    """The command line asks a paused run to go on. Written by `cli`, addressed to `ctl`."""

    TYPE: ClassVar[str] = "run_resume_requested.v1"
    TO: ClassVar[str | None] = "collector"

    config_digest: str


class RunStarted(Event):
    """A run is planned: `planned` = `tasks` x repeats rollouts, in the order of the plan. Written by `collector`."""

    TYPE: ClassVar[str] = "run_started.v1"

    plan: BlobRef
    tasks: int
    planned: int
    shards: int
    taskset_digest: str
    model: str


class RunPaused(Event):
    """A run starts no further rollouts until it is resumed. Written by `collector`."""

    TYPE: ClassVar[str] = "run_paused.v1"

    kind: Literal["failure", "store"]
    reason: str


class RunResumed(Answer):
    """A paused run goes on; answers a request to resume, or names the pause whose reason has passed. Written by `collector`."""

    TYPE: ClassVar[str] = "run_resumed.v1"

    reason: str


class RunCancelled(Answer):
    """A run is being ended early: nothing new starts, what is going on winds up. Written by `collector`."""

    TYPE: ClassVar[str] = "run_cancelled.v1"

    reason: str


class RunFinished(Answer):
    """A run is over: planned = scored + failed + masked + missing. Written by `collector`, exactly once."""

    TYPE: ClassVar[str] = "run_finished.v1"

    state: Literal["completed", "cancelled", "failed"]
    planned: int
    scored: int
    failed: int
    masked: int
    missing: int
    failure: Failure | None = None


class SessionRequested(Event):
    """The collector asks a harness to run one attempt at a task (with its first activation). Written by `collector`.

    `solution` is for an `oracle_agent` only. With a `continuation` the task has further inputs, and the harness refuses before a
    sandbox is made if it cannot go on with its own session.
    """

    TYPE: ClassVar[str] = "session_requested.v1"
    TO: ClassVar[str | None] = "harness"

    task: TaskInput
    repeat: int
    agent: AgentConfig
    model: ModelConfig
    sandbox: SandboxConfig
    sampling: Sampling
    budget: Budgets = Budgets()
    checkpoints: Checkpoints = Checkpoints()
    install: Install | None = None
    warm_sandboxes: WarmSandboxes = 0
    solution: Solution | None = None
    continuation: Continuation | None = None


class VerdictRequested(Event):
    """The collector asks for a verdict about a closed session; what is run for it runs in a fresh `sandbox`. Written by `collector`."""

    TYPE: ClassVar[str] = "verdict_requested.v1"
    TO: ClassVar[str | None] = "verifier"

    verifier: str
    verifier_data: dict[str, Any]
    evidence: Evidence
    sandbox: SandboxConfig | None = None


class RolloutFinished(Event):
    """One attempt at a rollout is over. Written by `collector`, exactly once per attempt.

    `retry_at` is set if another attempt follows; `reward` only if the attempt was graded.
    """

    TYPE: ClassVar[str] = "rollout_finished.v1"

    state: RolloutState
    reward: float | None = None
    failure: Failure | None = None
    retry_at: datetime | None = None
