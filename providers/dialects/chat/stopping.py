"""Why an answer ended, there and back; which stop sequence it was is in `stop_reason`, as vLLM has it, or `matched_stop`, as SGLang."""

from __future__ import annotations

from typing import Any, Final

from providers.dialects.base import Malformed, Unexpressible
from providers.dialects.chat.unknown import Unknown
from providers.dialects.fields import Fields
from schemas.conversation import StopReason

READ: Final[dict[str, StopReason]] = {
    "stop": "stop",
    "tool_calls": "tool_calls",
    "function_call": "tool_calls",
    "length": "length",
    "model_length": "length",
    "content_filter": "content_filter",
}
WRITTEN: Final[dict[StopReason, str]] = {
    "stop": "stop",
    "stop_sequence": "stop",
    "tool_calls": "tool_calls",
    "length": "length",
    "content_filter": "content_filter",
    "refusal": "content_filter",
}
SEQUENCE_FIELDS: Final = ("stop_reason", "matched_stop")


def read_stop(choice: Fields, unknown: Unknown) -> tuple[StopReason, str | None] | None:
    """Take why a choice ended and by which stop sequence; None if it has not ended. Raises `Malformed` for an unknown reason."""
    said = choice.text("finish_reason")
    sequence: str | None = None
    for name in SEQUENCE_FIELDS:
        value = choice.take(name)
        if isinstance(value, str) and said == "stop" and sequence in (None, value):
            sequence = value
        elif value is not None:
            unknown.keep_value(choice, name, value)  # the token that ended it
    if not said:
        return None
    if said not in READ:
        raise Malformed(f"the answer did not come to its end: finish_reason is {said!r}")
    return ("stop_sequence", sequence) if sequence is not None else (READ[said], None)


def write_stop(reason: StopReason, sequence: str | None) -> dict[str, Any]:
    """Return a choice's `finish_reason`, and `stop_reason` where a stop sequence is known; raises `Unexpressible` for a pause."""
    if reason not in WRITTEN:
        raise Unexpressible(
            "finish_reason", "an answer that waits to be continued cannot be told from one that is whole"
        )
    written = {"finish_reason": WRITTEN[reason]}
    return written if sequence is None else {**written, "stop_reason": sequence}
