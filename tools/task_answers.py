"""What an agent is told of a call of its task's tool."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from schemas.events import RequestParked, TaskToolCallCompleted, TaskToolCallFailed, TaskToolCallLost

ToolAnswer = TaskToolCallCompleted | TaskToolCallFailed | TaskToolCallLost | RequestParked
LATE: Final = "The tool did not answer within {timeout_s:g} s. Whether it did anything is not known."


@dataclass(frozen=True, slots=True)
class Told:
    """What the agent is told of a call."""

    text: str
    is_error: bool = False


def told(answer: ToolAnswer) -> Told:
    """Return what an agent is told of an answer."""
    match answer:
        case TaskToolCallCompleted():
            cut = "\n[the result was longer, and is cut here]" if answer.truncated else ""
            return Told(answer.text + cut, answer.is_error)
        case TaskToolCallFailed():
            return Told(f"The tool was not executed: {answer.failure.message}", is_error=True)
        case RequestParked():
            return Told(f"What came of the call is not known: {answer.failure.message}", is_error=True)
        case TaskToolCallLost():
            return Told(f"What came of the call is not known: {answer.reason}", is_error=True)
