"""The resolved configuration of a run, one frozen model per component.

Field names are those that users of NeMo Gym know where a counterpart exists. Parsing files and
`key=value` overrides into these models is `gym_bus.config`'s work; these models only say what is meant.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal, Self

from pydantic import Discriminator, Field, Tag, field_validator, model_validator

from schemas.addresses import alone
from schemas.base import Frozen, Tagged
from schemas.conversation import DialectName
from schemas.harnesses import (
    AcpAgent,
    AiderAgent,
    ClaudeCodeAgent,
    ClineAgent,
    CodexAgent,
    CopilotAgent,
    GeminiCliAgent,
    HermesAgent,
    KiloCodeAgent,
    MiniSweAgent,
    NopAgent,
    OpenClawAgent,
    OpenCodeAgent,
    OpenHandsAgent,
    OracleAgent,
    PiAgent,
    PrimeAgent,
    PythonAgent,
    QwenCodeAgent,
    RemoteAgent,
    StrandsAgent,
    Terminus2Agent,
)
from schemas.loops import BrowsecompAgent, CompactingAgent, OwnLoop
from schemas.readiness import Install
from schemas.sandboxes import Bubblewrap, Checkpoints, SandboxConfig, WarmSandboxes
from schemas.tokens import LogprobKind
from schemas.values import Sampling, Seconds


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


class HarborTaskset(Tagged):
    """A folder of one task in Harbor's format, or one of such folders (docs/harbor.md).

    What cannot be done here is an error that names it, unless `skip_unsupported` leaves such tasks out. Tasks that want the whole
    internet are run without it if `without_internet` says so.
    """

    type: Literal["harbor"] = "harbor"
    path: str = Field(min_length=1)
    skip_unsupported: bool = False
    without_internet: bool = False


TasksetConfig = Annotated[ReasoningGymTaskset | JsonlTaskset | HarborTaskset, Field(discriminator="type")]


BudgetLimit = Literal["model_calls", "input_tokens", "output_tokens", "total_tokens", "cost_usd", "wall_s"]


COUNT_MAX: Final = 10**15


class Budget(Frozen):
    """What may be used up; None is no limit. What is under way when it is used up finishes, the next call is refused.

    `model_calls` counts answered calls, not tries; `wall_s` is seconds since the session (for a run: the run) was asked for.
    """

    model_calls: int | None = Field(default=None, ge=0, le=COUNT_MAX)
    input_tokens: int | None = Field(default=None, ge=0, le=COUNT_MAX)
    output_tokens: int | None = Field(default=None, ge=0, le=COUNT_MAX)
    total_tokens: int | None = Field(default=None, ge=0, le=COUNT_MAX)
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


class SimpleAgent(OwnLoop):
    """A loop of model and tool calls that is told all of its past each time."""

    type: Literal["simple_agent"] = "simple_agent"


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


SamplingName = Literal[
    "temperature",
    "top_p",
    "top_k",
    "min_p",
    "presence_penalty",
    "frequency_penalty",
    "repetition_penalty",
    "seed",
    "max_output_tokens",
    "stop",
]
CANNOT_SAY: Final[Mapping[DialectName, frozenset[SamplingName]]] = {
    "chat": frozenset(),
    "responses": frozenset(
        {"top_k", "min_p", "presence_penalty", "frequency_penalty", "repetition_penalty", "seed", "stop"}
    ),
    "messages": frozenset({"min_p", "presence_penalty", "frequency_penalty", "repetition_penalty", "seed"}),
}
"""What a dialect has no words for."""


class LocalModel(Tagged):
    """SmolLM2-135M-Instruct on this machine's processor, for trying things out; one in a process, and its calls wait for each other.

    `context_tokens` is the most that a prompt and its answer may have together; `max_output_tokens` bounds answers for which
    nothing else is said. `timeout_s` is for a call with its waiting.
    """

    type: Literal["local"] = "local"
    threads: int = Field(default=1, ge=1, le=256)
    context_tokens: int = Field(default=4096, ge=256, le=8192)
    max_output_tokens: int = Field(default=512, ge=1, le=8192)
    timeout_s: Seconds = 600
    max_tries: int = Field(default=3, ge=1, le=100)

    @property
    def label(self) -> str:
        """Return how the model is called in tables and rows."""
        return "SmolLM2-135M-Instruct (local)"


class ReplayModel(Tagged):
    """Answers from a recorded run: `recording` is a file that `gym-bus log export` wrote. Nobody is asked.

    What differs from the recording fails as `replay_diverged`. A try that failed fails again, so `max_tries` should be no smaller
    than it was. `api` is what the gateway's answers are kept in on their way to the client: what its own API can say is said.
    """

    type: Literal["replay"] = "replay"
    recording: str
    api: DialectName = "chat"
    max_tries: int = Field(default=10, ge=1, le=100)

    @property
    def label(self) -> str:
        """Return how the model is called in tables and rows."""
        return f"replay of {self.recording.rpartition('/')[2]}"


class ServedModel(Tagged):
    """A model behind HTTP, at one address or at several. `policy_api_key` is a secret's name, never the key itself.

    `endpoint_file` holds addresses, one a line or one JSON list, and is read again while a run goes on; while it is missing or says
    nothing sensible, the old addresses are good for `endpoint_stale_grace_s`. `sampling_overrides` win over whatever else is
    said, `extra_body` included; None takes a parameter out. `max_concurrent_requests` bounds the calls of one process.
    """

    policy_base_url: str | tuple[str, ...] = ()
    policy_model_name: str
    policy_api_key: str | None = None
    endpoint_file: str | None = None
    endpoint_stale_grace_s: float = Field(default=300, ge=0, le=7 * 24 * 3600)
    timeout_s: Seconds = 600
    max_tries: int = Field(default=10, ge=1, le=100)
    max_concurrent_requests: int | None = Field(default=None, ge=1, le=100_000)
    sampling_overrides: dict[SamplingName, Any] = Field(default_factory=dict)
    extra_body: dict[str, Any] = Field(default_factory=dict)
    prices: Prices | None = None

    @property
    def label(self) -> str:
        """Return how the model is called in tables and rows."""
        return self.policy_model_name

    @property
    def dialect(self) -> DialectName:
        """Return which API the backend is called by."""
        return "chat"

    @property
    def addresses(self) -> tuple[str, ...]:
        """Return the addresses that the configuration itself names; a type's own default is none if there is a file of them."""
        if self.endpoint_file and self.policy_base_url == type(self).model_fields["policy_base_url"].default:
            return ()
        return (self.policy_base_url,) if isinstance(self.policy_base_url, str) else self.policy_base_url

    @field_validator("policy_base_url")
    @classmethod
    def _are_addresses_alone(cls, urls: str | tuple[str, ...]) -> str | tuple[str, ...]:
        version = ", an API's version as model.api_version" if "api_version" in cls.model_fields else ""
        for url in (urls,) if isinstance(urls, str) else urls:
            alone(url, f"give a key as model.policy_api_key{version}")
        return urls

    @model_validator(mode="after")
    def _has_an_address(self) -> Self:
        if not all(self.addresses) or not (self.addresses or self.endpoint_file):
            msg = "policy_base_url has to be set (an address, or a list of them), or endpoint_file"
            raise ValueError(msg)
        return self

    @model_validator(mode="after")
    def _can_say_overrides(self) -> Self:
        if unsayable := sorted(CANNOT_SAY[self.dialect] & set(self.sampling_overrides)):
            msg = f"sampling_overrides: {', '.join(unsayable)} cannot be said in the API {self.dialect!r}"
            raise ValueError(msg)
        for name, value in self.sampling_overrides.items():
            is_words = isinstance(value, str) or (
                isinstance(value, list | tuple) and all(isinstance(v, str) for v in value)
            )
            is_number = isinstance(value, int | float) and not isinstance(value, bool)
            if value is not None and not (is_words if name == "stop" else is_number):
                msg = f"sampling_overrides.{name}: want {'text or a list of texts' if name == 'stop' else 'a number'}"
                raise ValueError(msg)
        return self


