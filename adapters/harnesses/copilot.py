"""Copilot CLI: GitHub's agent with a model of one's own. Its session file tells every turn; what failed is told on its output."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from datetime import datetime
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
from adapters.harnesses.readers import LineReader, Record, as_text, number, word
from adapters.harnesses.servers import entry_of
from adapters.harnesses.trajectory import (
    Compacted,
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

BINARY: Final = "node_modules/@github/copilot-linux-x64/copilot"
TOOLS: Final = (
    "bash", "read_bash", "stop_bash", "list_bash", "view", "create", "edit", "fetch_copilot_cli_documentation", "skill", "sql",
    "session_store_sql", "read_agent", "list_agents", "write_agent", "grep", "glob", "task",
)  # fmt: skip
FLAGS: Final = (
    "--output-format", "json", "--allow-all-tools", "--allow-all-paths", "--no-ask-user", "--disable-builtin-mcps",
    "--no-custom-instructions", "--no-auto-update", "--no-color", "--log-level", "error",
)  # fmt: skip
NOBODY: Final = """\
-----BEGIN CERTIFICATE-----
MIIBeTCCAR+gAwIBAgIUUb0S6nRwsl4UNCCmqyGv9Bb4sZwwCgYIKoZIzj0EAwIw
ETEPMA0GA1UEAwwGbm9ib2R5MCAXDTI2MTEzMDA4NDAzMFoYDzIxMjYxMTA2MDg0
MDMwWjARMQ8wDQYDVQQDDAZub2JvZHkwWTATBgcqhkjOPQIBBggqhkjOPQMBBwNC
AAT2DNPKfHYi0deOE6ndudT53+jikkBfeAl27WyYzqjQ4S8vkSNWTl8So+gKfQhi
SYUOizvRRlX/7JCiBoS+1PEVo1MwUTAdBgNVHQ4EFgQUoM65ftOIlwETsu4yIZX7
aHL8xtMwHwYDVR0jBBgwFoAUoM65ftOIlwETsu4yIZX7aHL8xtMwDwYDVR0TAQH/
BAUwAwEB/zAKBggqhkjOPQQDAgNIADBFAiBlu883SX887vtz2oEHjl5DrZJ1oaqY
YbX883Omua8GpwIhAPCmwuCdayLthROBc7LVskpAlDNKAr2cO25F0a+Ad2en
-----END CERTIFICATE-----
"""
"""The certificate of an authority whose key is gone: without any trust root the program refuses to speak to anyone, even by http."""
CALLS_MAX: Final = 1024
"""Under way at once."""
SILENT: Final = frozenset(
    {
        "assistant.turn_start",
        "assistant.turn_end",
        "session.shutdown",
        "session.resume",
        "session.error",
        "session.usage_record",
        "tool.execution_start",
    }
)
PRINTED: Final = ("assistant.", "model.", "session.", "system.", "tool.", "user.")
WITH_ROOTS: Final = (
    "for roots in /etc/ssl/certs/ca-certificates.crt /etc/pki/tls/certs/ca-bundle.crt /etc/ssl/cert.pem; do"
    ' [ -e "$roots" ] && exec "$@"; done; SSL_CERT_FILE="$HOME/.copilot/nobody.pem" exec "$@"'
)
COMMAND: Final = re.compile(r"\s*/compact\b")
"""The one of its own commands that it heeds in a prompt, wherever that begins."""


def plan(activation: Activation) -> Plan:
    """See `Harness.plan`."""
    if COMMAND.match(activation.prompt):
        msg = (
            "copilot_agent cannot be given a prompt that begins with `/compact`: it takes that for a command of its own"
        )
        raise Unsupported(msg)
    home = f"{activation.home}/.copilot"
    variables = {
        "COPILOT_HOME": home,
        "COPILOT_OFFLINE": "true",
        "COPILOT_AUTO_UPDATE": "false",
        "COPILOT_MODEL": activation.model,
        "COPILOT_PROVIDER_TYPE": "openai",
        "COPILOT_PROVIDER_WIRE_API": "completions",
        "COPILOT_PROVIDER_BASE_URL": f"{activation.base_url}/v1",
        "COPILOT_PROVIDER_API_KEY": NO_KEY,
        "COPILOT_PROVIDER_MAX_PROMPT_TOKENS": str(activation.context_tokens - activation.max_output_tokens),
        "COPILOT_PROVIDER_MAX_OUTPUT_TOKENS": str(activation.max_output_tokens),
    }
    files = {f"{home}/nobody.pem": NOBODY}
    if activation.system_prompt:
        head = "---\nname: gym-bus\ndescription: works on a task\n---\n"
        files[f"{home}/agents/gym-bus.agent.md"] = head + activation.system_prompt.text
    if activation.mcp:
        servers = {
            server.name: entry_of(
                server, remote={"type": "http", "tools": ["*"]}, local={"type": "local", "tools": ["*"]}
            )
            for server in activation.mcp
        }
        files[f"{home}/mcp.json"] = json.dumps({"mcpServers": servers})
    argv = (
        "/bin/sh", "-c", WITH_ROOTS, "copilot", f"{activation.installed}/{BINARY}", *FLAGS,
        *(("--additional-mcp-config", f"@{home}/mcp.json") if activation.mcp else ()),
        *(("--excluded-tools", ",".join(activation.withheld)) if activation.withheld else ()),
        *(("--agent", "gym-bus") if activation.system_prompt else ()),
        *((f"--resume={activation.resume}",) if activation.resume else ()), *activation.extra_args,
    )  # fmt: skip
    events = f"{home}/session-state/{activation.resume or '*'}/events.jsonl"
    return Plan(
        argv=argv,
        environment=environment_of(activation, variables),
        traces=(Trace(events, session_reader), Trace("stdout", output_reader)),
        files=files,
        stdin=activation.prompt,
    )


def session_reader() -> LineReader:
    """Return a reader for `events.jsonl`."""
    return LineReader(_Session().interpret)


def output_reader() -> LineReader:
    """Return a reader for what it prints: failures, and how it ended."""
    return LineReader(_output)


class _Session:
    """A reply's usage is told before the reply, and a call's beginning, with its time, before its end."""

    def __init__(self) -> None:
        self._usage: dict[str, Record] = {}
        self._begun: dict[str, str] = {}

    def interpret(self, record: Record) -> Iterable[Item] | None:
        kind, data = record["type"], record.get("data") or {}
        match kind:
            case "session.start":
                return [SessionNamed(str(data["sessionId"]))]
            case "system.message" | "user.message":
                return [Said("system" if kind == "system.message" else "user", str(data["content"]))]
            case "assistant.message":
                return self._reply(data)
            case "tool.execution_complete":
                return [self._done(data, str(record["timestamp"]))]
            case "session.compaction_complete":
                return [Compacted()]
            case _:
                return self._kept(kind, record, data)

    def _kept(self, kind: object, record: Record, data: Record) -> list[Item] | None:
        """Keep what is told ahead of what it belongs to."""
        if kind == "session.usage_record" and len(self._usage) < CALLS_MAX:
            self._usage[str(data["usage"]["apiCallId"])] = data["usage"]
        elif kind == "tool.execution_start" and len(self._begun) < CALLS_MAX:
            self._begun[str(data["toolCallId"])] = str(record["timestamp"])
        elif kind not in SILENT:
            return None
        return []

    def _reply(self, data: Record) -> list[Item]:
        items: list[Item] = []
        if data.get("reasoningText"):
            items.append(Thought(str(data["reasoningText"])))
        if data.get("content"):
            items.append(Said("assistant", str(data["content"])))
        asked = data.get("toolRequests") or []
        for one in asked:
            arguments = as_text(one["arguments"])
            items.append(ToolAsked(str(one["toolCallId"]), str(one["name"]), arguments, is_rewritten=True))
        usage = self._usage.pop(str(data.get("apiCallId")), {})
        names = ("inputTokens", "outputTokens", "cacheReadTokens", "reasoningTokens")
        items.append(ReplyDone(word(data.get("apiCallId")), *(number(usage.get(name)) for name in names)))
        return items if asked else [*items, Finished("stop")]

    def _done(self, data: Record, at: str) -> ToolDone:
        call_id, has_failed = str(data["toolCallId"]), not data["success"]
        code = number((data.get("shellExecution") or {}).get("exitCode"))
        begun = self._begun.pop(call_id, None)
        spent = (datetime.fromisoformat(at) - datetime.fromisoformat(begun)).total_seconds() if begun else None
        text = data["error"]["message"] if has_failed else data["result"]["content"]
        return ToolDone(call_id, str(text), code, has_failed or bool(code), spent)


def _output(record: Record) -> Iterable[Item] | None:
    match record["type"]:
        case "session.error":
            return [complaint(f"{record['data'].get('errorType')}: {record['data']['message']}", is_final=True)]
        case "result":
            return [SessionNamed(str(record["sessionId"]))]
        case kind if str(kind).startswith(PRINTED):
            return []
        case _:
            return None


COPILOT: Final = Harness(
    name="copilot_agent",
    packages=(Package("npm", "@github/copilot-linux-x64", "1.0.102"),),
    dialect="chat",
    plan=plan,
    tokens=Tokens(has_prefix=True, arguments="verbatim", sends_thoughts=True),
    withholds=frozenset(TOOLS),
    withholds_all=True,
    system_prompts=frozenset({"append"}),
    grants=frozenset({"model", "mcp"}),
    resumes=True,
    finds_skills=True,
    memory_mib=2048,
)
