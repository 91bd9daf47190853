"""A conversation with a model, whatever dialect it was spoken in: the one form that all dialects are read into and written from.

It is canonical: what tools returned is in turns of the role `tool`, of which no two are neighbours; all that an assistant says up to
somebody else is one turn, thoughts before words before calls; system prompts stand where the client put them; other turns are as the
client cut them. Text and arguments are as they were written, never repaired.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from schemas.base import Frozen, Tagged

DialectName = Literal["chat", "responses", "messages", "gemini"]
"""What clients speak; backends speak all but `gemini`."""
Role = Literal["system", "developer", "user", "assistant", "tool"]
StopReason = Literal["stop", "stop_sequence", "tool_calls", "length", "content_filter", "refusal", "pause"]
Effort = Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"]


class Url(Tagged):
    """Content that the backend fetches."""

    type: Literal["url"] = "url"
    url: str


class Data(Tagged):
    """Content that is sent along, in base64 as the client wrote it; `media_type` may be unknown to the client."""

    type: Literal["data"] = "data"
    media_type: str | None
    base64: str


class FileId(Tagged):
    """Content that the provider of `dialect` keeps under an id."""

    type: Literal["file_id"] = "file_id"
    dialect: DialectName
    id: str


Source = Annotated[Url | Data | FileId, Field(discriminator="type")]


class CacheHint(Frozen):
    """Where a prompt may be cached up to; `ttl` as in Anthropic Messages (`5m`, `1h`), None for the provider's own."""

    ttl: str | None = None


class Text(Tagged):
    """Words. `citations` are the dialect's own objects about where an answer's words come from."""

    type: Literal["text"] = "text"
    text: str
    citations: tuple[dict[str, Any], ...] = ()
    cache: CacheHint | None = None


class Refusal(Tagged):
    """The model's words for not doing it, where a dialect tells them from others."""

    type: Literal["refusal"] = "refusal"
    text: str


class Image(Tagged):
    """A picture."""

    type: Literal["image"] = "image"
    source: Source
    detail: Literal["low", "high", "auto", "original"] | None = None
    cache: CacheHint | None = None


class Audio(Tagged):
    """A sound; `format` is what the dialect calls it (`wav`, `mp3`)."""

    type: Literal["audio"] = "audio"
    base64: str
    format: str


class Video(Tagged):
    """A moving picture, as vLLM and its like take it."""

    type: Literal["video"] = "video"
    source: Source


class File(Tagged):
    """A document. `text` holds a plain-text document in place of a source."""

    type: Literal["file"] = "file"
    source: Source | None = None
    text: str | None = None
    filename: str | None = None
    context: str | None = None
    has_citations: bool | None = None
    cache: CacheHint | None = None


class Reasoning(Tagged):
    """What the model thought: `texts` in plain words, `summaries` of it, `encrypted` or `redacted` where nobody may read it.

    `signature` proves to the provider that the text is its own; `id` is the item's in OpenAI Responses.
    """

    type: Literal["reasoning"] = "reasoning"
    texts: tuple[str, ...] = ()
    summaries: tuple[str, ...] = ()
    signature: str | None = None
    encrypted: str | None = None
    redacted: str | None = None
    id: str | None = None


class ToolUse(Tagged):
    """A call of a tool as the model wrote it: `arguments` is raw text, JSON for `function`, anything for `custom`."""

    type: Literal["tool_use"] = "tool_use"
    id: str
    name: str
    arguments: str
    kind: Literal["function", "custom"] = "function"
    namespace: str | None = None
    item_id: str | None = None
    cache: CacheHint | None = None


ResultPart = Annotated[Text | Image | Audio | Video | File, Field(discriminator="type")]


class ToolResult(Tagged):
    """What came of a call. `parts` may be empty; `is_plain` if the client wrote a bare string and no list of parts."""

    type: Literal["tool_result"] = "tool_result"
    call_id: str
    parts: tuple[ResultPart, ...] = ()
    is_plain: bool = True
    is_error: bool | None = None
    kind: Literal["function", "custom"] = "function"
    cache: CacheHint | None = None


class Hosted(Tagged):
    """An item that only `dialect` knows (a hosted tool's call or result, a compaction); it can go nowhere else."""

    type: Literal["hosted"] = "hosted"
    dialect: DialectName
    item: dict[str, Any]


Part = Annotated[
    Text | Refusal | Image | Audio | Video | File | Reasoning | ToolUse | ToolResult | Hosted,
    Field(discriminator="type"),
]


class Turn(Frozen):
    """What one role said at a time. `name` tells participants of one role apart; `is_plain` if the client wrote a bare string."""

    role: Role
    parts: tuple[Part, ...]
    name: str | None = None
    is_plain: bool = False


