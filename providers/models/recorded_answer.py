"""What a model said, out of the event that holds it."""

from __future__ import annotations

from schemas.conversation import DialectName, Part, Reply, Text, TokenUsage, ToolUse
from schemas.events import ModelCallCompleted


def parts_of(answer: ModelCallCompleted) -> tuple[Part, ...]:
    """Return all that the model said in a recorded answer."""
    if answer.parts is not None:
        return answer.parts
    message = answer.message
    words = (Text(text=message.content),) if message.content is not None else ()
    return (*words, *(ToolUse(id=c.id, name=c.name, arguments=c.arguments) for c in message.tool_calls))


def reply_of(answer: ModelCallCompleted, dialect: DialectName, *, else_id: str, else_model: str) -> Reply:
    """Return a recorded answer as it came in `dialect`; what the backend did not say of its id and model is as given."""
    usage = answer.usage
    return Reply(
        dialect=dialect,
        id=answer.reply_id or else_id,
        model=answer.served_model or else_model,
        parts=parts_of(answer),
        stop_reason=answer.stop_reason if answer.stop_sequence is None else "stop_sequence",
        stop_sequence=answer.stop_sequence,
        usage=TokenUsage(
            input_tokens=usage.input_tokens,
            output_tokens=usage.output_tokens,
            cached_tokens=usage.cached_tokens,
            reasoning_tokens=usage.reasoning_tokens,
        ),
    )
