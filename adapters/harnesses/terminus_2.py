"""Terminus-2: Harbor's agent, which types into a terminal. It runs in the sandbox (`terminus_2_runner.py`), and tells every turn."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Final

from adapters.harnesses.base import NO_KEY, Activation, Harness, Package, Plan, Tokens, Trace, environment_of
from adapters.harnesses.runner_lines import reader

STEPS_MAX: Final = 250
CALL_TIMEOUT_S: Final = 3600
"""For one call of the model; the gateway's own deadlines are shorter."""
RUNNER: Final = Path(__file__).with_name("terminus_2_runner.py")


def plan(activation: Activation) -> Plan:
    """See `Harness.plan`."""
    home = f"{activation.home}/.terminus"
    said = {
        "base_url": f"{activation.base_url}/v1",
        "api_key": NO_KEY,
        "model": activation.model,
        "context_tokens": activation.context_tokens,
        "max_tokens": activation.max_output_tokens,
        "call_timeout_s": CALL_TIMEOUT_S,
        "storage": f"{home}/run",
        "workspace": activation.workspace,
        "steps": STEPS_MAX,
    }
    variables = {
        "GYM_BUS_PACKAGES": f"{activation.installed}/site",
        "LITELLM_LOCAL_MODEL_COST_MAP": "True",
        "LITELLM_TELEMETRY": "False",
        "HARBOR_TELEMETRY": "0",
        "DO_NOT_TRACK": "1",
        "SHELL": "/bin/bash",
    }
    return Plan(
        argv=(activation.brought_python, "-I", f"{home}/runner.py", f"{home}/said.json", *activation.extra_args),
        environment=environment_of(activation, variables),
        traces=(Trace("stdout", reader),),
        files={f"{home}/runner.py": RUNNER.read_text(), f"{home}/said.json": json.dumps(said)},
        stdin=activation.prompt,
    )


TERMINUS_2: Final = Harness(
    name="terminus_2_agent",
    packages=(Package("pypi", "harbor", "0.26.0"),),
    dialect="chat",
    plan=plan,
    tokens=Tokens(has_prefix=True, arguments="verbatim", sends_thoughts=False),
    needs_python=("3.12", "3.13"),
    grants=frozenset({"model", "http"}),
    memory_mib=1024,
)
