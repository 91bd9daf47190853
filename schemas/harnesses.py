"""An agent with a loop of its own: which one, and what a run may change about it."""

from __future__ import annotations

import re
from typing import Annotated, Final, Literal
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field, JsonValue, field_validator, model_validator

from schemas.addresses import alone
from schemas.base import Frozen, Tagged
from schemas.values import Seconds, TokenBound

HarnessName = Literal[
    "acp_agent",
    "aider",
    "claude_code_agent",
    "cline_agent",
    "codex_agent",
    "copilot_agent",
    "gemini_cli",
    "hermes_agent",
    "kilocode_agent",
    "mini_swe_agent",
    "openclaw_agent",
    "opencode_agent",
    "openhands",
    "pi_agent",
    "prime_agent",
    "python_agent",
    "qwen_code",
    "simple_strands_agent",
    "terminus_2_agent",
]
"""The names of `adapters.harnesses.table.HARNESSES`, and of agents that a run's configuration brings."""


Config = dict[str, JsonValue]
KNOWN_AS: Final = {"timeout": "timeout_s", "mcp_timeout": "mcp_timeout_s"}
"""What others call the same."""
VERSION: Final = re.compile(r"[0-9][A-Za-z0-9.+!_-]*")
FUNCTION: Final = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*(\.[A-Za-z_]\w*)*")
NPM_VERSION: Final = re.compile(r"\d+\.\d+\.\d+(-[0-9A-Za-z.-]+)?(\+[0-9A-Za-z.-]+)?")
"""What is shorter, or has an `x`, is whatever version fits."""


def _is_exact(version: str) -> str:
    if not VERSION.fullmatch(version):
        msg = "want an exact version such as 1.2.3"
        raise ValueError(msg)
    return version


def _is_function(name: str) -> str:
    if not FUNCTION.fullmatch(name):
        msg = "want module:function, such as agent:solve"
        raise ValueError(msg)
    return name


ExactVersion = Annotated[str, Field(max_length=128), AfterValidator(_is_exact)]


class HarnessAgent(Tagged):
    """An agent's own program, run in the sandbox against the model gateway (docs/harnesses.md has what each can do).

    `system_prompt` is added to the program's own, or takes its place. `withheld_tools` are not offered to the model, and without
    `enable_tools` none of the program's own; `extra_args` go on the command line. `version` is another one than that which is pinned.
    `timeout_s` is for each activation, from its request to the program's end, `mcp_timeout_s` for one call of a tool that its task
    offers.
    """

    system_prompt: str | None = None
    system_prompt_mode: Literal["append", "replace"] = "append"
    withheld_tools: tuple[str, ...] = Field(default=(), max_length=256)
    enable_tools: bool = True
    extra_args: tuple[str, ...] = Field(default=(), max_length=256)
    version: ExactVersion | None = None
    timeout_s: Seconds = 1800
    mcp_timeout_s: Seconds = 300
    context_tokens: TokenBound = Field(default=131_072, ge=1024)
    max_output_tokens: TokenBound = Field(default=8192, ge=1)

    @model_validator(mode="before")
    @classmethod
    def _in_our_words(cls, given: object) -> object:
        if not isinstance(given, dict) or not KNOWN_AS.keys() & given.keys():
            return given
        if twice := [f"{known} and {ours}" for known, ours in KNOWN_AS.items() if {known, ours} <= given.keys()]:
            msg = f"{', '.join(twice)} say the same: give one of them"
            raise ValueError(msg)
        return {KNOWN_AS.get(name, name): value for name, value in given.items()}

    @property
    def needs_sandbox(self) -> bool:
        """Say that it does."""
        return True

    @property
    def own_config(self) -> Config:
        """Return what is added to the program's own configuration."""
        return {}


Observation = Literal["trajectory", "timing", "harness_tool_calls", "reasoning", "compaction"]
"""What a harness may tell of an activation: its turns, how long each tool took, its calls of them, its thoughts, what was left out."""


