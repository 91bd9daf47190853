"""What a loop of ours makes of its own context. All written by `harness`."""

from __future__ import annotations

from typing import ClassVar, Literal

from schemas.base import Event, Frozen
from schemas.values import Message


class EditedMessage(Frozen):
    """The message at `place` in the session's messages (from 0) is shown as `content` from now on."""

    place: int
    content: str


class ContextCompacted(Event):
    """Prompts are made otherwise from now on: the next model call continues none, it begins a context of its own.

    It is the session's `number`-th, after `turn` answers; `tokens_before` is what the last answered call had with its answer, as the
    backend counted, None if it did not. Of the session's messages, those after its task are shown from `start` on (None: as
    before), with `inserted` before them; `edited` are shown changed. `images`, `reasoning_blocks`, `tool_results` and `messages`
    are how many of each are shown no longer. `summary_call` wrote the summary; `gaps` are codes for what could not be had.
    """

    TYPE: ClassVar[str] = "context_compacted.v1"

    number: int
    policy: Literal["recency", "summary", "reset"]
    turn: int
    tokens_before: int | None = None
    start: int | None = None
    inserted: tuple[Message, ...] = ()
    edited: tuple[EditedMessage, ...] = ()
    images: int = 0
    reasoning_blocks: int = 0
    tool_results: int = 0
    messages: int = 0
    summary_call: str | None = None
    gaps: tuple[str, ...] = ()


class AgentNudged(Event):
    """The loop says something to the model by itself, after `turn` answers: that its answer is not taken yet, or that a reset is near.

    It is the `number`-th time. `text` is what the model is told, as a message of the user.
    """

    TYPE: ClassVar[str] = "agent_nudged.v1"

    number: int
    reason: Literal["empty_answer", "cut_answer", "wanted_form", "reset_near"]
    turn: int
    text: str


class ProgressNoted(Event):
    """The model wrote `progress`, notes that outlive a reset and replace those before; `message` is what it is told."""

    TYPE: ClassVar[str] = "progress_noted.v1"

    call_id: str
    turn: int
    index: int
    progress: str
    message: str
