"""Model calls as a gateway would have recorded them, told one step at a time, beside the truth about their tokens.

The tokenizer is a toy that behaves like a real one: pieces of text have ids, a model may sample pieces that the tokenizer
would not have cut, and a history rendered from its text is then other ids than those that were sampled. Digests and differences
to a parent are worked out here by plain means, so that what the projection puts together is held against something else.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from schemas.base import Event
from schemas.config import ScriptedModel, SimpleAgent
from schemas.conversation import Text, Turn
from schemas.envelope import Envelope
from schemas.events import (
    ModelCallCompleted,
    ModelCallFailed,
    ModelCallLate,
    ModelCallLost,
    ModelCallRequested,
    SessionRequested,
)
from schemas.sandboxes import UnsafeLocal
from schemas.tasks import TaskInput
from schemas.tokens import CallTokens
from schemas.values import Failure, Message, Sampling, Usage

PIECES = ("a", "b", "c", "ab", "bc", "ca", "abc", "\n", "<s>", "<u>", "<a>", "</>")
IDS = {text: n for n, text in enumerate(PIECES, 10)}
TEXTS = {n: text for text, n in IDS.items()}
OPEN, CLOSE = {"system": "<s>", "user": "<u>", "assistant": "<a>"}, "</>"


def encode(text: str) -> list[int]:
    """Return the ids of a text as the tokenizer cuts it: the longest piece first."""
    ids: list[int] = []
    while text:
        piece = max((p for p in PIECES if text.startswith(p)), key=len)
        ids.append(IDS[piece])
        text = text[len(piece) :]
    return ids


def decode(ids: Sequence[int]) -> str:
    """Return the text of ids."""
    return "".join(TEXTS[n] for n in ids)


def rendered(role: str, text: str) -> list[int]:
    """Return a message in the chat template, whole."""
    return encode(f"{OPEN[role]}{text}{CLOSE}\n")


def hashed(ids: Sequence[int]) -> str:
    """Return the digest of ids, as it is specified."""
    return hashlib.sha256(b"gym-bus token ids\x01" + struct.pack(f">{len(ids) + 1}q", len(ids), *ids)).hexdigest()


@dataclass
class Told:
    """A call and the truth about it: the ids of its whole prompt, and what was generated."""

    id: str
    conversation: str
    parent: Told | None
    said: list[tuple[str, str]]
    prompt: list[int]
    question: str
    tools: str
    asked: ModelCallRequested
    generated: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    state: str = "open"
    is_recorded: bool = False

    @property
    def whole(self) -> list[int]:
        """Return all ids of the call."""
        return self.prompt + self.generated


@dataclass
class Story:
    """What happened in one attempt, in the order in which it was written down."""

    events: list[Envelope] = field(default_factory=list)
    calls: list[Told] = field(default_factory=list)

    def tell(self, data: Event, *, key: str = "s1", event_id: str | None = None) -> Envelope:
        """Write an event down."""
        sequence = len(self.events) * 3 + 1
        event = Envelope(
            event_id=event_id or f"e{sequence}",
            type=data.TYPE,
            run_id="r1",
            rollout_id="0-0",
            attempt=1,
            actor="collector" if isinstance(data, SessionRequested) else "model",
            key=key,
            epoch=1,
            ordinal=sequence,
            causation_id=None,
            recorded_at=datetime(2026, 1, 1, tzinfo=UTC),
            data=data,
            sequence=sequence,
        )
        self.events.append(event)
        return event

    def open_session(self, sampling: Sampling | None = None) -> None:
        """Have the session asked for."""
        task = TaskInput(task_id="letters/1", messages=(Message(role="user", content="abc"),))
        self.tell(
            SessionRequested(
                task=task,
                repeat=0,
                agent=SimpleAgent(),
                model=ScriptedModel(),
                sandbox=UnsafeLocal(),
                sampling=sampling or Sampling(),
            ),
            key="_",
        )

    def root(
        self, text: str = "a", *, system: str = "b", tools: str = "t1", conversation: str = "s1", **more: Any
    ) -> Told:
        """Ask something of which nothing came before."""
        said = [("system", system), ("user", text)]
        turns = tuple(Turn(role=role, parts=(Text(text=words),)) for role, words in said)  # type: ignore[arg-type]
        prompt = [n for role, words in said for n in rendered(role, words)] + encode(OPEN["assistant"])
        return self._ask(None, said, prompt, turns, tools, conversation, more)

    def ask(self, parent: Told, text: str = "a", *, how: str = "exact", tools: str | None = None, **more: Any) -> Told:
        """Continue a call's conversation.

        `how` is what its prompt is made of: `exact` keeps the ids that were sampled; `retokenised` renders all of the history from
        its text; `dropped` leaves out the beginning of the last answer; `kept_part` leaves out all between system prompt and the
        last answer.
        """
        answer = decode(parent.generated)
        said = [*parent.said, ("assistant", answer), ("user", text)]
        more_ids = encode(f"{CLOSE}\n") + rendered("user", text) + encode(OPEN["assistant"])
        kept = {
            "dropped": [*parent.said, ("assistant", answer[1:])],
            "kept_part": [*parent.said[:1], ("assistant", answer)],
        }
        history = [n for role, words in kept.get(how, said[:-1]) for n in rendered(role, words)]
        prompt = (
            parent.whole + more_ids if how == "exact" else history + rendered("user", text) + encode(OPEN["assistant"])
        )
        turns = (Turn(role="user", parts=(Text(text=text),)),)
        return self._ask(parent, said, prompt, turns, tools or parent.tools, parent.conversation, more)

    def again(self, told: Told, *, prompt: list[int] | None = None) -> Told:
        """Ask the same once more."""
        tries = sum(other.question == told.question for other in self.calls) + 1
        event = self.tell(told.asked.model_copy(update={"tries": tries}), key=told.conversation)
        made = Told(
            event.event_id,
            told.conversation,
            told.parent,
            told.said,
            prompt or told.prompt,
            told.question,
            told.tools,
            told.asked,
        )
        self.calls.append(made)
        return made

    def _ask(
        self,
        parent: Told | None,
        said: list[tuple[str, str]],
        prompt: list[int],
        turns: tuple[Turn, ...],
        tools: str,
        conversation: str,
        more: dict[str, Any],
    ) -> Told:
        question = hashlib.sha256(repr(said).encode()).hexdigest()
        facts = {"dialect": "chat", "parameters": {"temperature": 0.5}, **more}
        asked = ModelCallRequested(
            turn=len(self.calls) + 1,
            tries=1 + sum(call.question == question and call.conversation == conversation for call in self.calls),
            parent_id=parent.id if parent else None,
            new_messages=(),
            new_turns=turns,
            context_digest=question,
            tools_digest=tools,
            **facts,
        )
        event = self.tell(asked, key=conversation)
        told = Told(event.event_id, conversation, parent, said, prompt, question, tools, asked)
        self.calls.append(told)
        return told

    def answer(
        self,
        told: Told,
        generated: Sequence[int] | str = "abc",
        *,
        tokens: CallTokens | str | None = "right",
        logprobs: Sequence[float] | None = None,
        **more: Any,
    ) -> Told:
        """Answer a call. `tokens` are the right ones, or what is recorded in their place."""
        told.generated = encode(generated) if isinstance(generated, str) else list(generated)
        told.logprobs = [-0.25 * (n + 1) for n in range(len(told.generated))] if logprobs is None else list(logprobs)
        told.state = "completed"
        recorded = self.difference(told) if tokens == "right" else tokens
        told.is_recorded = recorded is not None
        facts = {
            "usage": Usage(input_tokens=len(told.prompt), output_tokens=len(told.generated)),
            "stop_reason": "stop",
            "duration_s": 0.5,
            **more,
        }
        message = Message(role="assistant", content=decode(told.generated))
        done = ModelCallCompleted(request_id=told.id, turn=told.asked.turn, message=message, **facts)
        self.tell(done.replaced(tokens=recorded), key=told.conversation)
        return told

    def difference(self, told: Told, **changes: Any) -> CallTokens:
        """Return a call's tokens as what they add to the nearest call before it that has any."""
        base = told.parent
        while base is not None and not base.is_recorded:
            base = base.parent
        shared = 0
        for one, other in zip(base.whole if base else [], told.prompt, strict=False):
            if one != other:
                break
            shared += 1
        facts: dict[str, Any] = {
            "parent_id": base.id if base else None,
            "shared": shared,
            "prompt": tuple(told.prompt[shared:]),
            "generated": tuple(told.generated),
            "logprobs": tuple(told.logprobs),
            "logprob_kind": "processed",
            "digest": hashed(told.whole),
        }
        return CallTokens.unchecked(**{**facts, **changes})

    def fail(self, told: Told, status: int | None = None) -> None:
        """Have a try fail."""
        told.state = "failed"
        failure = Failure(kind="provider_unavailable", message="no", stage="model")
        data = ModelCallFailed(
            request_id=told.id, turn=told.asked.turn, failure=failure, retry_in_s=None, duration_s=0.1, status=status
        )
        self.tell(data, key=told.conversation)

    def lose(self, told: Told, *, late_tokens: int | None = None) -> None:
        """Lose a try; perhaps its answer comes late."""
        told.state = "lost"
        self.tell(ModelCallLost(request_id=told.id, turn=told.asked.turn), key=told.conversation)
        if late_tokens is not None:
            usage = Usage(output_tokens=late_tokens)
            late = ModelCallLate(request_id=told.id, turn=told.asked.turn, parts=(), usage=usage, was_shown=False)
            self.tell(late, key=f"{told.conversation}-late-{told.id}")