class Continuation(Frozen):
    """How a session is to take further inputs: the harness goes on with its own session, with all that was said in it.

    Without one that tells all of `observations` the session is refused before a sandbox is made.
    """

    mode: Literal["resume_harness_session"]
    observations: tuple[Observation, ...] = Field(default=(), max_length=16)


RESUMED: Final = Continuation(mode="resume_harness_session")


class OracleAgent(Tagged):
    """No agent: the task's own solution is the only command, graded as an agent's work is. It shows that a task can be done."""

    type: Literal["oracle_agent"] = "oracle_agent"
    timeout_s: Seconds = 1800

    @property
    def needs_sandbox(self) -> bool:
        """Say that it does."""
        return True


class NopAgent(Tagged):
    """No agent: nothing is done, and that is graded. It shows that a task is not done by itself."""

    type: Literal["nop_agent"] = "nop_agent"
    timeout_s: Seconds = 1800

    @property
    def needs_sandbox(self) -> bool:
        """Say that its tests do."""
        return True


class CodexAgent(HarnessAgent):
    """Codex CLI; `extra_config` is added to its config.toml, but for where its model is."""

    type: Literal["codex_agent"] = "codex_agent"
    extra_config: Config = Field(default_factory=dict)

    @property
    def own_config(self) -> Config:
        """See `HarnessAgent`."""
        return self.extra_config


class PiAgent(HarnessAgent):
    """Pi; `models_config` is added to its models.json, but for where its model is."""

    type: Literal["pi_agent"] = "pi_agent"
    models_config: Config = Field(default_factory=dict)

    @property
    def own_config(self) -> Config:
        """See `HarnessAgent`."""
        return self.models_config


class MiniSweAgent(HarnessAgent):
    """mini-swe-agent."""

    type: Literal["mini_swe_agent"] = "mini_swe_agent"


class ClaudeCodeAgent(HarnessAgent):
    """Claude Code."""

    type: Literal["claude_code_agent"] = "claude_code_agent"


class OpenCodeAgent(HarnessAgent):
    """OpenCode; `opencode_config` is added to its opencode.json, but for where its model is."""

    type: Literal["opencode_agent"] = "opencode_agent"
    opencode_config: Config = Field(default_factory=dict)

    @property
    def own_config(self) -> Config:
        """See `HarnessAgent`."""
        return self.opencode_config


class StrandsAgent(HarnessAgent):
    """An agent made with Strands."""

    type: Literal["simple_strands_agent"] = "simple_strands_agent"


class KiloCodeAgent(HarnessAgent):
    """Kilo; `kilo_config` is added to its kilo.json, but for where its model is."""

    type: Literal["kilocode_agent"] = "kilocode_agent"
    kilo_config: Config = Field(default_factory=dict)

    @property
    def own_config(self) -> Config:
        """See `HarnessAgent`."""
        return self.kilo_config


class CopilotAgent(HarnessAgent):
    """Copilot CLI."""

    type: Literal["copilot_agent"] = "copilot_agent"


class QwenCodeAgent(HarnessAgent):
    """Qwen Code."""

    type: Literal["qwen_code"] = "qwen_code"


class GeminiCliAgent(HarnessAgent):
    """Gemini CLI."""

    type: Literal["gemini_cli"] = "gemini_cli"


class ClineAgent(HarnessAgent):
    """Cline."""

    type: Literal["cline_agent"] = "cline_agent"


class HermesAgent(HarnessAgent):
    """Hermes."""

    type: Literal["hermes_agent"] = "hermes_agent"


class OpenClawAgent(HarnessAgent):
    """OpenClaw."""

    type: Literal["openclaw_agent"] = "openclaw_agent"


