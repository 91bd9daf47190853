"""Terminus-2: Harbor's agent, which types into a terminal. It runs in the sandbox (`terminus_2_runner.py`), and tells every turn."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from adapters.harnesses.base import Activation, Harness, Package, Plan, Tokens
from adapters.harnesses.runner_lines import reader
from adapters.harnesses.runners import NO_TELEMETRY, model_of, runner_plan

STEPS_MAX: Final = 250
RUNNER: Final = Path(__file__).with_name("terminus_2_runner.py")


def plan(activation: Activation) -> Plan:
    """See `Harness.plan`."""
    home = f"{activation.home}/.terminus"
    said = {
        **model_of(activation),
        "storage": f"{home}/run",
        "steps": STEPS_MAX,
    }
    variables = {
        "GYM_BUS_PACKAGES": f"{activation.installed}/site",
        **NO_TELEMETRY,
        "HARBOR_TELEMETRY": "0",
        "DO_NOT_TRACK": "1",
        "SHELL": "/bin/bash",
    }
    return runner_plan(activation, RUNNER, home, (activation.brought_python, "-I"), said, variables, reader)


TERMINUS_2: Final = Harness(
    name="terminus_2_agent",
    packages=(Package("pypi", "harbor", "0.26.0"),),
    dialect="chat",
    plan=plan,
    tokens=Tokens(has_prefix=True, arguments="verbatim", sends_thoughts=False),
    needs_python=("3.12", "3.13"),
    grants=frozenset({"model", "http"}),
    is_worker=True,
    memory_mib=1024,
)
