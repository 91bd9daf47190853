"""The harnesses that there are, by the names that users know them by."""

from __future__ import annotations

from typing import Final

from adapters.harnesses.acp import ACP, with_agent
from adapters.harnesses.aider import AIDER
from adapters.harnesses.base import Harness
from adapters.harnesses.claude_code import CLAUDE_CODE
from adapters.harnesses.cline import CLINE
from adapters.harnesses.codex import CODEX
from adapters.harnesses.copilot import COPILOT
from adapters.harnesses.gemini_cli import GEMINI
from adapters.harnesses.hermes import HERMES
from adapters.harnesses.kilo import KILO
from adapters.harnesses.mini_swe import MINI_SWE
from adapters.harnesses.openclaw import OPENCLAW
from adapters.harnesses.opencode import OPENCODE
from adapters.harnesses.openhands import OPENHANDS
from adapters.harnesses.pi import PI
from adapters.harnesses.prime import PRIME, with_command
from adapters.harnesses.python_agent import PYTHON, with_function
from adapters.harnesses.qwen import QWEN
from adapters.harnesses.strands import STRANDS
from adapters.harnesses.terminus_2 import TERMINUS_2
from schemas.harnesses import AcpAgent, PrimeAgent, Program, PythonAgent

HARNESSES: Final[dict[str, Harness]] = {
    harness.name: harness
    for harness in (
        CODEX,
        PI,
        MINI_SWE,
        CLAUDE_CODE,
        OPENCODE,
        STRANDS,
        KILO,
        COPILOT,
        QWEN,
        GEMINI,
        CLINE,
        HERMES,
        OPENCLAW,
        PRIME,
        OPENHANDS,
        TERMINUS_2,
        AIDER,
    )
}
BROUGHT: Final[dict[str, Harness]] = {harness.name: harness for harness in (ACP, PYTHON)}
"""What agents have in common whose program a run's configuration brings."""


def harness_of(agent: Program) -> Harness:
    """Return the harness of a configured agent."""
    match agent:
        case AcpAgent():
            return with_agent(agent)
        case PrimeAgent():
            return with_command(agent)
        case PythonAgent():
            return with_function(agent)
        case _:
            return HARNESSES[agent.type]


def installed_for(name: str) -> Harness:
    """Return the harness of this name, to install what it needs."""
    return BROUGHT.get(name) or HARNESSES[name]