class PrimeAgent(HarnessAgent):
    """Prime Agent, started by `command`: in the sandbox's image, or in a directory that the sandbox is shown.

    `kernel_python` is the Python in which it runs what its model writes, if it is not to look for one itself; `models_config` is added
    to its models.json, but for where its model is.
    """

    type: Literal["prime_agent"] = "prime_agent"
    command: tuple[str, ...] = Field(default=("prime-agent",), min_length=1, max_length=256)
    kernel_python: str | None = Field(default=None, min_length=1, max_length=4096)
    models_config: Config = Field(default_factory=dict)

    @property
    def own_config(self) -> Config:
        """See `HarnessAgent`."""
        return self.models_config


class PythonAgent(HarnessAgent):
    """An agent that is a Python function, `module:function`, found in `python_path`: directories of the sandbox.

    It is run by `python`, the sandbox's own without one. `resumes` says that it goes on with its session when a further input comes.
    """

    type: Literal["python_agent"] = "python_agent"
    function: Annotated[str, Field(max_length=512), AfterValidator(_is_function)]
    python_path: tuple[str, ...] = Field(default=(), max_length=64)
    python: str | None = Field(default=None, min_length=1, max_length=4096)
    resumes: bool = False

    @field_validator("python_path")
    @classmethod
    def _are_absolute(cls, paths: tuple[str, ...]) -> tuple[str, ...]:
        for path in paths:
            if not path.startswith("/") or ":" in path:
                msg = f"{path!r} is no absolute path without `:`: want a directory of the sandbox such as /opt/mine"
                raise ValueError(msg)
        return paths


class OpenHandsAgent(HarnessAgent):
    """OpenHands."""

    type: Literal["openhands"] = "openhands"


class Terminus2Agent(HarnessAgent):
    """Terminus-2."""

    type: Literal["terminus_2_agent"] = "terminus_2_agent"


class AiderAgent(HarnessAgent):
    """aider."""

    type: Literal["aider"] = "aider"


class AgentPackage(Frozen):
    """A package that holds an agent's program, in exactly this version; what it depends on is what there is when it is installed."""

    ecosystem: Literal["npm", "pypi"]
    name: str = Field(
        pattern=r"^(@[a-z0-9][a-z0-9._-]*/)?[A-Za-z0-9][A-Za-z0-9._-]*(\[[a-z0-9,_-]+\])?$", max_length=214
    )
    version: ExactVersion

    @model_validator(mode="after")
    def _is_exact(self) -> AgentPackage:
        if self.ecosystem == "npm" and not NPM_VERSION.fullmatch(self.version):
            msg = f"{self.version!r} is no exact version of a package of npm: want one such as 1.20.3"
            raise ValueError(msg)
        return self


SECRET_WORDS: Final = ("{base_url}", "{token}")
"""What stands for the way to the model, with the token in it."""


class AcpAgent(HarnessAgent):
    """Any agent that speaks the Agent Client Protocol, started by `command` and driven by a client of ours.

    `package` is installed and shown to the sandbox; without one the command is in the sandbox's image. In `command`, `env` and the
    contents of `files` (by paths below the agent's home) `{model}`, `{home}`, `{workspace}`, `{program}` and `{python}` stand for what
    they say, in `env` and `files` also `{base_url}`, the gateway's with the token in it and without `/v1`, and `{token}` alone.
    `authenticate` is the way of logging in, by the agent's own name for it, if it wants one. `resumes` says that it can load a session
    again, `tools_by` how it reaches the tools of its task.
    """

    type: Literal["acp_agent"] = "acp_agent"
    command: tuple[str, ...] = Field(min_length=1, max_length=256)
    package: AgentPackage | None = None
    env: dict[str, str] = Field(default_factory=dict, max_length=256)
    files: dict[str, str] = Field(default_factory=dict, max_length=64)
    authenticate: str | None = None
    resumes: bool = False
    tools_by: Literal["mcp", "command"] = "mcp"

    @field_validator("command", "extra_args")
    @classmethod
    def _holds_no_secret(cls, words: tuple[str, ...]) -> tuple[str, ...]:
        if any(secret in word for word in words for secret in SECRET_WORDS):
            msg = "{base_url} and {token} hold a secret, and arguments are read by everything in the sandbox: say them in env or files"
            raise ValueError(msg)
        return words

    @field_validator("files")
    @classmethod
    def _are_below_the_home(cls, files: dict[str, str]) -> dict[str, str]:
        for name in files:
            if not name or name.startswith("/") or {"", ".", ".."} & set(name.split("/")) or "\0" in name:
                msg = f"{name!r} is no path below the agent's home: want one such as .config/agent.json"
                raise ValueError(msg)
        return files