class Tool(Frozen):
    """A tool that is offered. `parameters` is a JSON Schema, None if the client gave none; `format` is a custom tool's grammar."""

    name: str
    description: str | None = None
    kind: Literal["function", "custom"] = "function"
    parameters: dict[str, Any] | None = None
    format: dict[str, Any] | None = None
    strict: bool | None = None
    namespace: str | None = None
    cache: CacheHint | None = None


class HostedTool(Frozen):
    """A tool that the provider of `dialect` runs itself."""

    dialect: DialectName
    tool: dict[str, Any]


class ToolChoice(Frozen):
    """Whether a tool must be called: any (`required`), one by `name`, as the model likes (`auto`), or none."""

    mode: Literal["auto", "none", "required", "named"]
    name: str | None = None
    kind: Literal["function", "custom"] = "function"


class OutputFormat(Frozen):
    """What the answer must look like. `schema_` is a JSON Schema for `json_schema`."""

    mode: Literal["text", "json_object", "json_schema"]
    name: str | None = None
    description: str | None = None
    schema_: dict[str, Any] | None = None
    strict: bool | None = None


class Thinking(Frozen):
    """How much the model thinks: by `effort` or by `budget_tokens`; `is_off` if the client forbids it; `summary` is how it is told."""

    effort: Effort | None = None
    budget_tokens: int | None = None
    is_adaptive: bool = False
    is_off: bool = False
    summary: str | None = None


class Request(Frozen):
    """One call. None always means that the client said nothing.

    `tools` is None for an absent list and empty for an empty one. `others` are the fields that nobody here knows: they go through
    in their own `dialect` and are refused in another.
    """

    dialect: DialectName
    model: str
    turns: tuple[Turn, ...]
    tools: tuple[Tool | HostedTool, ...] | None = None
    tool_choice: ToolChoice | None = None
    parallel_tool_calls: bool | None = None
    max_output_tokens: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    seed: int | None = None
    stop: tuple[str, ...] | None = None
    logprobs: bool | None = None
    top_logprobs: int | None = None
    output: OutputFormat | None = None
    verbosity: Literal["low", "medium", "high"] | None = None
    thinking: Thinking | None = None
    is_streamed: bool = False
    wants_usage: bool = False
    others: dict[str, Any] = Field(default_factory=dict)


class TokenUsage(Frozen):
    """Tokens of one call: `input_tokens` counts all that was read, `cached_tokens` and `cache_written_tokens` included."""

    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0
    cache_written_tokens: int = 0
    reasoning_tokens: int = 0


class TokenLogprob(Frozen):
    """A token that was generated, its logarithmic probability, and the likeliest ones in its place as (token, logprob)."""

    token: str
    logprob: float
    top: tuple[tuple[str, float], ...] = ()


class Reply(Frozen):
    """One answer. `parts` are the assistant's, in the order in which they came; `others` as in `Request`."""

    dialect: DialectName
    id: str
    model: str
    parts: tuple[Part, ...]
    stop_reason: StopReason
    stop_sequence: str | None = None
    usage: TokenUsage | None = None
    logprobs: tuple[TokenLogprob, ...] | None = None
    created: int | None = None
    others: dict[str, Any] = Field(default_factory=dict)


# -- streamed answers ---------------------------------------------------------------------------------------------------------------


class ReplyBegan(Tagged):
    """The first thing that is known of a streamed answer."""

    type: Literal["began"] = "began"
    id: str
    model: str
    created: int | None = None
    usage: TokenUsage | None = None


class PartBegan(Tagged):
    """A part begins, with what is known of it so far; `index` counts the answer's parts from 0."""

    type: Literal["part_began"] = "part_began"
    index: int
    part: Part


class PartGrew(Tagged):
    """More of a part: words of a `text` or `refusal`, `arguments` of a tool's call, a thought, its summary or signature.

    `nth` says which of a reasoning part's texts or summaries grows.
    """

    type: Literal["part_grew"] = "part_grew"
    index: int
    field: Literal["text", "refusal", "arguments", "reasoning", "summary", "signature", "encrypted"]
    more: str
    nth: int = 0
    logprobs: tuple[TokenLogprob, ...] = ()


class PartEnded(Tagged):
    """A part is whole; `part` is all of it."""

    type: Literal["part_ended"] = "part_ended"
    index: int
    part: Part


class ReplyEnded(Tagged):
    """The answer is whole."""

    type: Literal["ended"] = "ended"
    stop_reason: StopReason
    stop_sequence: str | None = None
    usage: TokenUsage | None = None


class ReplyBroke(Tagged):
    """The backend said in mid-stream that it failed; `body` is what it said."""

    type: Literal["broke"] = "broke"
    message: str
    code: str | None = None
    body: dict[str, Any] = Field(default_factory=dict)


Delta = Annotated[ReplyBegan | PartBegan | PartGrew | PartEnded | ReplyEnded | ReplyBroke, Field(discriminator="type")]
