"""The resolved configuration of a run, one frozen model per component.

Field names are those that users of NeMo Gym know where a counterpart exists. Parsing files and
`key=value` overrides into these models is `gym_bus.config`'s work; these models only say what is meant.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from schemas.base import Frozen, Tagged
from schemas.values import Sampling

Seconds = Annotated[float, Field(gt=0, le=7 * 24 * 3600)]


class ReasoningGymDataset(Frozen):
    """One Reasoning Gym generator: `size` tasks from `seed`; `config` holds the generator's own options."""

    name: str
    size: int = Field(default=20, ge=1, le=1_000_000)
    seed: int = 42
    config: dict[str, Any] = Field(default_factory=dict)


class ReasoningGymTaskset(Tagged):
    """Tasks made by Reasoning Gym's generators, scored by the generators' own scorers."""

    type: Literal["reasoning_gym"] = "reasoning_gym"
    datasets: tuple[ReasoningGymDataset, ...]


class JsonlTaskset(Tagged):
    """Rows of question and answer in a JSON-lines file (GSM8K's form), graded by math-verify."""

    type: Literal["jsonl"] = "jsonl"
    jsonl_fpath: str
    name: str | None = None
    question_key: str = "question"
    answer_key: str = "answer"


TasksetConfig = Annotated[ReasoningGymTaskset | JsonlTaskset, Field(discriminator="type")]


BudgetLimit = Literal["model_calls", "input_tokens", "output_tokens", "total_tokens", "cost_usd", "wall_s"]


class Budget(Frozen):
    """What may be used up; None is no limit. What is under way when it is used up finishes, the next call is refused.

    `model_calls` counts answered calls, not tries; `wall_s` is seconds since the session (for a run: the run) was asked for.
    """

    model_calls: int | None = Field(default=None, ge=0)
    input_tokens: int | None = Field(default=None, ge=0)
    output_tokens: int | None = Field(default=None, ge=0)
    total_tokens: int | None = Field(default=None, ge=0)
    cost_usd: float | None = Field(default=None, ge=0)
    wall_s: Seconds | None = None


class Budgets(Frozen):
    """The budget of every rollout's attempt, and that of the whole run."""

    rollout: Budget = Budget()
    run: Budget = Budget()


class Prices(Frozen):
    """US dollars for a million tokens: read, read from a cache (None: as read), written."""

    input: float = Field(ge=0)
    cached_input: float | None = Field(default=None, ge=0)
    output: float = Field(ge=0)


class SimpleAgent(Frozen):
    """A loop of model and tool calls, at most `max_steps` model calls long."""

    type: Literal["simple_agent"] = "simple_agent"
    max_steps: int = Field(default=8, ge=1, le=10_000)
    system_prompt: str | None = None
    parallel_tool_calls: bool = True
    enable_tools: bool = True
    timeout_s: Seconds = 1800
    tool_timeout_s: Seconds = 30


class ScriptedModel(Tagged):
    """The deterministic stand-in. `latency_s` is the mean of a call; it varies uniformly by `latency_spread` (0 to 1).

    `error_rate` is the share of wrong final answers, `malformed_rate` of unparsable tool arguments, `failure_rate` of
    calls that first fail with a retryable error. `ledger_path` names a file to which every call is written when it starts.
    """

    type: Literal["scripted"] = "scripted"
    seed: int = 0
    error_rate: float = Field(default=0.2, ge=0, le=1)
    malformed_rate: float = Field(default=0.0, ge=0, le=1)
    failure_rate: float = Field(default=0.0, ge=0, le=1)
    latency_s: float = Field(default=0.0, ge=0, le=3600)
    latency_spread: float = Field(default=0.0, ge=0, le=1)
    max_tries: int = Field(default=10, ge=1, le=100)
    timeout_s: Seconds = 600
    ledger_path: str | None = None

    @property
    def label(self) -> str:
        """Return how the model is called in tables and rows."""
        return "scripted (deterministic stand-in, not a language model)"


class ServedModel(Tagged):
    """A model behind HTTP. `policy_api_key` is a secret's name, never the key itself."""

    policy_base_url: str
    policy_model_name: str
    policy_api_key: str | None = None
    timeout_s: Seconds = 600
    max_tries: int = Field(default=10, ge=1, le=100)
    extra_body: dict[str, Any] = Field(default_factory=dict)
    prices: Prices | None = None

    @property
    def label(self) -> str:
        """Return how the model is called in tables and rows."""
        return self.policy_model_name


class OpenAIModel(ServedModel):
    """Any backend that speaks OpenAI Chat Completions, or OpenAI Responses if `api` says so."""

    type: Literal["openai"] = "openai"
    api: Literal["chat", "responses"] = "chat"


class AnthropicModel(ServedModel):
    """Any backend that speaks Anthropic Messages."""

    type: Literal["anthropic"] = "anthropic"
    policy_base_url: str = "https://api.anthropic.com"


ModelConfig = Annotated[ScriptedModel | OpenAIModel | AnthropicModel, Field(discriminator="type")]


class SandboxLimits(Frozen):
    """What one sandbox may use."""

    memory_mib: int = Field(default=512, ge=16)
    processes: int = Field(default=64, ge=4)
    file_mib: int = Field(default=64, ge=1)
    cpu_s: int = Field(default=60, ge=1)
    output_bytes: int = Field(default=32_768, ge=256, le=1_048_576)


class Bubblewrap(Tagged):
    """A sandbox of namespaces: no network, read-only system, no capabilities, a non-root user."""

    type: Literal["bubblewrap"] = "bubblewrap"
    limits: SandboxLimits = SandboxLimits()
    ledger_path: str | None = None


class UnsafeLocal(Tagged):
    """Bare processes on this machine, with this user's rights. Never chosen by default."""

    type: Literal["unsafe_local"] = "unsafe_local"
    limits: SandboxLimits = SandboxLimits()
    ledger_path: str | None = None


class Inline(Tagged):
    """No machine at all: the actor itself works out `echo $((…))`. For benchmarks and unit tests."""

    type: Literal["inline"] = "inline"
    limits: SandboxLimits = SandboxLimits()
    ledger_path: str | None = None


SandboxConfig = Annotated[Bubblewrap | UnsafeLocal | Inline, Field(discriminator="type")]


class Retries(Frozen):
    """How infrastructure failures are retried: at most `max_attempts`, waiting `backoff_s` doubled up to `backoff_max_s`."""

    max_attempts: int = Field(default=3, ge=1, le=20)
    backoff_s: float = Field(default=1.0, ge=0, le=3600)
    backoff_max_s: float = Field(default=60.0, ge=0, le=3600)


class RunConfig(Frozen):
    """Everything a run depends on. Equal configurations have equal digests (`gym_bus.config.config_digest`)."""

    taskset: TasksetConfig
    agent: SimpleAgent = SimpleAgent()
    model: ModelConfig = Field(default_factory=ScriptedModel)
    sandbox: SandboxConfig = Field(default_factory=Bubblewrap)
    responses_create_params: Sampling = Sampling()
    retries: Retries = Retries()
    budget: Budgets = Budgets()
    num_repeats: int = Field(default=1, ge=1, le=10_000)
    num_repeats_add_seed: bool = False
    num_samples_in_parallel: int = Field(default=64, ge=1, le=100_000)
    ramp_per_s: float = Field(default=500.0, gt=0)
    interleave_repeats: bool = False
    shuffle_seed: int | None = None
    limit: int | None = Field(default=None, ge=1)
    shards: int = Field(default=1, ge=1, le=64)
