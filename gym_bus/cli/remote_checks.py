"""Whether an agent that runs outside of all sandboxes can be given a run's tasks, and reach its model."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from gym_bus.errors import BadConfig
from schemas.tasks import TaskInput
from schemas.values import Message

if TYPE_CHECKING:
    from gym_bus.settings import Settings
    from schemas.config import RunConfig
    from schemas.harnesses import RemoteAgent
    from schemas.readiness import Install

ANSWERS_WITHIN_S: Final = 5.0


def check_there(agent: RemoteAgent) -> None:
    """Raise `BadConfig` if nobody takes connections where an agent should be; nothing is asked of it."""
    where = urlsplit(agent.url)
    port = where.port or (443 if where.scheme == "https" else 80)
    try:
        socket.create_connection((where.hostname or "", port), ANSWERS_WITHIN_S).close()
    except (OSError, UnicodeError) as error:  # also a name that can be none
        msg = f"agent.url: {agent.url} cannot be reached ({error}): is the agent running, and the address right?"
        raise BadConfig(msg) from error


def check_remote(config: RunConfig, agent: RemoteAgent, settings: Settings) -> None:
    """Raise `BadConfig` for an agent outside of all sandboxes that could not be given any task, or not reach its model."""
    from adapters.harnesses.remote import is_beside_us  # noqa: PLC0415  only for them

    if not is_beside_us(agent.url) and not settings.default_host:
        msg = (
            f"agent.url: the agent at {agent.url} cannot reach the model gateway on this machine's loopback: "
            "set GYM_BUS_DEFAULT_HOST to an address of this machine that means the same from there"
        )
        raise BadConfig(msg)
    _check(config, agent, TaskInput(task_id="t", messages=(Message(role="user", content="a task"),)), None, "agent")


def check_given(config: RunConfig, agent: RemoteAgent, task: TaskInput, install: Install | None = None) -> None:
    """Raise `BadConfig` for a task that such an agent cannot be given."""
    _check(config, agent, task, install, f"agent: {task.task_id}")


def _check(config: RunConfig, agent: RemoteAgent, task: TaskInput, install: Install | None, where: str) -> None:
    from adapters.harnesses import remote  # noqa: PLC0415  only for them
    from adapters.harnesses.base import Unsupported  # noqa: PLC0415  the same

    wanted = install or config.install
    try:
        remote.check(agent, task, config.sandbox, wanted, config.checkpoints, config.warm_sandboxes)
    except Unsupported as error:
        raise BadConfig(f"{where}: {error}") from error
