"""What the harness asks of sandboxes, and what it states about sessions.

All written by `harness`; commands, checkpoints and the giving back of a sandbox may also be asked for by who has borrowed it.
"""

from __future__ import annotations

from typing import ClassVar, Literal

from schemas.base import Answer, Event
from schemas.harnesses import AgentPackage, HarnessName
from schemas.readiness import GatewayDoor, Install
from schemas.sandboxes import SandboxConfig, WarmSandboxes
from schemas.tasks import DoneActivation, Evidence, Staged
from schemas.values import AskedAgain, BlobRef, Failure, Message, Party


class SandboxRequested(Event):
    """A session asks for a machine, its `number`-th; each one after the first follows one that was lost.

    It begins with the files of `restore`, and with those of the agent's own program in `restore_home`. What they do not hold yet is
    done again: first what was `seen` by the model, which must come out as it did, then what is open (`again`). `phase` says which of
    its network's lists of hosts holds. `install` is run in it first. With a `gateway` it is to reach the model gateway of its host;
    with a `harness` it is shown that program's files, and those of a `package` that it drives; it has the files `staged` from the
    beginning. Each host that makes machines for the run keeps `warm_sandboxes` more of the same kind ready.
    """

    TYPE: ClassVar[str] = "sandbox_requested.v1"
    TO: ClassVar[str | None] = "sandbox"

    sandbox: SandboxConfig
    number: int = 1
    restore: BlobRef | None = None
    restore_home: BlobRef | None = None
    seen: tuple[AskedAgain, ...] = ()
    again: tuple[AskedAgain, ...] = ()
    phase: Literal["install", "agent", "verify"] = "agent"
    install: Install | None = None
    gateway: GatewayDoor | None = None
    harness: HarnessName | None = None
    package: AgentPackage | None = None
    warm_sandboxes: WarmSandboxes = 0
    staged: Staged | None = None


class ToolCallRequested(Event):
    """A session asks for one command in its sandbox; at most once, whatever happens.

    `call_id` is the model's own, `turn` the model call (from 1) that asked, `index` its place among that turn's calls;
    `tries` counts asking again: after a stale answer, or in a sandbox that follows one that was lost. `number` says which sandbox is
    meant. With `keeps_files` a checkpoint follows the command. A borrower names the `right` that it was lent the sandbox with.
    """

    TYPE: ClassVar[str] = "tool_call_requested.v1"
    TO: ClassVar[str | None] = "sandbox"

    call_id: str
    turn: int
    index: int
    tool: str
    command: str
    timeout_s: float
    tries: int = 1
    number: int = 1
    keeps_files: bool = False
    right: int | None = None

    def wanted(self) -> tuple[str, ...]:
        """Return the aspects of the answers that the request is waiting for."""
        return ("", "checkpoint") if self.keeps_files else ("",)


class ToolCallRejected(Event):
    """A tool call could not be understood and was not executed; `message` is what the model is told."""

    TYPE: ClassVar[str] = "tool_call_rejected.v1"

    call_id: str
    turn: int
    index: int
    message: str


class SandboxCloseRequested(Event):
    """A session gives its `number`-th sandbox back."""

    TYPE: ClassVar[str] = "sandbox_close_requested.v1"
    TO: ClassVar[str | None] = "sandbox"

    number: int = 1


class SandboxLendRequested(Event):
    """The owner of the `number`-th sandbox lends it to `borrower`, whoever has it now; None takes it back.

    The borrower works in the same attempt of the same rollout. While it has the sandbox, nothing is run there for anybody else.
    """

    TYPE: ClassVar[str] = "sandbox_lend_requested.v1"
    TO: ClassVar[str | None] = "sandbox"

    number: int = 1
    borrower: Party | None = None


class SandboxGiveBackRequested(Event):
    """A borrower gives the `number`-th sandbox back, which it was lent with `right`; it can end it in no other way."""

    TYPE: ClassVar[str] = "sandbox_give_back_requested.v1"
    TO: ClassVar[str | None] = "sandbox"

    number: int = 1
    right: int


class CheckpointRequested(Event):
    """A session wants the files of its `number`-th sandbox to be kept as they are now, whether a command runs or not.

    A borrower names the `right` that it was lent the sandbox with. With `with_home`, what the agent's own program keeps for itself
    outside of the workspace is kept too.
    """

    TYPE: ClassVar[str] = "checkpoint_requested.v1"
    TO: ClassVar[str | None] = "sandbox"

    number: int = 1
    right: int | None = None
    with_home: bool = False

    def wanted(self) -> tuple[str, ...]:
        """Return the aspects of the answers that the request is waiting for."""
        return ("checkpoint",)


class ActivationStarted(Event):
    """A session has taken its next input: its time begins here, and `messages` is all that is new in it.

    The first activation is that of the session's request and has no such event. `fingerprint` names the input (SHA-256 of its
    canonical JSON): the same number with another one is never taken.
    """

    TYPE: ClassVar[str] = "activation_started.v1"

    activation: int
    fingerprint: str
    messages: tuple[Message, ...]


class ActivationRefused(Event):
    """A session does not take an input that somebody gave it by the event `asked_id`; `reason` says why. It uses up no number."""

    TYPE: ClassVar[str] = "activation_refused.v1"

    asked_id: str
    activation: int
    reason: str


class InputEnded(Event):
    """A session that waited for a further input gets none: none came in time, or somebody said so. Its last answer is what counts."""

    TYPE: ClassVar[str] = "input_ended.v1"

    by: Literal["asked", "timeout"]


class ActivationCompleted(Event):
    """The agent has dealt with one input; `evidence` is of this activation alone, its turns too.

    `session_id` is what the agent's own program calls the session, in which the next activation goes on.
    """

    TYPE: ClassVar[str] = "activation_completed.v1"

    activation: int
    evidence: Evidence
    session_id: str | None = None


class ActivationFailed(Event):
    """The agent did not come to an end with one input: out of time, or a defect of ours."""

    TYPE: ClassVar[str] = "activation_failed.v1"

    activation: int
    failure: Failure


class SessionClosed(Answer):
    """A session is over and its machine is gone; `evidence` is what may be graded: the last answer, the turns of all `activations`.

    `cleanup_confirmed` says that nothing was left of what the agent's program started; it is absent where no receipt says so.
    """

    TYPE: ClassVar[str] = "session_closed.v1"

    evidence: Evidence
    activations: tuple[DoneActivation, ...] = ()
    cleanup_confirmed: bool | None = None


class SessionFailed(Answer):
    """A session could not be finished for a reason that is not the model's; `cleanup_confirmed` is as in `SessionClosed`."""

    TYPE: ClassVar[str] = "session_failed.v1"

    failure: Failure
    cleanup_confirmed: bool | None = None
