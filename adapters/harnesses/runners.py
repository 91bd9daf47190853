"""How agents that are libraries are started: a runner of ours, what it is told in a file, and what every one is told of its model."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from adapters.harnesses.base import NO_KEY, Activation, Plan, Trace, environment_of
from adapters.harnesses.readers import Reader, Record

CALL_TIMEOUT_S: Final = 3600
"""For one call of the model; the gateway's own deadlines are shorter."""
NO_TELEMETRY: Final = {"LITELLM_LOCAL_MODEL_COST_MAP": "True", "LITELLM_TELEMETRY": "False"}
"""For those that call their model by litellm."""


def model_of(activation: Activation) -> Record:
    """Return what a runner is told of its model and its place."""
    return {
        "base_url": f"{activation.base_url}/v1",
        "api_key": NO_KEY,
        "model": activation.model,
        "context_tokens": activation.context_tokens,
        "max_tokens": activation.max_output_tokens,
        "call_timeout_s": CALL_TIMEOUT_S,
        "workspace": activation.workspace,
    }


def runner_plan(
    activation: Activation,
    runner: Path,
    home: str,
    python: tuple[str, ...],
    said: Record,
    variables: Mapping[str, str],
    reader: Callable[[], Reader],
) -> Plan:
    """Return the plan by which `python` runs `runner` in `home`, with what is `said`; the prompt is its input, its output is read."""
    return Plan(
        argv=(*python, f"{home}/runner.py", f"{home}/said.json", *activation.extra_args),
        environment=environment_of(activation, variables),
        traces=(Trace("stdout", reader),),
        files={f"{home}/runner.py": runner.read_text(), f"{home}/said.json": json.dumps(said)},
        stdin=activation.prompt,
    )
