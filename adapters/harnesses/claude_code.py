"""Claude Code: Anthropic's agent, one binary. What it prints tells every turn; its own bare mode keeps prompt and tools small."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from typing import Final

from adapters.harnesses.base import (
    NO_KEY,
    Activation,
    Harness,
    Package,
    Plan,
    Tokens,
    Trace,
    environment_of,
    no_command,
)
from adapters.harnesses.readers import LineReader, Record, as_text, number, text_of, word
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

BINARY: Final = "node_modules/@anthropic-ai/claude-code-linux-x64/claude"
TOOLS: Final = ("Bash", "Edit", "Read")
EXITED: Final = re.compile(r"(?:Error: )?Exit code (\d+)\n")
MODELS: Final = (
    "ANTHROPIC_MODEL", "ANTHROPIC_SMALL_FAST_MODEL", "ANTHROPIC_DEFAULT_HAIKU_MODEL", "ANTHROPIC_DEFAULT_SONNET_MODEL",
    "ANTHROPIC_DEFAULT_OPUS_MODEL", "CLAUDE_CODE_SUBAGENT_MODEL",
)  # fmt: skip
"""Whatever it wants a model for, it gets the one."""
SWITCHES: Final = {
    "IS_SANDBOX": "1",
    "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
    "DISABLE_TELEMETRY": "1",
    "DISABLE_ERROR_REPORTING": "1",
    "DISABLE_AUTOUPDATER": "1",
    "DISABLE_BUG_COMMAND": "1",
    "CLAUDE_CODE_ENABLE_TELEMETRY": "0",
    "CLAUDE_CODE_ATTRIBUTION_HEADER": "0",
    "ENABLE_TOOL_SEARCH": "false",
    "CLAUDE_CODE_MAX_RETRIES": "2",
    "CLAUDE_CODE_DISABLE_NONSTREAMING_FALLBACK": "1",
}


def plan(activation: Activation) -> Plan:
    """See `Harness.plan`."""
    home = f"{activation.home}/.claude"
    system = activation.system_prompt
    flag = {"append": "--append-system-prompt", "replace": "--system-prompt"}
    servers = {
        server.name: entry_of(server, remote={"type": "http"}, local={"type": "stdio"}) for server in activation.mcp
    }
    kept = [tool for tool in TOOLS if tool not in activation.withheld]
    argv = (
        f"{activation.installed}/{BINARY}", "--print", "--output-format", "stream-json", "--verbose", "--bare",
        "--permission-mode", "bypassPermissions", "--model", activation.model,
        *((flag[system.mode], system.text) if system else ()),
        *(("--tools", ",".join(kept)) if activation.withheld else ()),
        *(("--mcp-config", f"{home}/mcp.json", "--strict-mcp-config") if servers else ()),
        *(("--resume", activation.resume) if activation.resume else ()), *activation.extra_args,
    )  # fmt: skip
    longest_s = max((server.waits_s for server in activation.mcp), default=0.0)
    variables = {
        **SWITCHES,
        **({"MCP_TOOL_TIMEOUT": f"{longest_s * 1000:.0f}"} if servers else {}),
        **dict.fromkeys(MODELS, activation.model),
        "ANTHROPIC_BASE_URL": activation.base_url,
        "ANTHROPIC_AUTH_TOKEN": NO_KEY,
        "CLAUDE_CONFIG_DIR": home,
        "CLAUDE_CODE_MAX_OUTPUT_TOKENS": str(activation.max_output_tokens),
    }
    return Plan(
        argv=argv,
        environment=environment_of(activation, variables),
        traces=(Trace("stdout", reader),),
        files={f"{home}/mcp.json": json.dumps({"mcpServers": servers})} if servers else {},
        stdin=no_command(activation.prompt),
    )


def reader() -> LineReader:
    """Return a reader for what `--output-format stream-json` prints."""
    return LineReader(_Output().interpret)


class _Output:
    """A reply comes in as many records as it has parts; it is over when something else comes. Sub-agents are left out."""

    def __init__(self) -> None:
        self._reply: ReplyDone | None = None
        self._session: str | None = None
        self._commands: set[str] = set()

    def interpret(self, record: Record) -> Iterable[Item] | None:
        if record.get("parent_tool_use_id") is not None:
            return []
        match record["type"]:
            case "assistant":
                return self._assistant(record)
            case "user":
                return [*self._over(), *self._user(record["message"])]
            case "result":
                return [*self._over(), _result(record)]
            case "system":
                return self._system(record)
            case _:
                return None

    def _over(self) -> list[Item]:
        over, self._reply = self._reply, None
        return [over] if over else []

    def _assistant(self, record: Record) -> Iterable[Item]:
        message = record["message"]
        if record.get("is_api_error_message"):
            return [*self._over(), complaint(text_of(message["content"]))]
        usage, reply_id = message.get("usage") or {}, word(message["id"])
        items = self._over() if self._reply and self._reply.reply_id != reply_id else []
        is_known = message.get("stop_reason") is not None
        names = ("input_tokens", "output_tokens", "cache_read_input_tokens")
        counts = (usage.get(name) if is_known else None for name in names)
        self._reply = ReplyDone(reply_id, *map(number, counts))
        for part in message["content"]:
            match part["type"]:
                case "thinking":
                    items.append(Thought(str(part["thinking"])))
                case "redacted_thinking":
                    items.append(Thought(""))
                case "text":
                    items.append(Said("assistant", str(part["text"])))
                case "tool_use":
                    if part["name"] == "Bash":
                        self._commands.add(str(part["id"]))
                    items.append(
                        ToolAsked(str(part["id"]), str(part["name"]), as_text(part["input"]), is_rewritten=True)
                    )
                case _:
                    pass
        return items

    def _user(self, message: Record) -> Iterable[Item]:
        content = message["content"]
        if isinstance(content, str):
            return [Said("user", content)]
        return [
            self._done(part) if part["type"] == "tool_result" else Said("user", text_of([part])) for part in content
        ]

    def _done(self, part: Record) -> ToolDone:
        """Return a result. Of commands only those that failed name their exit code, in the first line."""
        call_id, text, is_error = str(part["tool_use_id"]), text_of(part.get("content")), bool(part.get("is_error"))
        code = None
        if call_id in self._commands:
            self._commands.discard(call_id)
            found = EXITED.match(text) if is_error else None
            code = int(found[1]) if found else None if is_error else 0
        return ToolDone(call_id, text, code, is_error)

    def _system(self, record: Record) -> Iterable[Item] | None:
        match record.get("subtype"):
            case "init" if self._session is None:
                self._session = str(record["session_id"])
                return [SessionNamed(self._session)]
            case "compact_boundary":
                return [*self._over(), Compacted()]
            case "api_retry":
                return [complaint(f"{record.get('error_status')}: {record.get('error')}")]
            case "init" | "ui_invalidate" | "thinking_tokens" | "status":
                return []
            case _:
                return None


def _result(record: Record) -> Item:
    if record["is_error"]:
        words = (
            f"{record.get('subtype')}: {record.get('api_error_type')}: {record.get('result') or record.get('errors')}"
        )
        return complaint(words, is_final=True)
    return Finished(str(record["subtype"]))


CLAUDE_CODE: Final = Harness(
    name="claude_code_agent",
    packages=(Package("npm", "@anthropic-ai/claude-code", "2.1.332"),),
    dialect="messages",
    plan=plan,
    tokens=Tokens(has_prefix=True, arguments="rewritten", sends_thoughts=True),
    system_prompts=frozenset({"append", "replace"}),
    withholds=frozenset(TOOLS),
    withholds_all=True,
    grants=frozenset({"model", "mcp"}),
    resumes=True,
    memory_mib=1024,
)
