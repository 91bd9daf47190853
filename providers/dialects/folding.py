"""A streamed answer put together again: what a stream said, as the one answer that it was."""

from __future__ import annotations

from collections.abc import Iterable

from providers.dialects.base import Malformed
from schemas.conversation import (
    Delta,
    DialectName,
    Part,
    PartBegan,
    PartEnded,
    PartGrew,
    Reasoning,
    Refusal,
    Reply,
    ReplyBegan,
    ReplyBroke,
    ReplyEnded,
    Text,
    TokenLogprob,
    TokenUsage,
    ToolUse,
)


class Folding:
    """Takes deltas one by one; `reply` is what they make, also when the stream was cut in the middle."""

    def __init__(self, dialect: DialectName) -> None:
        """Begin with nothing."""
        self._dialect: DialectName = dialect
        self._began: ReplyBegan | None = None
        self._parts: dict[int, Part] = {}
        self._pieces: dict[int, dict[tuple[str, int], list[str]]] = {}  # of each part, what grew of it
        self._logprobs: list[TokenLogprob] = []
        self._ended: ReplyEnded | None = None
        self.broke: ReplyBroke | None = None

    @property
    def is_whole(self) -> bool:
        """Return whether the answer has come to its end."""
        return self._ended is not None

    def add(self, delta: Delta) -> None:
        """Take in one delta."""
        match delta:
            case ReplyBegan():
                self._began = delta
            case PartBegan():
                self._parts[delta.index] = delta.part
            case PartGrew():
                grown = self._pieces.setdefault(delta.index, {})
                grown.setdefault((delta.field, delta.nth), []).append(delta.more)
                self._logprobs.extend(delta.logprobs)
            case PartEnded():
                self._parts[delta.index] = delta.part
                self._pieces.pop(delta.index, None)
            case ReplyEnded():
                self._ended = delta
            case ReplyBroke():
                self.broke = delta

    def reply(self) -> Reply:
        """Return the answer as far as it came; raises `Malformed` if it never began."""
        if self._began is None:
            msg = "a stream that never began an answer"
            raise Malformed(msg)
        return Reply(
            dialect=self._dialect,
            id=self._began.id,
            model=self._began.model,
            created=self._began.created,
            parts=tuple(self._grown(index) for index in sorted(self._parts)),
            stop_reason=self._ended.stop_reason if self._ended else "stop",
            stop_sequence=self._ended.stop_sequence if self._ended else None,
            usage=self._usage(),
            logprobs=tuple(self._logprobs) or None,
        )

    def _usage(self) -> TokenUsage | None:
        if self._ended:
            return self._ended.usage
        return self._began.usage if self._began else None

    def _grown(self, index: int) -> Part:
        """Return a part with what has been added to it since it began."""
        part = self._parts[index]
        grown = {key: "".join(pieces) for key, pieces in self._pieces.get(index, {}).items()}
        if not grown:
            return part
        match part:
            case Text() | Refusal():
                more = grown.get(("text", 0), "") + grown.get(("refusal", 0), "")
                return part.model_copy(update={"text": part.text + more})
            case ToolUse():
                return part.model_copy(update={"arguments": part.arguments + grown.get(("arguments", 0), "")})
            case Reasoning():
                return _thought(part, grown)
            case _:
                return part


def _thought(part: Reasoning, grown: dict[tuple[str, int], str]) -> Reasoning:
    def extended(known: tuple[str, ...], field: str) -> tuple[str, ...]:
        last = max((nth for name, nth in grown if name == field), default=-1)
        words = [*known, *([""] * (last + 1 - len(known)))]
        return tuple(word + grown.get((field, n), "") for n, word in enumerate(words))

    def joined(known: str | None, field: str) -> str | None:
        return (known or "") + grown[(field, 0)] if (field, 0) in grown else known

    return part.model_copy(
        update={
            "texts": extended(part.texts, "reasoning"),
            "summaries": extended(part.summaries, "summary"),
            "signature": joined(part.signature, "signature"),
            "encrypted": joined(part.encrypted, "encrypted"),
        }
    )


def fold(deltas: Iterable[Delta], dialect: DialectName) -> Reply:
    """Return the answer that a whole stream made; raises `Malformed` if it was cut or broke."""
    folding = Folding(dialect)
    for delta in deltas:
        folding.add(delta)
    if folding.broke:
        raise Malformed(folding.broke.message)
    if not folding.is_whole:
        msg = "a stream that ended before its answer did"
        raise Malformed(msg)
    return folding.reply()