class OpenAIModel(ServedModel):
    """Any backend that speaks OpenAI Chat Completions, or OpenAI Responses if `api` says so."""

    type: Literal["openai"] = "openai"
    api: Literal["chat", "responses"] = "chat"

    @property
    def dialect(self) -> DialectName:
        """Return which API the backend is called by."""
        return self.api


class AnthropicModel(ServedModel):
    """Any backend that speaks Anthropic Messages."""

    type: Literal["anthropic"] = "anthropic"
    policy_base_url: str | tuple[str, ...] = "https://api.anthropic.com"

    @property
    def dialect(self) -> DialectName:
        """Return which API the backend is called by."""
        return "messages"


class AzureModel(ServedModel):
    """OpenAI's models at Azure; `policy_model_name` is the deployment.

    With an `api_version` (`2024-10-21`) the deployment is part of the path; without one, calls go to the resource's `/openai/v1`.
    """

    type: Literal["azure"] = "azure"
    api: Literal["chat", "responses"] = "chat"
    api_version: str | None = Field(default=None, pattern=r"^[A-Za-z0-9.-]+$")

    @property
    def dialect(self) -> DialectName:
        """Return which API the backend is called by."""
        return self.api


class VllmModel(ServedModel):
    """A vLLM server, asked for token ids and log-probabilities unless `return_token_id_information` is off.

    `logprob_kind` says what its `--logprobs-mode` makes of them: `raw` before temperature and the like were applied, or `processed`.
    `chat_template_kwargs` go to the chat template. Many templates refuse the role `developer`: it is sent as `system`.
    """

    type: Literal["vllm"] = "vllm"
    return_token_id_information: bool = True
    logprob_kind: LogprobKind = "raw"
    chat_template_kwargs: dict[str, Any] = Field(default_factory=dict)
    replace_developer_role_with_system: bool = True


class LitellmModel(ServedModel):
    """A litellm proxy; what a call cost is its own word."""

    type: Literal["litellm"] = "litellm"
    api: DialectName = "chat"

    @property
    def dialect(self) -> DialectName:
        """Return which API the backend is called by."""
        return self.api


