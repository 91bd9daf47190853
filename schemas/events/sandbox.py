"""What the sandbox actor states about machines and what was done in them. All written by `sandbox`."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field

from schemas.base import Answer, Event
from schemas.cases import CaseResult
from schemas.values import BlobRef, Failure, NetworkAttempt, Party


class SandboxCreated(Answer):
    """A machine is ready at `place`; requests about it are addressed there.

    It may reach the hosts in `allow` and no others, in this `phase`, None if it has no network to be told about.
    The model gateway has answered it at `gateway_url`, if it was asked for with a door to that.
    `label` is what is written on it, and what it is found by; with `is_warm` it was made before anybody asked for it.
    """

    TYPE: ClassVar[str] = "sandbox_created.v1"

    place: str
    provider: str
    capabilities: tuple[str, ...] = ()
    phase: str | None = None
    allow: tuple[str, ...] = ()
    gateway_url: str | None = None
    label: str = ""
    is_warm: bool = False


class SandboxInstallStarted(Event):
    """A machine is about to be made and made ready, by the `install` of its request: from here on that may have run.

    It may reach the hosts in `allow`, in this `phase`, None if it has no network to be told about. Each `number` after the first is
    another machine's: the one before was lost with the process that held it.
    """

    TYPE: ClassVar[str] = "sandbox_install_started.v1"

    number: int = 1
    phase: str | None = None
    allow: tuple[str, ...] = ()


class SandboxInstalled(Event):
    """The `install` of a machine came to an end, of which this says what `ToolCallCompleted` says of a command's.

    `network` is what it tried to reach, as in `SandboxDestroyed`. There is no machine unless it ended by itself, with 0. `lost` says
    how the machine was lost with it, if it was. `number` is that of its `SandboxInstallStarted`.
    """

    TYPE: ClassVar[str] = "sandbox_installed.v1"

    number: int = 1
    phase: str | None = None
    allow: tuple[str, ...] = ()
    exit_code: int | None
    output: str
    output_bytes: int
    truncated: bool = False
    ended_by: Literal["exit", "signal", "timeout", "out_of_memory"] = "exit"
    duration_s: float
    lost: str | None = None
    network: tuple[NetworkAttempt, ...] = ()
    network_dropped: int = 0


class SandboxFailed(Answer):
    """A machine could not be made."""

    TYPE: ClassVar[str] = "sandbox_failed.v1"

    failure: Failure


class SandboxLost(Event):
    """A machine is gone without having been destroyed by us, with everything in it.

    `is_replaced` says that another one answers in its name: it was restarted, and nothing in it is to be trusted. `network` is what
    it had tried to reach, `network_dropped` how often more than could be kept.
    """

    TYPE: ClassVar[str] = "sandbox_lost.v1"

    reason: str
    is_replaced: bool = False
    network: tuple[NetworkAttempt, ...] = ()
    network_dropped: int = 0


class SandboxDestroyed(Answer):
    """A machine was ended at its session's request; nothing of it is left.

    `network` is what it had tried to reach, `network_dropped` how often more than could be kept.
    """

    TYPE: ClassVar[str] = "sandbox_destroyed.v1"

    network: tuple[NetworkAttempt, ...] = ()
    network_dropped: int = 0


class SandboxLent(Answer):
    """A machine is `borrower`'s from now on, with `right`: one more than the last time it was lent. Older rights have ended."""

    TYPE: ClassVar[str] = "sandbox_lent.v1"

    borrower: Party
    right: int


class SandboxGivenBack(Answer):
    """A machine is its owner's again, `right` has ended: its borrower gave it back, or the owner took it (`is_taken`).

    `borrower` is None if it was not lent when the owner took it.
    """

    TYPE: ClassVar[str] = "sandbox_given_back.v1"

    borrower: Party | None = None
    right: int
    is_taken: bool = False


class SandboxRequestRefused(Answer):
    """Something was asked about a machine by one who may not ask it, or that cannot be had; nothing was done."""

    TYPE: ClassVar[str] = "sandbox_request_refused.v1"

    failure: Failure


class ToolCallCompleted(Answer):
    """A command ran to an end.

    `exit_code` is the process's own (128 + n for signal n), None if it was ended at its deadline. `output` is standard
    output and error together, at most the sandbox's `output_bytes`; `output_bytes` is the size before truncation.
    """

    TYPE: ClassVar[str] = "tool_call_completed.v1"

    exit_code: int | None
    output: str
    output_bytes: int
    truncated: bool = False
    ended_by: Literal["exit", "signal", "timeout", "out_of_memory"] = "exit"
    duration_s: float


class ToolCallFailed(Answer):
    """A command was not started: nothing happened in the machine."""

    TYPE: ClassVar[str] = "tool_call_failed.v1"

    failure: Failure


class ToolCallLost(Answer):
    """Whether a command ran, or what came of it, is unknown: it may have been started once."""

    TYPE: ClassVar[str] = "tool_call_lost.v1"

    reason: str


class CheckpointSaved(Answer):
    """The machine's files were kept; `snapshot` names the manifest (`schemas.snapshots`) of `files` with `bytes` of content.

    The request is a `CheckpointRequested`, or a `ToolCallRequested` with `keeps_files`, which it follows. `stored_bytes` were new.
    The machine's processes stood still for `paused_s`, None if they did not. `home` holds what the agent's own program keeps for
    itself, if that was asked for.
    """

    TYPE: ClassVar[str] = "checkpoint_saved.v1"
    ASPECT: ClassVar[str] = "checkpoint"

    snapshot: BlobRef
    home: BlobRef | None = None
    files: int
    bytes: int
    stored_bytes: int
    left_out: int = 0
    duration_s: float
    paused_s: float | None = None


class CheckpointFailed(Answer):
    """The machine's files could not be kept; the machine itself is well."""

    TYPE: ClassVar[str] = "checkpoint_failed.v1"
    ASPECT: ClassVar[str] = "checkpoint"

    failure: Failure


class GradingDone(Answer):
    """Tests were run in a fresh machine, of which nothing is left: what `ToolCallCompleted` says of a command.

    `refused` says why they were not, where that is what was handed in; `files` of it were put into the machine, `left_out` were not.
    `missing` are artifacts that are not there: of what the task names, the first few that nothing of the workspace is.
    `cases` are the results of those that were run. `rewards` are the files of a reward, by name, as they were when the tests had ended;
    `rewards_changed` says that something outlived the tests and wrote to them. `network` is what the machine tried to reach, as in
    `SandboxDestroyed`.
    """

    TYPE: ClassVar[str] = "grading_done.v1"

    exit_code: int | None = None
    output: str = ""
    output_bytes: int = 0
    truncated: bool = False
    ended_by: Literal["exit", "signal", "timeout", "out_of_memory"] = "exit"
    duration_s: float = 0.0
    files: int = 0
    left_out: int = 0
    missing: tuple[str, ...] = ()
    refused: str | None = None
    cases: tuple[CaseResult, ...] = ()
    rewards: dict[str, str] = Field(default_factory=dict)
    rewards_changed: bool = False
    network: tuple[NetworkAttempt, ...] = ()
    network_dropped: int = 0


class GradingFailed(Answer):
    """Tests could not be run, for a reason that is not what was handed in."""

    TYPE: ClassVar[str] = "grading_failed.v1"

    failure: Failure
