"""What a model said, out of the event that holds it."""

from __future__ import annotations

from schemas.conversation import Part, Text, ToolUse
from schemas.events import ModelCallCompleted


def parts_of(answer: ModelCallCompleted) -> tuple[Part, ...]:
    """Return all that the model said in a recorded answer."""
    if answer.parts is not None:
        return answer.parts
    message = answer.message
    words = (Text(text=message.content),) if message.content is not None else ()
    return (*words, *(ToolUse(id=c.id, name=c.name, arguments=c.arguments) for c in message.tool_calls))
