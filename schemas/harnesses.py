"""An agent's own program: which one, and what a run may change about it."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from schemas.base import Frozen, Tagged
from schemas.values import Seconds

HarnessName = Literal[
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
    "pi_agent",
    "qwen_code",
    "simple_strands_agent",
]
"""The names of `adapters.harnesses.table.HARNESSES`."""


class HarnessAgent(Tagged):
    """An agent's own program, run in the sandbox against the model gateway (docs/harnesses.md has what each can do).

    `system_prompt` is added to the program's own, or takes its place. `withheld_tools` are not offered to the model, `extra_args` go
    on the command line. `timeout_s` is for each activation, from its request to the program's end, `mcp_timeout_s` for one call of
    a tool that its task offers.
    """

    system_prompt: str | None = None
    system_prompt_mode: Literal["append", "replace"] = "append"
    withheld_tools: tuple[str, ...] = Field(default=(), max_length=256)
    extra_args: tuple[str, ...] = Field(default=(), max_length=256)
    timeout_s: Seconds = 1800
    mcp_timeout_s: Seconds = 300
    context_tokens: int = Field(default=131_072, ge=1024)
    max_output_tokens: int = Field(default=8192, ge=1)

    @property
    def enable_tools(self) -> bool:
        """Say that it needs a sandbox."""
        return True


class Continuation(Frozen):
    """How a session is to take further inputs: the harness goes on with its own session, with all that was said in it."""

    mode: Literal["resume_harness_session"]


class OracleAgent(Tagged):
    """No agent: the task's own solution is the only command, graded as an agent's work is. It shows that a task can be done."""

    type: Literal["oracle_agent"] = "oracle_agent"
    timeout_s: Seconds = 1800

    @property
    def enable_tools(self) -> bool:
        """Say that it needs a sandbox."""
        return True


class NopAgent(Tagged):
    """No agent: nothing is done, and that is graded. It shows that a task is not done by itself."""

    type: Literal["nop_agent"] = "nop_agent"
    timeout_s: Seconds = 1800

    @property
    def enable_tools(self) -> bool:
        """Say that its tests need a sandbox."""
        return True


class CodexAgent(HarnessAgent):
    """Codex CLI."""

    type: Literal["codex_agent"] = "codex_agent"


class PiAgent(HarnessAgent):
    """Pi."""

    type: Literal["pi_agent"] = "pi_agent"


class MiniSweAgent(HarnessAgent):
    """mini-swe-agent."""

    type: Literal["mini_swe_agent"] = "mini_swe_agent"


class ClaudeCodeAgent(HarnessAgent):
    """Claude Code."""

    type: Literal["claude_code_agent"] = "claude_code_agent"


class OpenCodeAgent(HarnessAgent):
    """OpenCode."""

    type: Literal["opencode_agent"] = "opencode_agent"


class StrandsAgent(HarnessAgent):
    """An agent made with Strands."""

    type: Literal["simple_strands_agent"] = "simple_strands_agent"


class KiloCodeAgent(HarnessAgent):
    """Kilo."""

    type: Literal["kilocode_agent"] = "kilocode_agent"


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
)
"""Every kind of `HarnessAgent`: one for each row of `adapters.harnesses.table`."""


ToldKind = Literal[
    "session", "said", "thought", "tool_asked", "tool_done", "reply_done", "compacted", "complained", "finished"
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
