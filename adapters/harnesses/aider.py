"""aider: it edits files by blocks in its model's words, and calls no tools. A runner of ours (`aider_runner.py`) tells every turn."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from adapters.harnesses.base import Activation, Harness, Package, Plan, Tokens
from adapters.harnesses.runner_lines import reader
from adapters.harnesses.runners import NO_TELEMETRY, model_of, runner_plan

RUNNER: Final = Path(__file__).with_name("aider_runner.py")


def plan(activation: Activation) -> Plan:
    """See `Harness.plan`."""
    home = f"{activation.home}/.aider"
    said = {
        **model_of(activation),
        "storage": home,
    }
    variables = {
        "PYTHONPATH": f"{activation.installed}/site",
        "PYTHONDONTWRITEBYTECODE": "1",
        **NO_TELEMETRY,
        "AIDER_ANALYTICS": "false",
        "AIDER_CHECK_UPDATE": "false",
    }
    return runner_plan(activation, RUNNER, home, (activation.python,), said, variables, reader)


AIDER: Final = Harness(
    name="aider",
    packages=(Package("pypi", "aider-chat", "0.86.2"),),
    dialect="chat",
    plan=plan,
    tokens=Tokens(has_prefix=False, arguments="verbatim", sends_thoughts=False),
    is_worker=True,
    memory_mib=1024,
)
