"""What a run may say of an agent whose loop is ours, and of how such a loop keeps its context small (docs/loops.md)."""

from __future__ import annotations

import re
from typing import Literal, Self

from pydantic import Field, field_validator, model_validator

from schemas.base import Frozen, Tagged
from schemas.patterns import repeats_a_repeat
from schemas.values import Seconds, TokenBound

SUMMARY_PROMPT = (
    "Stop here for a moment. What came before this message will not be shown to you any longer. Write down, in plain text and without "
    "calling a tool, all that you need to go on: what the task is, what you did, what you found out, what is left to do."
)


class OwnLoop(Frozen):
    """A loop of model and tool calls, at most `max_steps` model calls long (those that write a summary not counted)."""

    max_steps: int = Field(default=8, ge=1, le=10_000)
    system_prompt: str | None = None
    parallel_tool_calls: bool = True
    enable_tools: bool = True
    timeout_s: Seconds = 1800
    tool_timeout_s: Seconds = 30

    @property
    def needs_sandbox(self) -> bool:
        """Say whether it has a shell."""
        return self.enable_tools


class ImageHistory(Frozen):
    """Images are left out, but for those of the last `keep_last_groups` messages that have any."""

    keep_last_groups: int = Field(default=3, ge=0, le=10_000)
    omission_marker: str = Field(default="[image omitted]", min_length=1, max_length=1000)


class ReasoningHistory(Frozen):
    """What a model thought is left out, but for the last `keep_last_blocks` answers in which it did."""

    keep_last_blocks: int = Field(default=3, ge=0, le=10_000)


class ToolResultHistory(Frozen):
    """Results of tools are left out, but for the last `keep_last_results`."""

    keep_last_results: int = Field(default=10, ge=0, le=10_000)
    omission_marker: str = Field(default="[old tool result omitted]", min_length=1, max_length=1000)


class HistoryPolicy(Frozen):
    """What of the past is left out of a prompt: nothing (`identity`), or of each kind what is older than the last few (`recency`)."""

    type: Literal["identity", "recency"] = "recency"
    images: ImageHistory | None = ImageHistory()
    reasoning: ReasoningHistory | None = ReasoningHistory()
    tool_results: ToolResultHistory | None = None


class HistorySchedule(Frozen):
    """When it is applied: before each model call, or once in `actions_per_chunk` answers: prompts in between only grow."""

    type: Literal["rolling_recency", "turn_chunked_recency"] = "turn_chunked_recency"
    actions_per_chunk: int = Field(default=8, ge=1, le=10_000)


class HistoryGuards(Frozen):
    """A prompt is too long if it and `reserved_generation_tokens` are more than `max_total_tokens` together; None never is."""

    max_total_tokens: TokenBound | None = Field(default=None, ge=1)
    reserved_generation_tokens: TokenBound = Field(default=0, ge=0)

    @property
    def prompt_max_tokens(self) -> int | None:
        """Return what a prompt may have."""
        return None if self.max_total_tokens is None else self.max_total_tokens - self.reserved_generation_tokens


class HistorySummary(Frozen):
    """A model call of its own, told `prompt`, writes what replaces all but the last `keep_last_rounds` answers and results."""

    prompt: str = Field(default=SUMMARY_PROMPT, min_length=1, max_length=32_768)
    keep_last_rounds: int = Field(default=2, ge=1, le=10_000)
    max_summaries: int = Field(default=20, ge=1, le=1000)


class ContextHistory(Frozen):
    """How the past is shown; what it was stays in the log."""

    enabled: bool = True
    policy: HistoryPolicy = HistoryPolicy()
    schedule: HistorySchedule = HistorySchedule()
    guards: HistoryGuards = HistoryGuards()
    summary: HistorySummary | None = None

    @field_validator("guards", mode="before")
    @classmethod
    def _without_guards(cls, given: object) -> object:
        return HistoryGuards() if given is None else given

    @model_validator(mode="after")
    def _has_a_bound(self) -> Self:
        bound = self.guards.prompt_max_tokens
        if (bound is None) != (self.summary is None):
            msg = "context_history: a summary is written when guards.max_total_tokens is reached; set both, or neither"
            raise ValueError(msg)
        if bound is not None and bound < 1:
            msg = "context_history.guards: reserved_generation_tokens leaves nothing of max_total_tokens"
            raise ValueError(msg)
        return self


class CompactingAgent(OwnLoop, Tagged):
    """The loop of `simple_agent`, which leaves parts of its past out of its prompts as it is told to."""

    type: Literal["simple_agent_with_compaction"] = "simple_agent_with_compaction"
    context_history: ContextHistory = ContextHistory()


class BrowsecompAgent(OwnLoop, Tagged):
    """A loop for long searches: it begins anew from its task when its context is full, and tells the model when it stops too early.

    The context is full at `context_reset_tokens`, or else at the share `context_reset_pct` of `max_context_tokens`. What follows a
    reset is the task, the model's own notes (a tool, if `progress`; it is warned one call before) and the last
    `context_reset_keep_rounds` answers with their results. With `nudge_steps` an answer that is empty, was cut off or has nothing
    that `answer_pattern` finds is not taken, `max_nudges` times at most.
    """

    type: Literal["browsecomp_agent"] = "browsecomp_agent"
    max_steps: int = Field(default=400, ge=1, le=10_000)
    enable_tools: bool = False
    timeout_s: Seconds = 14_400
    tool_timeout_s: Seconds = 120
    nudge_steps: bool = True
    max_nudges: int = Field(default=3, ge=0, le=1000)
    answer_pattern: str | None = Field(default=None, max_length=1000)
    max_context_tokens: TokenBound = Field(default=196_608, ge=1)
    context_reset_pct: float = Field(default=0.3, gt=0, le=1)
    context_reset_tokens: TokenBound | None = Field(default=None, ge=1)
    context_reset_keep_rounds: int = Field(default=3, ge=1, le=10_000)
    max_reset_count: int = Field(default=100, ge=0, le=10_000)
    progress: bool = True

    @field_validator("answer_pattern")
    @classmethod
    def _is_a_pattern(cls, pattern: str | None) -> str | None:
        try:
            re.compile(pattern or "")
        except re.error as error:
            msg = f"answer_pattern is no regular expression: {error}"
            raise ValueError(msg) from error
        if repeats_a_repeat(pattern or ""):
            msg = (
                "answer_pattern repeats what is repeated in itself, such as (\\w+)+, which some answers take for ever to search for: "
                "repeat one of both only, or write the inner one as \\w++"
            )
            raise ValueError(msg)
        return pattern

    @property
    def full_at_tokens(self) -> int:
        """Return how many tokens a full context has."""
        return self.context_reset_tokens or int(self.max_context_tokens * self.context_reset_pct)
