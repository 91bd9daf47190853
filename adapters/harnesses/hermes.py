"""Hermes: an agent in Python with its conversation in a database, out of which `database_runner.py` tells every turn."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from adapters.harnesses.base import (
    NO_KEY,
    Activation,
    Harness,
    Package,
    Plan,
    Tokens,
    Trace,
    Unsupported,
    environment_of,
)
from adapters.harnesses.literal import as_yaml
from adapters.harnesses.readers import LineReader, Record, as_text, number
from adapters.harnesses.servers import entry_of
from adapters.harnesses.trajectory import (
    Finished,
    Item,
    ReplyDone,
    Said,
    SessionNamed,
    Thought,
    ToolAsked,
    ToolDone,
    complaint,
)

RUNNER: Final = Path(__file__).with_name("database_runner.py")
STEPS_MAX: Final = 250
QUERY: Final = (
    "SELECT id, session_id, role, content, tool_calls, tool_call_id, finish_reason, reasoning_content FROM messages "
    "WHERE id > ? ORDER BY id"
)
TAKEN: Final = (
    "all", "browser", "clarify", "code_execution", "coding", "computer_use", "context_engine", "cronjob", "debugging", "delegation",
    "discord", "discord_admin", "feishu_doc", "feishu_drive", "file", "google_meet", "homeassistant", "image_gen", "kanban", "memory",
    "no_mcp", "project", "safe", "search", "session_search", "skills", "spotify", "terminal", "todo", "tts", "video", "video_gen",
    "vision", "web", "x_search", "yuanbao",
)  # fmt: skip
"""Sets of tools of its own: `-t` takes such a name for one of them, whatever servers are called."""
REFERENCE: Final = re.compile(r"\$\{[^}]+\}")
START: Final = "import sys; from hermes_cli.main import main; sys.exit(main())"


def plan(activation: Activation) -> Plan:
    """See `Harness.plan`. The configuration is JSON, which is YAML as well."""
    home = f"{activation.home}/.hermes"
    config: Record = {
        "model": {
            "default": activation.model,
            "provider": "custom",
            "base_url": f"{activation.base_url}/v1",
            "api_key": NO_KEY,
            "context_length": activation.context_tokens,
            "max_tokens": activation.max_output_tokens,
        },
        "agent": {"max_turns": STEPS_MAX},
        "compression": {"enabled": False},
        "memory": {"memory_enabled": False, "user_profile_enabled": False},
    }
    if activation.mcp:
        config["mcp_servers"] = {server.name: entry_of(server) for server in activation.mcp}
    if REFERENCE.search(json.dumps(config)):
        msg = "hermes_agent cannot be given ${…} in what its servers of tools are started or asked with: it would put a variable there"
        raise Unsupported(msg)
    toolsets = ",".join(("terminal", "file", *(server.name for server in activation.mcp)))
    argv = (
        activation.python, f"{home}/runner.py", f"{home}/state.db", QUERY,
        activation.python, "-c", START, "chat", f"--query={activation.prompt}", "-Q", "--yolo", "--ignore-rules", "-t", toolsets,
        *(("--resume", activation.resume) if activation.resume else ()), *activation.extra_args,
    )  # fmt: skip
    variables = {
        "PYTHONPATH": f"{activation.installed}/site",
        "PYTHONDONTWRITEBYTECODE": "1",
        "HERMES_HOME": home,
        "HERMES_DISABLE_UPDATE_CHECK": "1",
        "HERMES_TELEMETRY": "0",
        "TERMINAL_ENV": "local",
        "OPENAI_API_KEY": NO_KEY,
    }
    if activation.system_prompt:
        variables["HERMES_EPHEMERAL_SYSTEM_PROMPT"] = activation.system_prompt.text
    return Plan(
        argv=argv,
        environment=environment_of(activation, variables),
        traces=(Trace("stdout", reader),),
        files={f"{home}/config.yaml": as_yaml(config), f"{home}/runner.py": RUNNER.read_text()},
    )


def reader() -> LineReader:
    """Return a reader for what the runner prints."""
    return LineReader(_Output().interpret)


class _Output:
    """The session's id is in every message; it is told once."""

    def __init__(self) -> None:
        self._session: str | None = None

    def interpret(self, record: Record) -> Iterable[Item] | None:
        match record["type"]:
            case "row" if self._session is None:
                items = _message(record)
                self._session = str(record["session_id"])
                return [SessionNamed(self._session), *items]
            case "row":
                return _message(record)
            case "ended":
                return _end(record)
            case _:
                return None


def _message(record: Record) -> list[Item]:
    content = str(record.get("content") or "")
    match record["role"]:
        case "assistant":
            return _reply(record, content)
        case "tool":
            return [_done(record, content)]
        case role:
            return [Said("system" if role == "system" else "user", content)]


def _reply(record: Record, content: str) -> list[Item]:
    items: list[Item] = []
    if record.get("reasoning_content"):
        items.append(Thought(str(record["reasoning_content"])))
    if content:
        items.append(Said("assistant", content))
    asked = json.loads(record.get("tool_calls") or "[]")
    for one in asked:
        called = one["function"]
        items.append(ToolAsked(str(one["id"]), str(called["name"]), as_text(called["arguments"])))
    items.append(ReplyDone())
    return items if asked else [*items, Finished(str(record.get("finish_reason")))]


def _done(record: Record, content: str) -> ToolDone:
    """Return a result, which most of its tools give as JSON; a command's has an exit code."""
    try:
        told = json.loads(content)
    except ValueError:
        told = None
    said = told if isinstance(told, dict) else {}
    code = number(said.get("exit_code"))
    text = said["output"] if isinstance(said.get("output"), str) else content
    return ToolDone(str(record["tool_call_id"]), text, code, bool(code) or bool(said.get("error")))


def _end(record: Record) -> list[Item]:
    said = str(record["said"])
    return [complaint(said, is_final=True)] if record["exit_code"] else []


HERMES: Final = Harness(
    name="hermes_agent",
    packages=(Package("pypi", "hermes-agent", "0.19.0"),),
    dialect="chat",
    plan=plan,
    tokens=Tokens(has_prefix=True, arguments="rewritten", sends_thoughts=False),
    system_prompts=frozenset({"append"}),
    grants=frozenset({"model", "mcp"}),
    prompt_by="argument",
    resumes=True,
    taken_names=frozenset(TAKEN),
    memory_mib=1024,
)
