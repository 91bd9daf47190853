"""What a task itself offers an agent beside its words: servers of tools that it brings along, and skills. Who can be given them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final
from urllib.parse import urlsplit

from adapters.harnesses.base import SERVER_NAME, Harness
from adapters.harnesses.servers import normalised
from adapters.harnesses.table import HARNESSES, harness_of
from schemas.config import AgentConfig
from schemas.harnesses import HarnessAgent
from schemas.tasks import McpServer, TaskInput

SCHEMES: Final = frozenset({"http", "https"})
HERE: Final = frozenset({"127.0.0.1", "localhost", "::1"})


def why_not_offered(agent: AgentConfig, task: TaskInput) -> str | None:
    """Return why an agent cannot be given what the task offers, with who can; None if it can."""
    return next(_reasons(agent, task), None)


def _reasons(agent: AgentConfig, task: TaskInput) -> Iterator[str]:
    harness = harness_of(agent) if isinstance(agent, HarnessAgent) else None
    if task.mcp_servers:
        names = ", ".join(server.name for server in task.mcp_servers)
        if harness is None or "mcp" not in harness.grants:
            able = _able(lambda harness: "mcp" in harness.grants)
            yield f"it offers tools by MCP ({names}), which {agent.type} cannot be given; those that can: {able}"
        yield from _unfit(task)
    if task.skills_dir and (harness is None or not harness.finds_skills):
        able = _able(lambda harness: harness.finds_skills)
        yield f"it has skills in {task.skills_dir}, which {agent.type} cannot be given; those that can: {able}"


def _unfit(task: TaskInput) -> Iterator[str]:
    """Yield what is wrong with servers, whoever is given them."""
    taken = {normalised(grant.name): f"the grant {grant.name!r}" for grant in task.grants}
    for server in task.mcp_servers:
        name = normalised(server.name)
        if not SERVER_NAME.fullmatch(name):
            yield f"its MCP server {server.name!r} needs a name that begins with a letter and has 32 characters at most"
        if name in taken:
            yield f"its MCP server {server.name!r} is called like {taken[name]}: {name}; give one of them another name"
        taken[name] = f"the MCP server {server.name!r}"
        yield from _out_of_reach(server)


def _out_of_reach(server: McpServer) -> Iterator[str]:
    if server.transport == "sse":
        yield (
            f"its MCP server {server.name!r} is of the older transport 'sse', which no agent is given: choose 'stdio', or "
            "'streamable-http'"
        )
    elif server.transport == "streamable-http" and not _is_here(server.url or ""):
        yield (
            f"its MCP server {server.name!r} is at {server.url}, which is no HTTP address in the sandbox, and agents reach nothing "
            "else: choose 'stdio', or one at http://127.0.0.1:PORT"
        )


def _is_here(url: str) -> bool:
    """Return whether an address is one of HTTP, of the sandbox itself."""
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError:
        return False
    return "\\" not in url and parts.scheme in SCHEMES and host in HERE and port != 0


def _able(can: Callable[[Harness], bool]) -> str:
    return ", ".join(sorted(name for name, harness in HARNESSES.items() if can(harness)))
