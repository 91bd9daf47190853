"""What a run's configuration has to say of agents whose program is its user's own: how it is started, and where it is."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from adapters.harnesses.base import Harness
from adapters.harnesses.prime import PRIME
from adapters.harnesses.table import HARNESSES, harness_of
from schemas.harnesses import AcpAgent
from tests.support import python_agents
from tests.support.acp_agents import configured, opencode
from tests.support.harness_place import PROGRAMS, HarnessPlace, harness_place
from tests.support.prime_agents import primed
from tests.support.upstream import Answer


async def configuration_of(name: str, directory: Path, by_protocol: AcpAgent | None = None) -> tuple[str, ...]:
    """Write what `name` needs into `directory`; return how the command line is told of it. Most need nothing.

    The agent that speaks the Agent Client Protocol is `by_protocol`, by default OpenCode.
    """
    match name:
        case "acp_agent":
            return configured(directory, by_protocol or opencode())
        case "prime_agent":
            return (await primed(PROGRAMS)).configured(directory)
        case "python_agent":
            return python_agents.configured(directory, python_agents.shown(PROGRAMS))
        case _:
            return ()


def harness_for(name: str) -> Harness:
    """Return the harness of this name, as tests configure one whose program its user brings."""
    match name:
        case "acp_agent":
            return harness_of(opencode())
        case "python_agent":
            return harness_of(python_agents.example())
        case _:
            return HARNESSES[name]


@asynccontextmanager
async def place_of(harness: Harness, tmp_path: Path, answer: Answer) -> AsyncIterator[HarnessPlace]:
    """Give a place for a harness of the table, also for one whose program is its user's own; see `harness_place`."""
    prime = await primed(PROGRAMS) if harness is PRIME else None
    agent, shared = (prime.agent, prime.shared) if prime else (None, ())
    async with harness_place(harness, tmp_path, answer, agent, shared=shared) as at:
        yield at
