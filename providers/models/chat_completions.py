"""Between our messages and those of OpenAI Chat Completions, in both directions; nothing here talks to anybody."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from typing import Annotated, Any, Final

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, field_validator

from providers.models.base import ModelAnswer, ModelCall, counted
from schemas.events.model import StopReason
from schemas.values import Message, Sampling, ToolCall, ToolSpec, Usage

STOP_REASONS: Final[Mapping[str, StopReason]] = {
    "stop": "stop",
    "tool_calls": "tool_calls",
    "function_call": "tool_calls",
    "length": "length",
    "content_filter": "content_filter",
}


def request_body(call: ModelCall, limit: str) -> dict[str, Any]:
    """Return the body of the request; `limit` is what bounds an answer's length."""
    body: dict[str, Any] = {"messages": [_outgoing(message) for message in call.messages]}
    if call.tools:
        body["tools"] = [_tool(spec) for spec in call.tools]
        body["parallel_tool_calls"] = call.parallel_tool_calls
    return {**body, **_sampling(call.sampling, limit)}


def _sampling(sampling: Sampling, limit: str) -> dict[str, Any]:
    named = {
        "temperature": sampling.temperature,
        "top_p": sampling.top_p,
        limit: sampling.max_output_tokens,
        "seed": sampling.seed,
    }
    return {name: value for name, value in named.items() if value is not None}


def _outgoing(message: Message) -> dict[str, Any]:
    entry: dict[str, Any] = {"role": message.role, "content": message.content}
    if message.tool_calls:
        entry["tool_calls"] = [
            {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
            for call in message.tool_calls
        ]
    elif message.content is None:
        entry["content"] = ""
    if message.tool_call_id is not None:
        entry["tool_call_id"] = message.tool_call_id
    return entry


def _tool(spec: ToolSpec) -> dict[str, Any]:
    function = {"name": spec.name, "description": spec.description, "parameters": spec.parameters}
    return {"type": "function", "function": function}


def _as_text(value: object) -> object:
    """Join content that comes in parts, and give arguments that come as an object the text they would have had."""
    if isinstance(value, list):
        return "".join(str(part.get("text", "")) for part in value if isinstance(part, dict))
    return json.dumps(value) if isinstance(value, dict) else value


Text = Annotated[str, BeforeValidator(_as_text)]


class _Lenient(BaseModel):
    """Backends add fields of their own."""

    model_config = ConfigDict(extra="ignore", frozen=True)


class _Function(_Lenient):
    name: str
    arguments: Text = ""


class _ToolCall(_Lenient):
    id: str | None = None
    function: _Function


class _Message(_Lenient):
    content: Text | None = None
    tool_calls: list[_ToolCall] | None = None

    @field_validator("tool_calls")
    @classmethod
    def _have_ids_of_their_own(cls, calls: list[_ToolCall] | None) -> list[_ToolCall] | None:
        ids = Counter(call.id for call in calls or () if call.id)
        if twice := next((one for one, count in ids.items() if count > 1), None):
            msg = f"two calls of one answer have the id {twice!r:.80}"
            raise ValueError(msg)
        return calls


class _Choice(_Lenient):
    message: _Message
    finish_reason: str | None = None


class _PromptDetails(_Lenient):
    cached_tokens: int | None = None


class _CompletionDetails(_Lenient):
    reasoning_tokens: int | None = None


class _Usage(_Lenient):
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    prompt_tokens_details: _PromptDetails | None = None
    completion_tokens_details: _CompletionDetails | None = None


class Completion(_Lenient):
    """A response's body, as far as we read it."""

    choices: list[_Choice] = Field(min_length=1)
    usage: _Usage | None = None
    id: Any = None
    model: Any = None


def answer(completion: Completion, turn: int) -> ModelAnswer:
    """Return what the model said; tool calls without an id get one made of the turn and their place."""
    choice = completion.choices[0]
    calls = tuple(
        ToolCall(id=call.id or f"call{turn}x{place}", name=call.function.name, arguments=call.function.arguments)
        for place, call in enumerate(choice.message.tool_calls or ())
    )
    message = Message(role="assistant", content=choice.message.content, tool_calls=calls)
    stop_reason = STOP_REASONS.get(choice.finish_reason or "", "stop")
    if calls and stop_reason == "stop":  # several backends say so
        stop_reason = "tool_calls"
    elif not calls and stop_reason == "tool_calls":
        stop_reason = "stop"
    told = (value if isinstance(value, str) else None for value in (completion.id, completion.model))
    reply_id, served_model = told
    return ModelAnswer(
        message, stop_reason, _usage(completion.usage or _Usage()), reply_id=reply_id, served_model=served_model
    )


def _usage(usage: _Usage) -> Usage:
    prompt, completion = usage.prompt_tokens_details, usage.completion_tokens_details
    return Usage(
        input_tokens=counted(usage.prompt_tokens),
        output_tokens=counted(usage.completion_tokens),
        cached_tokens=counted(prompt.cached_tokens if prompt else None),
        reasoning_tokens=counted(completion.reasoning_tokens if completion else None),
    )
