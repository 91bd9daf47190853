"""Prime Agent: a fork of Pi whose one tool is a Python kernel. It is in no package, so its program is one that the user has.

Its command talks to a daemon that it starts itself, and that to a process for the session: all of them descend from the launch.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace
from functools import partial
from typing import Final

from adapters.harnesses import pi
from adapters.harnesses.base import Activation, Harness, Plan, Tokens, Trace, environment_of
from adapters.harnesses.readers import LineReader, Record
from adapters.harnesses.trajectory import Item, ToolDone
from schemas.harnesses import PrimeAgent

SILENT: Final = frozenset(
    {"agent_status", "child_usage_attributed", "custom_message", "git_state", "service_tier_change", "session_state"}
)
"""Records of a session that Pi's have not, and that say nothing of the conversation."""
EXITED: Final = re.compile(r"returned non-zero exit status (\d+)\.\s*\Z")
MISSING: Final = (
    "prime_agent: the command {word} is not in the sandbox: set agent.command to where it is in the image, or in a directory that "
    "sandbox.shared shows"
)
LOOK: Final = 'command -v -- "$1" >/dev/null || { printf "%s\\n" "$0" >&2; exit 127; }; exec "$@"'
"""Says what is missing before it becomes the command."""


def plan(agent: PrimeAgent, activation: Activation) -> Plan:
    """See `Harness.plan`."""
    home = f"{activation.home}/.prime/agent"
    command = (
        *agent.command, "--print", "--daemon-socket", f"{activation.home}/prime.sock",
        "--provider", pi.PROVIDER, "--model", activation.model, *pi.words_for_the_system_prompt(activation),
        *(("--resume", activation.resume) if activation.resume else ()), *activation.extra_args,
    )  # fmt: skip
    variables = {
        "PRIME_AGENT_CODING_AGENT_DIR": home,
        "PRIME_AGENT_TELEMETRY": "0",
        "PI_OFFLINE": "1",
        "PI_SKIP_VERSION_CHECK": "1",
        **({"PRIME_AGENT_KERNEL_PYTHON": agent.kernel_python} if agent.kernel_python else {}),
    }
    return Plan(
        argv=("/bin/sh", "-c", LOOK, MISSING.format(word=repr(agent.command[0])), *command),
        environment=environment_of(activation, variables),
        traces=(Trace(f"{home}/sessions/*{activation.resume or ''}.jsonl", reader),),
        files={
            f"{home}/models.json": pi.models_of(activation, input=["text"], compat={"supportsDeveloperRole": False}),
            f"{home}/settings.json": pi.SETTINGS,
        },
        stdin=activation.prompt,
    )


def reader() -> LineReader:
    """Return a reader for a session file."""
    return LineReader(_interpret)


def _interpret(record: Record) -> Iterable[Item] | None:
    if record["type"] in SILENT:
        return []
    items = pi.interpret(record)
    details = (record.get("message") or {}).get("details") or {}
    if items is None or "status" not in details:
        return items
    return [_done(item, details) if isinstance(item, ToolDone) else item for item in items]


def _done(done: ToolDone, details: Record) -> ToolDone:
    """Return what came of a cell: whether that was an error is not where Pi says it, but beside how long it took."""
    is_error = details["status"] != "ok"
    code = int(found[1]) if is_error and (found := EXITED.search(done.text)) else None
    spent = details.get("durationMs")
    return replace(
        done,
        is_error=is_error,
        exit_code=code if is_error else 0,
        duration_s=spent / 1000 if spent is not None else None,
    )


def with_command(agent: PrimeAgent) -> Harness:
    """Return the harness that runs `agent`."""
    return replace(PRIME, plan=partial(plan, agent))


PRIME: Final = Harness(
    name="prime_agent",
    packages=(),
    dialect="chat",
    plan=partial(plan, PrimeAgent()),
    tokens=Tokens(has_prefix=True, arguments="rewritten", sends_thoughts=True),
    system_prompts=frozenset({"append", "replace"}),
    grants=frozenset({"model", "http"}),
    resumes=True,
    memory_mib=2048,
)
