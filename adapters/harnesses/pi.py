"""Pi: a small coding agent on Node. Its session file tells every turn, and alone tells of a model's error: it exits with 0 then."""

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
)
from adapters.harnesses.own_config import merged
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

SCRIPT: Final = "node_modules/@earendil-works/pi-coding-agent/dist/cli.js"
TOOLS: Final = ("read", "bash", "edit", "write")
EXITED: Final = re.compile(r"\n\nCommand exited with code (\d+)\s*$")
SILENT: Final = frozenset({"model_change", "thinking_level_change", "label", "session_info", "custom"})


SETTINGS: Final = json.dumps(
    {
        "enableInstallTelemetry": False,
        "quietStartup": True,
        "compaction": {"enabled": False},
        "retry": {"enabled": True, "maxRetries": 2},
    }
)
PROVIDER: Final = "gym_bus"
WHERE_ITS_MODEL_IS: Final = tuple(
    ("providers", PROVIDER, *place, name) for place in ((), ("models", "*")) for name in ("baseUrl", "api", "apiKey")
)


def plan(activation: Activation) -> Plan:
    """See `Harness.plan`."""
    home = f"{activation.home}/.pi"
    kept = [tool for tool in TOOLS if tool not in activation.withheld]
    argv = (
        activation.node, f"{activation.installed}/{SCRIPT}", "--print", "--model", f"{PROVIDER}/{activation.model}",
        *words_for_the_system_prompt(activation),
        *(("--tools", ",".join(kept)) if activation.withheld else ()),
        *(("--session", activation.resume) if activation.resume else ()), *activation.extra_args,
    )  # fmt: skip
    variables = {"PI_CODING_AGENT_DIR": home, "PI_OFFLINE": "1", "PI_TELEMETRY": "0", "PI_SKIP_VERSION_CHECK": "1"}
    servers = {
        server.name: {**entry_of(server), "timeout": round(server.waits_s), "exposure": "direct"}
        for server in activation.mcp
    }
    return Plan(
        argv=argv,
        environment=environment_of(activation, variables),
        traces=(Trace(f"{home}/sessions/*/*{activation.resume or ''}.jsonl", reader),),
        files={
            f"{home}/models.json": models_of(activation),
            f"{home}/settings.json": SETTINGS,
            **({f"{home}/mcp.json": json.dumps({"mcpServers": servers})} if servers else {}),
        },
        stdin=activation.prompt,
    )


def words_for_the_system_prompt(activation: Activation) -> tuple[str, ...]:
    """Return the arguments that add to its system prompt, or take its place."""
    system = activation.system_prompt
    flag = {"append": "--append-system-prompt", "replace": "--system-prompt"}
    return (flag[system.mode], system.text) if system else ()


def models_of(activation: Activation, **more: object) -> str:
    """Return the file that says where its model is; `more` is said of the model beside the usual."""
    model = {
        "id": activation.model,
        "reasoning": False,
        "contextWindow": activation.context_tokens,
        "maxTokens": activation.max_output_tokens,
        **more,
    }
    provider = {
        "baseUrl": f"{activation.base_url}/v1",
        "api": "openai-completions",
        "apiKey": NO_KEY,
        "models": [model],
    }
    return json.dumps(merged({"providers": {PROVIDER: provider}}, activation.config, WHERE_ITS_MODEL_IS))


def reader() -> LineReader:
    """Return a reader for a session file."""
    return LineReader(interpret)


def interpret(record: Record) -> Iterable[Item] | None:
    """Return what a record of a session means."""
    match record["type"]:
        case "session":
            return [SessionNamed(str(record["id"]))]
        case "compaction":
            return [Compacted()]
        case "message":
            return _message(record["message"])
        case kind:
            return [] if kind in SILENT else None


def _message(message: Record) -> Iterable[Item] | None:
    match message["role"]:
        case "system":
            sections = message.get("sections") or {}
            return [Said("system", "\n\n".join(map(str, sections.values())) or text_of(message["content"]))]
        case "user":
            return [Said("user", text_of(message["content"]))]
        case "assistant":
            return _reply(message)
        case "toolResult":
            return [_done(message)]
        case _:
            return None


def _reply(message: Record) -> list[Item]:
    items: list[Item] = []
    for part in message["content"]:
        match part["type"]:
            case "thinking":
                items.append(Thought(str(part["thinking"])))
            case "text":
                items.append(Said("assistant", str(part["text"])))
            case "toolCall":
                items.append(
                    ToolAsked(str(part["id"]), str(part["name"]), as_text(part["arguments"]), is_rewritten=True)
                )
            case _:
                pass
    reason = message.get("stopReason")
    if reason in {"error", "aborted"}:
        return [*items, complaint(f"{reason}: {message.get('errorMessage')}", is_final=True)]
    usage = message.get("usage") or {}
    counts = (number(usage.get(name)) for name in ("input", "output", "cacheRead", "reasoning"))
    items.append(ReplyDone(word(message.get("responseId")), *counts))
    return [*items, Finished(str(reason))] if reason != "toolUse" else items


def _done(message: Record) -> ToolDone:
    text, is_error = text_of(message["content"]), bool(message["isError"])
    code = int(found[1]) if is_error and (found := EXITED.search(text)) else None
    if message["toolName"] == "bash" and not is_error:
        code = 0
    spent = message.get("durationMs")
    return ToolDone(str(message["toolCallId"]), text, code, is_error, spent / 1000 if spent is not None else None)


PI: Final = Harness(
    name="pi_agent",
    packages=(Package("npm", "@earendil-works/pi-coding-agent", "1.6.0"),),
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
    memory_mib=1024,
)
