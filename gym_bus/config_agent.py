"""The key of an agent that somebody runs somewhere else: out of the configuration, into the secrets, and its name into the log."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from gym_bus.config_sandboxes import key_of
from gym_bus.config_text import Sourced
from gym_bus.secrets_store import SecretsStore
from schemas.config import RunConfig
from schemas.harnesses import RemoteAgent

PLACE: Final = "agent"


def take_agent_key(sourced: Sourced, environ: Mapping[str, str]) -> dict[str, str]:
    """Return the agent's key by its place, taken out of the values; raises `BadConfig`. It is the key itself, or `env:NAME`."""
    agent = sourced.values.get(PLACE)
    if not isinstance(agent, dict) or agent.get("type") != "remote_agent":
        return {}
    key = key_of(f"{PLACE}.api_key", agent.pop("api_key", None), environ)
    return {PLACE: key} if key else {}


def with_agent_key_name(config: RunConfig, keys: Mapping[str, str], store: SecretsStore) -> RunConfig:
    """Return the configuration with the name under which `store` keeps the agent's key, if it has one."""
    if not isinstance(config.agent, RemoteAgent) or PLACE not in keys:
        return config
    return config.model_copy(update={"agent": config.agent.replaced(api_key=store.store(keys[PLACE]))})


def with_agent_key_name_of(config: RunConfig, logged: RunConfig) -> RunConfig:
    """Return the configuration with the name that `logged` has for the agent's key, which is no part of what is measured."""
    if not isinstance(config.agent, RemoteAgent) or not isinstance(logged.agent, RemoteAgent):
        return config
    return config.model_copy(update={"agent": config.agent.replaced(api_key=logged.agent.api_key)})
