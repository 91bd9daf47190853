"""Answers that say something, and text that can be stored.

Halves of surrogate pairs, which servers leave that cut text by UTF-16 units, are joined or replaced.
"""

from __future__ import annotations

from typing import Any, Final, TypeVar

from pydantic import ValidationError

from gym_bus.nesting import GIVEN_MAX_LEVELS, is_deeper
from providers.dialects.base import Malformed
from schemas.base import Frozen
from schemas.conversation import Reply

T = TypeVar("T", bound=Frozen)

SAYS_NOTHING: Final = frozenset({"length", "content_filter", "refusal", "stop_sequence"})
"""Ends at which a model may have said nothing; they say why."""


def check_says_something(reply: Reply) -> None:
    """Raise `Malformed` for an answer without anything in it that just ended: a program would ask the same for ever."""
    if not reply.parts and reply.stop_reason not in SAYS_NOTHING:
        msg = "the answer holds nothing"
        raise Malformed(msg)


def sound_text(text: str) -> str:
    """Return `text` with pairs that came in two halves joined, and halves that are alone as U+FFFD."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


def sound(value: T) -> T:
    """Return a value that can be written as JSON; raises `Malformed` for one that cannot, such as one too deep."""
    try:
        text = value.model_dump_json()
    except (ValueError, RecursionError):
        pass
    else:
        return _not_too_deep(value, text)
    try:
        mended = type(value).model_validate(_sound(value.model_dump()))
        return _not_too_deep(mended, mended.model_dump_json())
    except (ValueError, RecursionError, ValidationError) as error:
        msg = f"an answer that cannot be recorded: {type(error).__name__}"
        raise Malformed(msg) from error


def _not_too_deep(value: T, text: str) -> T:
    if is_deeper(text.encode(), GIVEN_MAX_LEVELS):
        msg = f"an answer that cannot be recorded: it has more than {GIVEN_MAX_LEVELS} levels of arrays and objects"
        raise Malformed(msg)
    return value


def _sound(value: Any) -> Any:
    match value:
        case str():
            return sound_text(value)
        case dict():
            return {_sound(name): _sound(inner) for name, inner in value.items()}
        case list() | tuple():
            return [_sound(inner) for inner in value]
        case _:
            return value
