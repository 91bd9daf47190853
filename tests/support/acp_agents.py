"""Agents that speak the Agent Client Protocol, as runs of tests configure them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

from gym_bus.config_text import read_file
from schemas.harnesses import AcpAgent

EXAMPLE: Final = Path(__file__).resolve().parents[2] / "examples" / "acp-opencode.yaml"
LIBRARY: Final = "/opt/gym-bus/acp_agent/site"
ENV: Final = {"MODEL_URL": "{base_url}/v1", "MODEL_KEY": "{token}", "MODEL": "{model}", "PYTHONPATH": LIBRARY}


def small(does: str = "", **more: Any) -> AcpAgent:
    """Return the small agent, which `does` something that it should not."""
    text = Path(__file__).with_name("acp_agent.py").read_text()
    env = {**ENV, **({"AGENT_DOES": does} if does else {}), **more.pop("env", {})}
    given: dict[str, Any] = {"command": ("{python}", "{home}/agent.py"), "env": env, "files": {"agent.py": text}}
    return AcpAgent(**{"resumes": True, **given, **more})


def configured(directory: Path, agent: AcpAgent) -> tuple[str, str]:
    """Write a run's configuration with `agent` into a directory; return how the command line is told of it."""
    path = directory / "agent.yaml"
    path.write_text(json.dumps({"agent": agent.model_dump(mode="json")}))
    return ("--config", str(path))


def opencode() -> AcpAgent:
    """Return OpenCode, which speaks the protocol itself, as the example configures it."""
    return AcpAgent.model_validate(read_file(EXAMPLE).values["agent"])