class SwitchyardModel(ServedModel):
    """An NVIDIA Switchyard proxy; `policy_model_name` is the id of the route to take.

    `deployment` is the TOML file of its routes; `routing_digest` is that file's SHA-256, filled in when the configuration is resolved.
    """

    type: Literal["switchyard"] = "switchyard"
    api: DialectName = "chat"
    deployment: str | None = None
    routing_digest: str | None = Field(default=None, pattern="^[0-9a-f]{64}$")

    @property
    def dialect(self) -> DialectName:
        """Return which API the backend is called by."""
        return self.api


HttpModel = OpenAIModel | AnthropicModel | AzureModel | VllmModel | LitellmModel | SwitchyardModel
"""Every kind of `ServedModel`."""


ModelConfig = Annotated[
    ScriptedModel
    | LocalModel
    | ReplayModel
    | OpenAIModel
    | AnthropicModel
    | AzureModel
    | VllmModel
    | LitellmModel
    | SwitchyardModel,
    Field(discriminator="type"),
]


class Retries(Frozen):
    """How infrastructure failures are retried: at most `max_attempts`, waiting `backoff_s` doubled up to `backoff_max_s`."""

    max_attempts: int = Field(default=3, ge=1, le=20)
    backoff_s: float = Field(default=1.0, ge=0, le=3600)
    backoff_max_s: float = Field(default=60.0, ge=0, le=3600)


def _type_of_agent(value: Any) -> str:
    """Return which agent is meant; one without a type is the first that there was."""
    return str(value.get("type", "simple_agent") if isinstance(value, dict) else getattr(value, "type", None))


AgentConfig = Annotated[
    Annotated[SimpleAgent, Tag("simple_agent")]
    | Annotated[CompactingAgent, Tag("simple_agent_with_compaction")]
    | Annotated[BrowsecompAgent, Tag("browsecomp_agent")]
    | Annotated[CodexAgent, Tag("codex_agent")]
    | Annotated[PiAgent, Tag("pi_agent")]
    | Annotated[MiniSweAgent, Tag("mini_swe_agent")]
    | Annotated[ClaudeCodeAgent, Tag("claude_code_agent")]
    | Annotated[OpenCodeAgent, Tag("opencode_agent")]
    | Annotated[KiloCodeAgent, Tag("kilocode_agent")]
    | Annotated[CopilotAgent, Tag("copilot_agent")]
    | Annotated[QwenCodeAgent, Tag("qwen_code")]
    | Annotated[GeminiCliAgent, Tag("gemini_cli")]
    | Annotated[ClineAgent, Tag("cline_agent")]
    | Annotated[HermesAgent, Tag("hermes_agent")]
    | Annotated[OpenClawAgent, Tag("openclaw_agent")]
    | Annotated[PrimeAgent, Tag("prime_agent")]
    | Annotated[PythonAgent, Tag("python_agent")]
    | Annotated[OpenHandsAgent, Tag("openhands")]
    | Annotated[Terminus2Agent, Tag("terminus_2_agent")]
    | Annotated[AiderAgent, Tag("aider")]
    | Annotated[StrandsAgent, Tag("simple_strands_agent")]
    | Annotated[AcpAgent, Tag("acp_agent")]
    | Annotated[RemoteAgent, Tag("remote_agent")]
    | Annotated[OracleAgent, Tag("oracle_agent")]
    | Annotated[NopAgent, Tag("nop_agent")],
    Discriminator(_type_of_agent),
]


class RunConfig(Frozen):
    """Everything a run depends on. Equal configurations have equal digests (`gym_bus.config.config_digest`)."""

    taskset: TasksetConfig
    agent: AgentConfig = Field(default_factory=SimpleAgent)
    model: ModelConfig = Field(default_factory=ScriptedModel)
    sandbox: SandboxConfig = Field(default_factory=Bubblewrap)
    install: Install | None = None
    checkpoints: Checkpoints = Checkpoints()
    warm_sandboxes: WarmSandboxes = 0
    grading_sandbox: SandboxConfig | None = None
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

    @property
    def asks_a_model(self) -> bool:
        """Say whether the run's agent asks its model anything."""
        return not isinstance(self.agent, OracleAgent | NopAgent)

    @property
    def model_label(self) -> str:
        """Return what results say of the model, also if there is none that anybody asks."""
        return self.model.label if self.asks_a_model else "none is asked"

    @model_validator(mode="after")
    def _money_can_be_counted(self) -> Self:
        """Refuse a budget of money that nothing would ever be counted against."""
        limits = {"rollout": self.budget.rollout.cost_usd, "run": self.budget.run.cost_usd}
        wanted = [f"budget.{whose}.cost_usd" for whose, limit in limits.items() if limit is not None]
        is_told = isinstance(self.model, LitellmModel) or (isinstance(self.model, ServedModel) and self.model.prices)
        if wanted and not is_told:
            msg = f"{wanted[0]} needs model.prices, or a backend that says what a call costs (model.type=litellm)"
            raise ValueError(msg)
        return self
