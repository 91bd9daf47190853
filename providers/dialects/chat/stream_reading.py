"""A backend's streamed answer, read chunk by chunk.

The answer's end is told when the stream's is (`[DONE]`), for what it cost comes after why it ended. A stream that ends before a
`finish_reason` was cut, and so was one without a `[DONE]` that has not told what it cost though it was asked to.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from pydantic import ValidationError

from providers.dialects.base import Malformed, Unexpressible
from providers.dialects.chat.accounting import read_logprobs, read_usage
from providers.dialects.chat.assistant import OLD_CALL
from providers.dialects.chat.parts import is_annotation
from providers.dialects.chat.problem import read_error
from providers.dialects.chat.stopping import read_stop
from providers.dialects.chat.stream_parts import StreamedParts
from providers.dialects.chat.unknown import Unknown
from providers.dialects.fields import Fields
from providers.dialects.json_text import strictly
from schemas.conversation import Delta, ReplyBegan, ReplyBroke, ReplyEnded, StopReason, TokenUsage

DONE: Final = "[DONE]"
PLAIN: Final = frozenset({"id", "object", "created", "model", "system_fingerprint", "service_tier", "usage"})
NOTHING_YET: Final = ("logprobs", "finish_reason")
PLAIN_IN_CHOICE: Final = frozenset({"index", *NOTHING_YET})


class ChatStreamReader:
    """See the module."""

    def __init__(self, *, is_usage_asked: bool = False) -> None:
        """Begin before the first chunk; with `is_usage_asked` one that tells the usage has to come."""
        self._is_usage_asked = is_usage_asked
        self._parts = StreamedParts()
        self._has_begun = False
        self._stop: tuple[StopReason, str | None] | None = None
        self._usage: TokenUsage | None = None
        self._has_usage_come = False
        self._is_over = False

    def feed(self, event: str | None, data: str) -> list[Delta]:
        """Return what one server-sent event says; events that are no chunks say nothing. Raises `Malformed`."""
        if self._is_over:
            return []
        if data.strip() == DONE:
            return self._ended()
        chunk = _parsed(event, data)
        if chunk is None:
            return []
        is_plain = event in (None, "", "message") and self._has_begun and self._stop is None
        if is_plain and (words := _only_words(chunk)):
            return list(self._parts.add_words("text", words))
        if broke := _broken(event, chunk):
            self._is_over = True
            return [broke]
        try:
            return list(self._read(Fields(chunk)))
        except (Unexpressible, ValidationError) as error:
            raise Malformed(f"no chunk of Chat Completions: {error}") from error

    @property
    def is_ending(self) -> bool:
        """See `StreamReader`."""
        return self._stop is not None

    def end(self) -> list[Delta]:
        """Return the answer's end, once; raises `Malformed` if the stream was cut."""
        if not self._is_over and self._stop is not None and self._is_usage_asked and not self._has_usage_come:
            raise Malformed("the stream ended without a [DONE] and what the answer cost: it was cut")
        return self._ended()

    def _ended(self) -> list[Delta]:
        if self._is_over:
            return []
        if self._stop is None:
            raise Malformed("the stream ended without a finish_reason: the answer was cut")
        self._is_over = True
        reason, sequence = self._stop
        return [ReplyEnded(stop_reason=reason, stop_sequence=sequence, usage=self._usage)]

    def _read(self, chunk: Fields) -> Iterator[Delta]:
        usage = chunk.fields("usage")
        if usage is not None:
            self._usage, self._has_usage_come = read_usage(usage, Unknown()), True
        choices = list(chunk.each("choices"))
        if not choices:  # what it cost, a filter's verdict on the prompt, or a ping
            return
        if not self._has_begun:
            self._has_begun = True
            created = chunk.integer("created") or None
            yield ReplyBegan(id=chunk.needed_text("id"), model=chunk.needed_text("model"), created=created)
        if len(choices) > 1 or choices[0].integer("index"):
            raise Unexpressible(chunk.at("choices"), "want one answer, found more")
        yield from self._read_choice(choices[0])

    def _read_choice(self, choice: Fields) -> Iterator[Delta]:
        self._parts.hold(read_logprobs(choice))
        delta = choice.fields("delta")
        if delta is not None:
            for one in self._read_delta(delta):
                if self._stop is not None:
                    raise Malformed("the answer went on after its finish_reason")
                yield one
        stop = read_stop(choice, Unknown())
        if stop is not None and self._stop is None:
            yield from self._parts.end()
            self._stop = stop

    def _read_delta(self, delta: Fields) -> Iterator[Delta]:
        if delta.has("function_call"):
            raise Unexpressible(delta.at("function_call"), OLD_CALL)
        thought, other = delta.text("reasoning_content"), delta.take("reasoning")
        thought = thought or (other if isinstance(other, str) else None)
        if thought:
            yield from self._parts.add_words("reasoning", thought)
        if text := delta.text("content"):
            yield from self._parts.add_words("text", text)
        if refusal := delta.text("refusal"):
            yield from self._parts.add_words("refusal", refusal)
        annotations = delta.list("annotations") or []
        if known := [one for one in annotations if isinstance(one, dict) and is_annotation(one)]:
            self._parts.cite(known)
        for call in delta.each("tool_calls"):
            yield from self._parts.add_call(call)


def _parsed(event: str | None, data: str) -> dict[str, Any] | None:
    """Return a chunk; None for an event under a name of its own that is none."""
    try:
        value = strictly(data)
    except (ValueError, RecursionError) as error:
        if event == "error":
            return {"error": {"message": data}}
        if event not in (None, "", "message") or not data.strip():
            return None
        raise Malformed(f"an event that is no JSON: {data[:200]!r}") from error
    if isinstance(value, dict):
        return value
    raise Malformed(f"an event that is no object: {data[:200]!r}")


def _only_words(chunk: dict[str, Any]) -> str | None:
    """Return the words of a chunk that says nothing else, as nearly all do: read in a quarter of the time."""
    match chunk:
        case {"choices": [{"delta": {"content": str(words), **in_delta}, **in_choice}], **rest} if (
            words and not in_delta
        ):
            is_plain = not (rest.keys() - PLAIN or in_choice.keys() - PLAIN_IN_CHOICE) and rest.get("object") != "error"
            index, nothing = in_choice.get("index", 0), (rest.get("usage"), *map(in_choice.get, NOTHING_YET))
            says_more = type(index) is not int or index != 0 or any(value is not None for value in nothing)
            return words if is_plain and not says_more else None
        case _:
            return None


def _broken(event: str | None, chunk: dict[str, Any]) -> ReplyBroke | None:
    """Return what a backend says of its failure, in one of the shapes in which they do."""
    error = chunk.get("error")
    if error is None and (event == "error" or chunk.get("object") == "error"):
        error = chunk
    if error is None:
        return None
    message, code = read_error(error)
    return ReplyBroke(message=message, code=code, body=chunk)
