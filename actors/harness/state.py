"""What is known of the session of an agent whose loop is ours, folded from the log."""

from __future__ import annotations

from datetime import datetime
from typing import Literal

from actors.budget import Spent
from actors.harness.context_view import ContextView
from actors.harness.core import SessionCore
from schemas.base import Frozen
from schemas.loops import OwnLoop
from schemas.sandboxes import NetworkPolicy, RemoteSandbox, SandboxConfig
from schemas.values import BlobRef, Message, ToolCall


class ToolSlot(Frozen):
    """One of the last answer's tool calls: not yet asked, open (with the request's id), or answered (with the text).

    `tries` is how often it was asked for, `ordinal` the place of its answer among what the machine stated.
    """

    call: ToolCall
    request_id: str | None = None
    answer: str | None = None
    tries: int = 0
    ordinal: int = 0


class Command(Frozen):
    """A tool call of an answer, by its place, as it was last asked for; not asked yet without `request_id`.

    `ordinal` is the place of its answer among what the machine stated, 0 without one.
    """

    turn: int
    index: int
    tries: int
    request_id: str | None = None
    ordinal: int = 0


class BoxView(Frozen):
    """The session's machine as the session knows it: the `number`-th, asked for (or given back) by `request_id`.

    `snapshot` is its last checkpoint, stated at the ordinal `saved_to`: it holds what was stated before, whatever was heard of it when.
    `unsaved` are the commands that ran since, in the order in which they did. After a loss, `redo` has to run again, in this order,
    before anything else.
    """

    stands: Literal["none", "asked", "ready", "lost", "closing", "gone"] = "none"
    number: int = 1
    request_id: str | None = None
    place: str | None = None
    has_snapshots: bool = False
    is_given_back: bool = False
    snapshot: BlobRef | None = None
    saved_to: int = 0
    unsaved: tuple[Command, ...] = ()
    redo: tuple[Command, ...] = ()


class Summary(Frozen):
    """What the model call `call_id` wrote to take the place of the past, None if it wrote nothing."""

    call_id: str
    text: str | None


class SessionState(SessionCore):
    """What is known of a session; it has made `task_calls` calls of its task's tools.

    Its newest activation began after `turns_before` turns. `messages` are all that was said, `prompt` what is
    shown of it. The first `sent` of that are in the log as said to the model; the next call continues `continues`, of the digest
    `context_digest`. Of its turns, `asides` were not for the conversation itself, nor is the call that is asked, if it has a
    `purpose`. `context_tokens` is what the last answered call had with its answer, `is_overflown` says that the model refused the
    prompt as too long. `nudges` is how often the loop spoke by itself, `warnings` of them because a reset was near, which is so since
    `warned` turns; `progress` are the model's notes.
    """

    started_at: datetime
    turns_before: int = 0
    messages: tuple[Message, ...] = ()
    sent: int = 0
    turn: int = 0
    call_tries: int = 0
    open_call: str | None = None
    last_call: str | None = None
    continues: str | None = None
    purpose: str | None = None
    asides: tuple[int, ...] = ()
    summary: Summary | None = None
    context: ContextView = ContextView()
    context_tokens: int = 0
    is_overflown: bool = False
    nudges: int = 0
    warned: int = 0
    warnings: int = 0
    progress: str | None = None
    spent: Spent = Spent()
    context_digest: str = ""
    stop_reason: str | None = None
    slots: tuple[ToolSlot, ...] = ()
    task_calls: int = 0
    box: BoxView = BoxView()

    @property
    def agent(self) -> OwnLoop:
        """Return the agent's configuration."""
        if not isinstance(self.request.agent, OwnLoop):
            raise TypeError(self.request.agent.type)
        return self.request.agent

    @property
    def is_active(self) -> bool:
        """Say whether an activation is under way."""
        return not (self.failure or self.evidence or self.course.is_between)

    @property
    def is_at_last_step(self) -> bool:
        """Say whether the activation has had as many turns as it may have."""
        return self.steps - self.turns_before >= self.agent.max_steps

    @property
    def keeps_files(self) -> bool:
        """Say whether checkpoints of the machine are wanted and can be had."""
        return self.box.has_snapshots and self.request.checkpoints.when == "turn"

    @property
    def reaches_out(self) -> bool:
        """Say whether commands can have an effect outside of the machine."""
        return reaches_out(self.request.sandbox)

    def ran(self, command: Command) -> SessionState:
        """Return the state with a command that came to its end, unless a checkpoint holds it already."""
        if not self.keeps_files or command.ordinal <= self.box.saved_to:
            return self
        unsaved = sorted((*self.box.unsaved, command), key=lambda ran: ran.ordinal)
        return self.with_box(unsaved=tuple(unsaved))

    def with_box(self, **changes: object) -> SessionState:
        """Return the state with another view of its machine."""
        return self.replaced(box=self.box.replaced(**changes))

    def is_open(self, request_id: str) -> bool:
        """Say whether a command's answer is awaited."""
        return any(slot.request_id == request_id and slot.answer is None for slot in self.slots)

    def is_redone(self, request_id: str) -> bool:
        """Say whether a command is the one that runs again now."""
        return bool(self.box.redo) and self.box.redo[0].request_id == request_id

    def answered_turn(self, turn: int) -> tuple[Message, tuple[Message, ...]]:
        """Return the model's answer of a turn, and the messages that told it the results of its calls."""
        said = [n for n, m in enumerate(self.messages) if m.role == "assistant" and n >= self.given]
        at = said[turn - 1 - sum(aside < turn for aside in self.asides)]
        answer = self.messages[at]
        return answer, self.messages[at + 1 : at + 1 + len(answer.tool_calls)]

    @property
    def prompt(self) -> tuple[Message, ...]:
        """Return what of the messages is shown to the model."""
        return self.context.shown(self.messages, self.given)

    @property
    def steps(self) -> int:
        """Return how many answers there are for the conversation itself."""
        return self.turn - len(self.asides)

    @property
    def given(self) -> int:
        """Return how many of the messages were there from the beginning."""
        return len(self.request.task.messages) + bool(self.agent.system_prompt)


def reaches_out(sandbox: SandboxConfig) -> bool:
    """Say whether what runs in a sandbox can have an effect outside of it."""
    if isinstance(sandbox, RemoteSandbox):
        return sandbox.reaches_out
    policy = getattr(sandbox, "network", None)
    return bool(policy.agent.allow) if isinstance(policy, NetworkPolicy) else policy not in {None, "none"}
