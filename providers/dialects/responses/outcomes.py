"""How an answer ended: the API's status with its reason, and the conversation's one word for both."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

from providers.dialects.base import Malformed, Unexpressible
from providers.dialects.fields import Fields
from schemas.conversation import Part, Refusal, StopReason, ToolUse


@dataclass(frozen=True, slots=True)
class Outcome:
    """A status, and why the answer is incomplete if it is."""

    status: str
    reason: str | None = None

    @property
    def is_cut(self) -> bool:
        """Return whether the answer is not all that was to be said."""
        return self.status == "incomplete"

    @property
    def details(self) -> dict[str, Any] | None:
        """Return what the API says of an incomplete answer."""
        return None if self.reason is None else {"reason": self.reason}


INCOMPLETE: Final[dict[str, StopReason]] = {"max_output_tokens": "length", "content_filter": "content_filter"}


def read_outcome(response: Fields, parts: Iterable[Part]) -> StopReason:
    """Take status and reason, and return why the answer ended; raises `Malformed` if it has not, or failed.

    What is complete and calls a tool stopped for its result; what is complete and refuses, because it refused.
    """
    status, details, error = response.text("status"), response.fields("incomplete_details"), response.fields("error")
    reason = details.text("reason") if details else None
    if error is not None:
        raise Malformed(f"the backend failed: {error.text('code')}: {error.text('message')}")
    if status not in {None, "completed", "incomplete"}:
        raise Malformed(f"an answer with the status {status!r} is none")
    if status == "incomplete" or reason is not None:
        if reason not in INCOMPLETE:
            raise Malformed(f"an answer that is incomplete for a reason not known here: {reason!r}")
        return INCOMPLETE[reason]
    kinds = {type(part) for part in parts}
    return "tool_calls" if ToolUse in kinds else "refusal" if Refusal in kinds else "stop"


def outcome(stop_reason: StopReason, parts: Iterable[Part]) -> Outcome:
    """Return how the API says that an answer ended; raises `Unexpressible` for a pause, which it does not know."""
    match stop_reason:
        case "length":
            return Outcome("incomplete", "max_output_tokens")
        case "content_filter":
            return Outcome("incomplete", "content_filter")
        case "refusal" if not any(isinstance(part, Refusal) for part in parts):
            return Outcome("incomplete", "content_filter")  # it was cut, and no words of refusal came
        case "pause":
            raise Unexpressible("stop_reason", "the Responses API knows no answer that pauses")
        case _:
            return Outcome("completed")
