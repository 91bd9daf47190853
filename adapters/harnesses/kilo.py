"""Kilo: a fork of OpenCode, which it is configured, and told of, as. It has more tools, and starts more slowly still."""

from __future__ import annotations

from typing import Final

from adapters.harnesses.base import Harness, Package, Tokens
from adapters.harnesses.opencode import TOOLS, Fork

MORE_TOOLS: Final = (
    "background_process", "board_post", "board_read", "cancel_wakeup", "kilo_local_recall", "schedule_wakeup",
)  # fmt: skip

KILO: Final = Harness(
    name="kilocode_agent",
    packages=(Package("npm", "@kilocode/cli-linux-x64", "7.7.7"),),
    dialect="chat",
    plan=Fork(
        binary="node_modules/@kilocode/cli-linux-x64/bin/kilo",
        prefix="KILO",
        file="kilo.json",
        agent="code",
        flags=("--auto",),
        environment={"KILO_NO_DAEMON": "1", "KILO_TELEMETRY_LEVEL": "off", "KILO_DISABLE_TELEMETRY": "1"},
    ).plan,
    tokens=Tokens(has_prefix=True, arguments="rewritten", sends_thoughts=True),
    system_prompts=frozenset({"replace"}),
    withholds=frozenset((*TOOLS, *MORE_TOOLS)),
    withholds_all=True,
    grants=frozenset({"model", "mcp"}),
    resumes=True,
    finds_skills=True,
    memory_mib=2048,
)
