"""Qwen Code: a large agent on Node. What it prints tells every turn."""

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
from adapters.harnesses.readers import LineReader, Record, as_text, number, text_of
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

SCRIPT: Final = "node_modules/@qwen-code/qwen-code/cli.js"
TOOLS: Final = (
    "agent", "cron_create", "cron_delete", "cron_list", "edit", "enter_worktree", "exit_worktree", "get_goal", "glob", "grep_search",
    "list_agents", "loop_wakeup", "monitor", "notebook_edit", "read_file", "read_mcp_resource", "record_artifact", "report_findings",
    "run_shell_command", "send_message", "skill", "task_stop", "update_goal", "web_fetch", "write_file", "zoom_image",
)  # fmt: skip
SILENT: Final = frozenset({"system", "stream_event"})
EXITED: Final = re.compile(r"\nExit Code: (\d+)\nSignal: [^\n]*\nProcess Group PGID: [^\n]*$")


def plan(activation: Activation) -> Plan:
    """See `Harness.plan`."""
    home = f"{activation.home}/.qwen"
    system = activation.system_prompt
    flag = {"append": "--append-system-prompt", "replace": "--system-prompt"}
    argv = (
        activation.node, f"{activation.installed}/{SCRIPT}", "--auth-type", "openai", "--yolo",
        "--output-format", "stream-json", *((f"{flag[system.mode]}={system.text}",) if system else ()),
        *(f"--exclude-tools={tool}" for tool in activation.withheld),
        *((f"--resume={activation.resume}",) if activation.resume else ()), *activation.extra_args,
    )  # fmt: skip
    variables = {
        "OPENAI_API_KEY": NO_KEY,
        "OPENAI_BASE_URL": f"{activation.base_url}/v1",
        "OPENAI_MODEL": activation.model,
        "QWEN_TELEMETRY_ENABLED": "false",
        "QWEN_CODE_NO_RELAUNCH": "true",
    }
    return Plan(
        argv=argv,
        environment=environment_of(activation, variables),
        traces=(Trace("stdout", reader),),
        files={f"{home}/settings.json": json.dumps(_settings(activation))},
        stdin=no_command(activation.prompt),
    )


def _settings(activation: Activation) -> Record:
    generation = {
        "contextWindowSize": activation.context_tokens,
        "samplingParams": {"max_tokens": activation.max_output_tokens},
    }
    settings: Record = {
        "general": {"enableAutoUpdate": False, "disableAutoUpdate": True, "checkpointing": {"enabled": False}},
        "privacy": {"usageStatisticsEnabled": False},
        "telemetry": {"enabled": False},
        "security": {"auth": {"selectedType": "openai"}, "folderTrust": {"enabled": False}},
        "memory": {"enableManagedAutoMemory": False, "enableManagedAutoDream": False, "enableAutoSkill": False},
        "tools": {"toolSearch": {"enabled": False}},
        "model": {"name": activation.model, "generationConfig": generation},
    }
    if activation.mcp:
        settings["mcpServers"] = {
            server.name: entry_of(server, url="httpUrl", remote={"trust": True}, local={"trust": True})
            for server in activation.mcp
        }
    return settings


def reader() -> LineReader:
    """Return a reader for what `--output-format stream-json` prints."""
    return LineReader(_Output().interpret)


class _Output:
    """A reply is told part by part; with its last part comes its usage, or something else comes next."""

    def __init__(self) -> None:
        self._is_open = False

    def interpret(self, record: Record) -> Iterable[Item] | None:
        match record["type"]:
            case "assistant" | "user" if record.get("parent_tool_use_id") is not None:
                return []  # a sub-agent's
            case "system" if record["subtype"] == "init":
                return [SessionNamed(str(record["session_id"]))]
            case "assistant":
                return self._reply(record["message"])
            case "user":
                content = record["message"]["content"]
                return [*self._over(), *(_done(part) for part in content if part["type"] == "tool_result")]
            case "result":
                return [*(() if record["is_error"] else self._over()), _end(record)]
            case kind:
                return [] if kind in SILENT else None

    def _reply(self, message: Record) -> list[Item]:
        items = [item for part in message["content"] if (item := _part(part)) is not None]
        usage = message.get("usage") or {}
        self._is_open = "total_tokens" not in usage
        if self._is_open:
            return items
        names = ("input_tokens", "output_tokens", "cache_read_input_tokens")
        return [*items, ReplyDone(None, *(number(usage.get(name)) for name in names))]

    def _over(self) -> list[Item]:
        was_open, self._is_open = self._is_open, False
        return [ReplyDone()] if was_open else []


def _part(part: Record) -> Item | None:
    match part["type"]:
        case "thinking":
            return Thought(str(part["thinking"]))
        case "text":
            return Said("assistant", str(part["text"]))
        case "tool_use":
            return ToolAsked(str(part["id"]), str(part["name"]), as_text(part["input"]), is_rewritten=True)
        case _:
            return None


def _done(part: Record) -> ToolDone:
    """Return a result; the exit code of a command is told with its words, where it is not 0."""
    text, is_error = text_of(part["content"]), bool(part["is_error"])
    found = EXITED.search(text)
    code = int(found[1]) if is_error and found else None
    return ToolDone(str(part["tool_use_id"]), text, 0 if not is_error else code, is_error)


def _end(record: Record) -> Item:
    if not record["is_error"]:
        return Finished(str(record["subtype"]))
    error = record.get("error") or {}
    return complaint(f"{record['subtype']}: {error.get('message', '')}", is_final=True)


QWEN: Final = Harness(
    name="qwen_code",
    packages=(Package("npm", "@qwen-code/qwen-code", "0.24.4"),),
    dialect="chat",
    plan=plan,
    tokens=Tokens(has_prefix=True, arguments="rewritten", sends_thoughts=True),
    needs_node=True,
    system_prompts=frozenset({"append", "replace"}),
    withholds=frozenset(TOOLS),
    withholds_all=True,
    grants=frozenset({"model", "mcp"}),
    resumes=True,
    finds_skills=True,
    memory_mib=4096,
)
