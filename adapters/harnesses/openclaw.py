"""OpenClaw: a large assistant on Node. Its sessions are Pi's, in a database, out of which `database_runner.py` tells every turn."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Final

from adapters.harnesses.base import NO_KEY, Activation, Harness, Package, Plan, Tokens, Trace, environment_of
from adapters.harnesses.pi import interpret
from adapters.harnesses.readers import LineReader, Record, number, text_of
from adapters.harnesses.servers import entry_of
from adapters.harnesses.trajectory import Complained, Item, SessionNamed, ToolAsked, ToolDone, complaint

SCRIPT: Final = "node_modules/openclaw/openclaw.mjs"
PENDING: Final = "node_modules/openclaw/.openclaw-lifecycle-pending"
"""With it, each start clears away what an older version left, fetches a native part if that is missing, and removes it."""
TOOLS: Final = ("exec", "read", "write", "edit", "apply_patch", "process")
RUNNER: Final = Path(__file__).with_name("database_runner.py")
DATABASE: Final = "agents/main/agent/openclaw-agent.sqlite"
QUERY: Final = (
    "SELECT seq, session_id, event_json FROM transcript_events WHERE session_id = '{}' AND seq > ? ORDER BY seq"
)
TIMEOUT_S: Final = 86_400


def plan(activation: Activation) -> Plan:
    """See `Harness.plan`."""
    home = f"{activation.home}/.openclaw"
    session = activation.resume or str(uuid.uuid5(uuid.NAMESPACE_URL, activation.base_url))
    argv = (
        "/usr/bin/env", "python3", f"{home}/runner.py", f"{home}/{DATABASE}", QUERY.format(session),
        activation.node, f"{activation.installed}/{SCRIPT}", "agent", "--local", "--json", "--agent", "main",
        "--session-id", session, "--thinking", "off", "--timeout", str(TIMEOUT_S), "--message-file", "/dev/stdin",
        *activation.extra_args,
    )  # fmt: skip
    variables = {
        "OPENCLAW_STATE_DIR": home,
        "OPENCLAW_CONFIG_PATH": f"{home}/openclaw.json",
        "OPENCLAW_NO_UPDATE_CHECK": "1",
        "OPENCLAW_DISABLE_TELEMETRY": "1",
        "OPENCLAW_SKIP_CHANNELS": "1",
        "DO_NOT_TRACK": "1",
        "NO_COLOR": "1",
    }
    return Plan(
        argv=argv,
        environment=environment_of(activation, variables),
        traces=(Trace("stdout", reader),),
        files={
            f"{home}/openclaw.json": json.dumps(_config(activation)),
            f"{home}/runner.py": RUNNER.read_text(),
        },
        stdin=activation.prompt,
    )


def _config(activation: Activation) -> Record:
    model = {
        "id": activation.model,
        "name": activation.model,
        "api": "openai-responses",
        "reasoning": False,
        "input": ["text"],
        "contextWindow": activation.context_tokens,
        "maxTokens": activation.max_output_tokens,
    }
    provider = {
        "baseUrl": f"{activation.base_url}/v1",
        "apiKey": NO_KEY,
        "api": "openai-responses",
        "models": [model],
    }
    allowed = [
        *(tool for tool in TOOLS if tool not in activation.withheld),
        *(f"{server.name}__*" for server in activation.mcp),
    ]
    tools: Record = {
        "profile": "coding",
        "allow": allowed,
        "deny": list(activation.withheld) if allowed else ["*"],  # it takes an empty list of those allowed for all
        "toolSearch": False,
        "exec": {"host": "gateway", "security": "full", "ask": "off"},
    }
    config: Record = {
        "gateway": {"mode": "local"},
        "update": {"checkOnStart": False},
        "agents": {
            "defaults": {
                "workspace": activation.workspace,
                "skipBootstrap": True,
                "model": f"gym_bus/{activation.model}",
            }
        },
        "tools": tools,
        "models": {"mode": "merge", "providers": {"gym_bus": provider}},
    }
    if activation.mcp:
        config["mcp"] = {
            "servers": {
                server.name: entry_of(server, remote={"transport": "streamable-http"}) for server in activation.mcp
            }
        }
    return config


def reader() -> LineReader:
    """Return a reader for what the runner prints."""
    return LineReader(_Output().interpret)


class _Output:
    """The session's id is in every row; it is told once. A failure is told in the session, or by the exit code alone."""

    def __init__(self) -> None:
        self._session: str | None = None
        self._has_failed = False

    def interpret(self, record: Record) -> Iterable[Item] | None:
        match record["type"]:
            case "row":
                items = _event(json.loads(record["event_json"]))
                self._has_failed |= any(isinstance(item, Complained) for item in items or ())
                if items is not None and self._session is None:
                    self._session = str(record["session_id"])
                    return [SessionNamed(self._session), *items]
                return items
            case "ended":
                if record["exit_code"] and not self._has_failed:
                    return [complaint(str(record["said"]), is_final=True)]
                return []
            case _:
                return None


def _event(event: Record) -> list[Item] | None:
    """Return what a record of a session means: what it does to Pi, but for a call's end, and for names of calls."""
    match event:
        case {"type": "session"}:
            return []
        case {"type": "message", "message": {"role": "toolResult"} as message}:
            return [_done(message)]
        case _:
            items = interpret(event)
            return None if items is None else [_named(item) for item in items]


def _named(item: Item) -> Item:
    return replace(item, call_id=_plain(item.call_id)) if isinstance(item, ToolAsked) else item


def _plain(call_id: str) -> str:
    """Return the model's own id of a call, behind which there is one of OpenClaw's."""
    return call_id.split("|", 1)[0]


def _done(message: Record) -> ToolDone:
    details = message.get("details")
    told: Record = details if isinstance(details, dict) else {}
    code, spent = number(told.get("exitCode")), number(told.get("durationMs"))
    return ToolDone(
        _plain(str(message["toolCallId"])),
        text_of(message["content"]),
        exit_code=code,
        is_error=bool(message["isError"]) or bool(code),
        duration_s=spent / 1000 if spent is not None else None,
    )


OPENCLAW: Final = Harness(
    name="openclaw_agent",
    packages=(Package("npm", "openclaw", "2026.9.6"),),
    dialect="responses",
    plan=plan,
    tokens=Tokens(has_prefix=True, arguments="rewritten", sends_thoughts=False),
    needs_node=True,
    withholds=frozenset(TOOLS),
    withholds_all=True,
    grants=frozenset({"model", "mcp"}),
    resumes=True,
    left_out=(PENDING,),
    memory_mib=4096,
)
