"""aider: it edits files by blocks in its model's words, and calls no tools. A runner of ours (`aider_runner.py`) tells every turn."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Final

from adapters.harnesses.base import NO_KEY, Activation, Harness, Package, Plan, Tokens, Trace, environment_of
from adapters.harnesses.runner_lines import reader

CALL_TIMEOUT_S: Final = 3600
"""For one call of the model; the gateway's own deadlines are shorter."""
RUNNER: Final = Path(__file__).with_name("aider_runner.py")


def plan(activation: Activation) -> Plan:
    """See `Harness.plan`."""
    home = f"{activation.home}/.aider"
    said = {
        "base_url": f"{activation.base_url}/v1",
        "api_key": NO_KEY,
        "model": activation.model,
        "context_tokens": activation.context_tokens,
        "max_tokens": activation.max_output_tokens,
        "call_timeout_s": CALL_TIMEOUT_S,
        "storage": home,
        "workspace": activation.workspace,
    }
    variables = {
        "PYTHONPATH": f"{activation.installed}/site",
        "PYTHONDONTWRITEBYTECODE": "1",
        "LITELLM_LOCAL_MODEL_COST_MAP": "True",
        "LITELLM_TELEMETRY": "False",
        "AIDER_ANALYTICS": "false",
        "AIDER_CHECK_UPDATE": "false",
    }
    return Plan(
        argv=(activation.python, f"{home}/runner.py", f"{home}/said.json", *activation.extra_args),
        environment=environment_of(activation, variables),
        traces=(Trace("stdout", reader),),
        files={f"{home}/runner.py": RUNNER.read_text(), f"{home}/said.json": json.dumps(said)},
        stdin=activation.prompt,
    )


AIDER: Final = Harness(
    name="aider",
    packages=(Package("pypi", "aider-chat", "0.86.2"),),
    dialect="chat",
    plan=plan,
    tokens=Tokens(has_prefix=False, arguments="verbatim", sends_thoughts=False),
    memory_mib=1024,
)
