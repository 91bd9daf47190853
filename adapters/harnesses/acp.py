"""Any agent that speaks the Agent Client Protocol: whoever configures a run says how it is started, and `acp_driver` is its client."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Final

from adapters.harnesses.base import Activation, Harness, Package, Plan, Tokens, Trace, Unsupported, environment_of
from adapters.harnesses.installing.directories import node_binary
from adapters.harnesses.readers import LineReader, Record, as_text
from adapters.harnesses.servers import entry_of
from adapters.harnesses.trajectory import (
    Complained,
    Finished,
    Item,
    Planned,
    ReplyDone,
    Said,
    SessionNamed,
    Thought,
    ToolAsked,
    ToolDone,
    complaint,
)
from schemas.harnesses import AcpAgent

DRIVER: Final = Path(__file__).with_name("acp_driver")
MODULES: Final = ("__init__", "client", "hearing", "lines", "runner", "telling", "terminals")
START: Final = (
    "import asyncio\nimport sys\n\nfrom adapters.harnesses.acp_driver.runner import main\n\n"
    "sys.exit(asyncio.run(main(sys.argv[1])))\n"
)
GAVE_UP: Final[Mapping[str, str]] = {
    "max_turn_requests": "max_steps: the agent has asked the model as often as it may in one turn",
    "cancelled": "the turn was cancelled",
}
"""Ends of a turn that are none of the agent's own, and what is said of them."""


def plan(agent: AcpAgent, activation: Activation) -> Plan:
    """See `Harness.plan`. The driver has the library's directory on its path; the agent has its own package's."""
    home = f"{activation.home}/.acp"
    words = words_of(activation)
    node, site = node_binary(activation.node).removesuffix("/node"), f"{activation.program}/site"
    found = {
        None: {},
        "npm": {"PATH": f"{activation.program}/node_modules/.bin:{node}:{environment_of(activation, {})['PATH']}"},
        "pypi": {"PYTHONPATH": site},
    }[agent.package.ecosystem if agent.package else None]
    variables = found | {name: filled(text, words) for name, text in agent.env.items()}
    own_path = {"PYTHONPATH": variables.pop("PYTHONPATH")} if "PYTHONPATH" in variables else {}
    command = tuple(filled(word, words) for word in (*agent.command, *activation.extra_args))
    said = {
        "argv": command,
        "environment": own_path,
        "workspace": activation.workspace,
        "session": activation.resume,
        "authenticate": agent.authenticate,
        "mcp": [{"name": server.name, **entry_of(server)} for server in activation.mcp],
    }
    ours = {
        "PYTHONPATH": f"{home}:{activation.installed}/site",
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONUNBUFFERED": "1",
    }
    modules = {
        f"{home}/adapters/harnesses/acp_driver/{name}.py": (DRIVER / f"{name}.py").read_text() for name in MODULES
    }
    files = {f"{activation.home}/{name}": filled(text, words) for name, text in agent.files.items()}
    return Plan(
        argv=(activation.python, f"{home}/start.py", f"{home}/said.json"),
        environment=environment_of(activation, variables | ours),
        traces=(Trace("stdout", reader),),
        files={**files, **modules, f"{home}/start.py": START, f"{home}/said.json": json.dumps(said)},
        starts=command,
        stdin=activation.prompt,
    )


def words_of(activation: Activation) -> dict[str, str]:
    """Return what may stand in a configuration, and what it stands for."""
    return {
        "{base_url}": activation.base_url,
        "{token}": activation.base_url.rpartition("/a/")[2],
        "{model}": activation.model,
        "{home}": activation.home,
        "{workspace}": activation.workspace,
        "{program}": activation.program,
        "{python}": activation.python,
    }


def filled(text: str, words: Mapping[str, str]) -> str:
    """Return a text with what its words stand for; all other braces are its own."""
    for word, meaning in words.items():
        text = text.replace(word, meaning)
    return text


def reader() -> LineReader:
    """Return a reader for what the driver prints."""
    return LineReader(_items)


def _items(record: Record) -> Iterable[Item] | None:  # noqa: C901, PLR0911  one return a kind
    match record["type"]:
        case "session":
            return [SessionNamed(str(record["id"]))]
        case "prompt":
            return [Said("user", str(record["text"]))]
        case "said":
            return [Said("assistant", str(record["text"]))]
        case "thought":
            return [Thought(str(record["text"]))]
        case "plan":
            return [Planned("\n".join(f"[{step['status']}] {step['content']}" for step in record["entries"]))]
        case "tool_asked":
            return [ToolAsked(str(record["id"]), str(record["name"]), as_text(record["arguments"]), is_rewritten=True)]
        case "tool_done":
            return [_done(record)]
        case "reply":
            return [ReplyDone()]
        case "finished":
            reason = str(record["reason"])
            return [complaint(GAVE_UP[reason], is_final=True)] if reason in GAVE_UP else [Finished(reason)]
        case "failed":
            return [_failed(record)]
        case _:
            return None


def _failed(record: Record) -> Complained:
    """Return why it failed, and what its command said: its class is told by the first alone."""
    failed, said = complaint(str(record["message"]), is_final=True), complaint(str(record.get("said", ""))).message
    return replace(failed, message=f"{failed.message}; it said: {said}") if said else failed


def _done(record: Record) -> ToolDone:
    code = record["exit_code"]
    return ToolDone(
        str(record["id"]),
        str(record["text"]),
        exit_code=code if isinstance(code, int) else None,
        is_error=bool(record["is_error"]),
        duration_s=float(record["duration_s"]),
    )


def with_agent(agent: AcpAgent) -> Harness:
    """Return the harness that runs `agent`."""
    return replace(
        ACP,
        plan=partial(plan, agent),
        needs_node=agent.package is not None and agent.package.ecosystem == "npm",
        grants=frozenset({"model", "mcp"} if agent.tools_by == "mcp" else {"model", "http"}),
        resumes=agent.resumes,
    )


def _unconfigured(activation: Activation) -> Plan:
    msg = f"acp_agent cannot be run in {activation.workspace} without agent.command"
    raise Unsupported(msg)


ACP: Final = Harness(
    name="acp_agent",
    packages=(Package("pypi", "agent-client-protocol", "0.12.1"),),
    dialect="chat",
    plan=_unconfigured,
    tokens=Tokens(has_prefix=False, arguments="rewritten", sends_thoughts=False),
    is_worker=True,
    memory_mib=2048,
)
"""What all of them have in common; nothing is known of their calls of the model."""
