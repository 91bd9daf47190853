"""Cline: an agent with a team of tools, one binary. What it prints tells every turn."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from typing import Final

from adapters.harnesses.base import NO_KEY, Activation, Harness, Package, Plan, Tokens, Trace, environment_of
from adapters.harnesses.readers import LineReader, Record, as_text, number, text_of
from adapters.harnesses.servers import entry_of
from adapters.harnesses.trajectory import (
    Finished,
    Item,
    ReplyDone,
    Said,
    Thought,
    ToolAsked,
    ToolDone,
    complaint,
)

BINARY: Final = "node_modules/@cline/cli-linux-x64/bin/cline"
PROVIDER: Final = "openai-compatible"
EXITED: Final = re.compile(r"Command exited with code (\d+)")
SILENT: Final = frozenset({"hook_event", "run_start"})
SILENT_EVENTS: Final = frozenset({"content_update", "done", "iteration_start"})
WITH_PROMPT: Final = 'prompt=$GYM_BUS_PROMPT; unset GYM_BUS_PROMPT; exec "$@" -- "$prompt"'
"""It takes a prompt as an argument only, which may look like an option."""


def plan(activation: Activation) -> Plan:
    """See `Harness.plan`."""
    home = f"{activation.home}/.cline/data"
    system = activation.system_prompt
    argv = (
        "/bin/sh", "-c", WITH_PROMPT, "cline", f"{activation.installed}/{BINARY}", "--json", "--auto-approve", "true",
        "-P", PROVIDER, "-m", activation.model, "--data-dir", home, "-c", activation.workspace, "--compaction", "off",
        *((f"--system={system.text}",) if system else ()), *activation.extra_args,
    )  # fmt: skip
    variables = {
        "GYM_BUS_PROMPT": _no_word(activation.prompt),
        "CLINE_DATA_DIR": home,
        "CLINE_SANDBOX": "1",
        "CLINE_SANDBOX_DATA_DIR": home,
        "CLINE_SESSION_BACKEND_MODE": "local",
        "CLINE_NO_AUTO_UPDATE": "1",
    }
    provider = {
        "provider": PROVIDER,
        "apiKey": NO_KEY,
        "model": activation.model,
        "baseUrl": f"{activation.base_url}/v1",
    }
    entry = {"settings": provider, "updatedAt": "2026-01-01T00:00:00.000Z", "tokenSource": "manual"}
    providers = {"version": 1, "lastUsedProvider": PROVIDER, "modes": {}, "providers": {PROVIDER: entry}}
    settings = {"telemetryOptOut": True, "autoUpdateEnabled": False, "compactionEnabled": False}
    files = {
        f"{home}/settings/providers.json": json.dumps(providers),
        f"{home}/settings/global-settings.json": json.dumps(settings),
    }
    if activation.mcp:
        servers = {
            server.name: entry_of(server, remote={"type": "streamableHttp"}, local={"type": "stdio"})
            for server in activation.mcp
        }
        files[f"{home}/settings/cline_mcp_settings.json"] = json.dumps({"mcpServers": servers})
    return Plan(
        argv=argv,
        environment=environment_of(activation, variables),
        traces=(Trace("stdout", reader),),
        files=files,
    )


def _no_word(prompt: str) -> str:
    """Return a prompt that is not taken for a command's name, as a single word is."""
    return prompt if any(map(str.isspace, prompt)) else f"{prompt}\n"


def reader() -> LineReader:
    """Return a reader for what `--json` prints."""
    return LineReader(_Output().interpret)


class _Output:
    """A reply's usage is told before its calls, and its end after their results."""

    def __init__(self) -> None:
        self._usage: Record = {}

    def interpret(self, record: Record) -> Iterable[Item] | None:
        match record["type"]:
            case "agent_event":
                return self._event(record["event"])
            case "run_result":
                return [_end(record)]
            case kind:
                return [] if kind in SILENT else None

    def _event(self, event: Record) -> Iterable[Item] | None:
        match event["type"]:
            case "usage":
                self._usage = event
                return []
            case "content_start" | "content_end" as kind:
                return _content(event, is_end=kind == "content_end")
            case "iteration_end":
                usage, self._usage = self._usage, {}
                names = ("inputTokens", "outputTokens", "cacheReadTokens")
                return [ReplyDone(None, *(number(usage.get(name)) for name in names))]
            case "error":
                return [complaint(str(event["error"]["message"]))]
            case kind:
                return [] if kind in SILENT_EVENTS else None


def _end(record: Record) -> Item:
    reason = str(record["finishReason"])
    return complaint(f"{reason}: {record['text']}", is_final=True) if reason == "error" else Finished(reason)


def _content(event: Record, *, is_end: bool) -> list[Item] | None:
    match event["contentType"], is_end:
        case "text", True:
            return [Said("assistant", str(event["text"]))]
        case "reasoning", True:
            return [Thought(str(event["reasoning"]))]
        case "tool", False:
            arguments = as_text(event["input"])
            return [ToolAsked(str(event["toolCallId"]), str(event["toolName"]), arguments, is_rewritten=True)]
        case "tool", True:
            return [_done(event)]
        case _:
            return [] if event["contentType"] in {"text", "reasoning"} else None


def _done(event: Record) -> ToolDone:
    """Return a result: of commands, as they are told one by one, or of another tool."""
    output, spent = event.get("output"), number(event.get("durationMs"))
    told = [one for one in output if isinstance(one, dict)] if isinstance(output, list) else []
    commands = [one for one in told if "success" in one]
    errors = [str(one.get("error")) for one in commands if not one["success"]]
    text = "\n".join(as_text(one.get("result", "")) for one in commands) or text_of(output) or as_text(output)
    is_error = bool(errors) or bool(event.get("error"))
    code = int(found[1]) if errors and (found := EXITED.fullmatch(errors[0])) else None
    if event["toolName"] == "run_commands" and not is_error:
        code = 0
    return ToolDone(str(event["toolCallId"]), text, code, is_error, spent / 1000 if spent is not None else None)


CLINE: Final = Harness(
    name="cline_agent",
    packages=(Package("npm", "@cline/cli-linux-x64", "3.0.65"),),
    dialect="chat",
    plan=plan,
    tokens=Tokens(has_prefix=True, arguments="rewritten", sends_thoughts=True),
    system_prompts=frozenset({"replace"}),
    grants=frozenset({"model", "mcp"}),
    prompt_by="argument",
    finds_skills=True,
    memory_mib=1024,
)
