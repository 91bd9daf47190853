"""Text that can be stored: halves of surrogate pairs, which servers leave that cut text by UTF-16 units, are joined or replaced."""

from __future__ import annotations

from typing import Any, TypeVar

from pydantic import ValidationError

from gym_bus.nesting import GIVEN_MAX_LEVELS, is_deeper
from providers.dialects.base import Malformed
from schemas.base import Frozen

T = TypeVar("T", bound=Frozen)


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