Program = (
    CodexAgent
    | PiAgent
    | MiniSweAgent
    | ClaudeCodeAgent
    | OpenCodeAgent
    | StrandsAgent
    | KiloCodeAgent
    | CopilotAgent
    | QwenCodeAgent
    | GeminiCliAgent
    | ClineAgent
    | HermesAgent
    | OpenClawAgent
    | PrimeAgent
    | PythonAgent
    | OpenHandsAgent
    | Terminus2Agent
    | AiderAgent
    | AcpAgent
)
"""Every kind of `HarnessAgent`: one for each row of `adapters.harnesses.table`, and two whose program a run's configuration brings."""


class RemoteAgent(Tagged):
    """An agent that somebody runs somewhere else, asked over HTTP at `url`, outside of any sandbox of ours (docs/harnesses.md).

    `api_key` is a secret's name, never the key itself. `timeout_s` is for each activation, `request_timeout_s` for one request, which
    is made `max_tries` times at most as long as it fails, `poll_s` is how long an agent that is not done yet is left alone between
    two questions, `mcp_timeout_s` for one call of a tool of its task. `grants` are the ways by which it can reach those, `resumes`
    says that it goes on with its own session when a further input comes.
    """

    type: Literal["remote_agent"] = "remote_agent"
    url: str = Field(max_length=2048)
    api_key: str | None = None
    timeout_s: Seconds = 1800
    request_timeout_s: Seconds = 600
    max_tries: int = Field(default=5, ge=1, le=100)
    poll_s: float = Field(default=2.0, ge=0.05, le=60)
    mcp_timeout_s: Seconds = 300
    grants: tuple[Literal["mcp", "http"], ...] = ("mcp", "http")
    resumes: bool = False

    @field_validator("url")
    @classmethod
    def _is_an_address_alone(cls, url: str) -> str:
        alone(url, "give a key as agent.api_key")
        parts = urlsplit(url)
        is_plain = url.isprintable() and not any(map(str.isspace, url))
        if parts.scheme not in {"http", "https"} or not parts.hostname or not is_plain:
            msg = f"{url!r} is no address: want one such as http://127.0.0.1:9000/activations"
            raise ValueError(msg)
        return url

    @property
    def needs_sandbox(self) -> bool:
        """Say that it does not."""
        return False


BehindGateway = HarnessAgent | RemoteAgent
"""Agents with loops of their own, which call their model through the gateway."""


ToldKind = Literal[
    "session",
    "said",
    "thought",
    "planned",
    "tool_asked",
    "tool_done",
    "reply_done",
    "compacted",
    "complained",
    "finished",
]


class ToldItem(Frozen):
    """One thing that a program told of its work (see `adapters.harnesses.trajectory`); what a kind does not have is None.

    `text` is the words, arguments or message, `name` a tool's, a role's or a problem's, `id` a call's, a reply's or a session's.
    `is_cut` says that the text was longer. It is the program's own account; what the model was asked and answered is in the gateway's
    record.
    """

    kind: ToldKind
    text: str | None = None
    name: str | None = None
    id: str | None = None
    exit_code: int | None = None
    is_error: bool | None = None
    duration_s: float | None = None
    is_final: bool = False
    is_rewritten: bool = False
    is_cut: bool = False
    input_tokens: int | None = None
    output_tokens: int | None = None
    cached_tokens: int | None = None
    reasoning_tokens: int | None = None
