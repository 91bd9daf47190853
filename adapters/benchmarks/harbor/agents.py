"""Whether an agent can be given a task, said before anything is made for it."""

from __future__ import annotations

from typing import Final

from adapters.harnesses.offered import why_not_offered
from schemas.config import AgentConfig
from schemas.harnesses import NopAgent, OracleAgent
from schemas.tasks import Task

ROOT: Final = frozenset({"root", "0"})
SUFFIX: Final = "_agent"


def why_not(task: Task, agent: AgentConfig) -> str | None:
    """Return why an agent cannot be given a task, with who can; None if it can."""
    if isinstance(agent, NopAgent):
        return None
    if task.user in ROOT:
        return f"its agent is to be root, and no sandbox runs {agent.type} as root; nop_agent, which runs nothing, can be given it"
    if isinstance(agent, OracleAgent):
        return None if task.solution else "it has no solution/solve.sh that oracle_agent could run"
    allowed = {name.removesuffix(SUFFIX) for name in task.agents}
    if allowed and agent.type.removesuffix(SUFFIX) not in allowed:
        return f"its dataset allows {', '.join(sorted(task.agents))}, and not {agent.type}"
    return why_not_offered(agent, task.input)
