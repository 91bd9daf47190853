"""Codex CLI: OpenAI's agent, one static binary. Its session file tells every turn; failures of a run are told on its output only."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

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
from adapters.harnesses.own_config import leaves, merged
from adapters.harnesses.readers import LineReader, Record, as_text, number, text_of, word
from adapters.harnesses.servers import LocalServer, Server
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

BINARY: Final = "node_modules/@openai/codex-linux-x64/vendor/x86_64-unknown-linux-musl/bin/codex"
WITHHOLDABLE: Final = {
    "exec_command": "shell_tool",
    "write_stdin": "shell_tool",
    "get_goal": "goals",
    "create_goal": "goals",
}
"""Tools, and the feature without which they are not offered."""
WHERE_ITS_MODEL_IS: Final = (("model",), ("model_provider",), ("model_providers", "gym_bus"), ("profile",))
WORDS: Final = ("developer_instructions", "model_instructions_file")
"""Where a run's and a task's words for the system prompt are."""
INTEGERS: Final = range(-(2**63), 2**63)
PLAIN_KEY: Final = re.compile(r"[A-Za-z0-9_-]+")
SILENT: Final = frozenset({"turn_context", "world_state"})
SILENT_EVENTS: Final = frozenset(
    {"task_started", "token_count", "thread_settings_applied", "user_message", "agent_message", "agent_reasoning"}
)
RAN: Final = frozenset({"CommandExecution", "McpToolCall"})
CALLS_MAX: Final = 1024
"""Under way at once."""
ROLES: Final = frozenset({"system", "developer", "user", "assistant"})


def plan(activation: Activation) -> Plan:
    """See `Harness.plan`."""
    home = f"{activation.home}/.codex"
    disabled = sorted({WITHHOLDABLE[tool] for tool in activation.withheld})
    replaced = activation.system_prompt and activation.system_prompt.mode == "replace"
    words = activation.system_prompt.text if activation.system_prompt else ""
    files = {f"{home}/config.toml": _config(activation, home)}
    if replaced:
        files[f"{home}/instructions.md"] = words
    argv = (
        f"{activation.installed}/{BINARY}", "exec", "--json", "--skip-git-repo-check", "-C", activation.workspace,
        *(part for feature in disabled for part in ("--disable", feature)), *_added(activation), *activation.extra_args,
        *(("resume", activation.resume) if activation.resume else ()), "-",
    )  # fmt: skip
    sessions = f"{home}/sessions/*/*/*/rollout-*{activation.resume or ''}.jsonl"
    return Plan(
        argv=argv,
        environment=environment_of(activation, {"CODEX_HOME": home, "GYM_BUS_KEY": NO_KEY}),
        traces=(Trace(sessions, session_reader), Trace("stdout", output_reader)),
        files=files,
        stdin=activation.prompt,
    )


def _config(activation: Activation, home: str) -> str:
    """Return config.toml."""
    lines = [
        f"model = {_quoted(activation.model)}",
        'model_provider = "gym_bus"',
        f"model_context_window = {activation.context_tokens}",
        'approval_policy = "never"',
        'sandbox_mode = "danger-full-access"',  # the machine is the sandbox
        "check_for_update_on_startup = false",
        'web_search = "disabled"',
    ]
    if activation.system_prompt and activation.system_prompt.mode == "replace":
        lines.append(f"model_instructions_file = {_quoted(f'{home}/instructions.md')}")
    elif activation.system_prompt:
        lines.append(f"developer_instructions = {_quoted(activation.system_prompt.text)}")
    lines += [
        "[model_providers.gym_bus]",
        'name = "gym-bus"',
        f"base_url = {_quoted(f'{activation.base_url}/v1')}",
        'env_key = "GYM_BUS_KEY"',
        'wire_api = "responses"',
        "request_max_retries = 6",
        "stream_max_retries = 6",
        "stream_idle_timeout_ms = 600000",
        '[history]\npersistence = "none"',
        "[analytics]\nenabled = false",
        "[agents]\nenabled = false",
        "[features]\nplugins = false\napps = false",
    ]
    for server in activation.mcp:
        lines += _server(server)
    return "\n".join(lines) + "\n"


def _added(activation: Activation) -> Iterable[str]:
    """Yield the arguments that add to config.toml; raises `Unsupported` for what they cannot."""
    kept = [*WHERE_ITS_MODEL_IS, *(("mcp_servers", server.name) for server in activation.mcp)]
    kept += [("features", WITHHOLDABLE[tool]) for tool in activation.withheld]
    kept += [(name,) for name in WORDS if activation.system_prompt]
    merged({}, activation.config, kept)
    for path, value in leaves(activation.config):
        if bad := next((key for key in path if not PLAIN_KEY.fullmatch(key)), None):
            raise Unsupported(
                f"codex_agent cannot be given extra_config with the key {bad!r}: letters, digits, `_` and `-`"
            )
        yield from ("-c", f"{'.'.join(path)}={_value(value)}")


def _value(value: Any) -> str:
    """Return TOML for a JSON value; raises `Unsupported` for null, and longer numbers, which it has not."""
    match value:
        case int() if value not in INTEGERS:
            msg = f"codex_agent cannot be given {value} in extra_config: its configuration has whole numbers of 64 bits"
            raise Unsupported(msg)
        case bool() | int() | float():
            return json.dumps(value)
        case str():
            return _quoted(value)
        case list():
            return f"[{', '.join(map(_value, value))}]"
        case dict():
            return f"{{{', '.join(f'{_quoted(key)} = {_value(one)}' for key, one in value.items())}}}"
        case _:
            msg = "codex_agent cannot be given null in extra_config: its configuration has none"
            raise Unsupported(msg)


def _server(server: Server) -> list[str]:
    lines = [
        f"[mcp_servers.{server.name}]",
        'default_tools_approval_mode = "approve"',
        f"tool_timeout_sec = {server.waits_s:g}",
        f"required = {'true' if server.required else 'false'}",
    ]
    if isinstance(server, LocalServer):
        lines += [f"command = {_quoted(server.command)}", f"args = [{', '.join(map(_quoted, server.args))}]"]
        return [*lines, f"[mcp_servers.{server.name}.env]", *_pairs(server.variables)]
    return [
        *lines,
        f"url = {_quoted(server.url)}",
        f"[mcp_servers.{server.name}.http_headers]",
        *_pairs(server.headers),
    ]


def _pairs(values: Mapping[str, str]) -> list[str]:
    return [f"{_quoted(name)} = {_quoted(value)}" for name, value in values.items()]


def _quoted(text: str) -> str:
    """Return a TOML string. It is written as JSON's, but without escapes for half a character, and with one for DEL."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def session_reader() -> LineReader:
    """Return a reader for `rollout-*.jsonl`."""
    return LineReader(_Session().interpret)


def output_reader() -> LineReader:
    """Return a reader for what `exec --json` prints: the session's id at once, and failures."""
    return LineReader(_output)


class _Session:
    """Keeps how calls ended until the model is told: the record of the one comes before that of the other."""

    def __init__(self) -> None:
        self._ended: dict[str, Record] = {}

    def interpret(self, record: Record) -> Iterable[Item] | None:
        kind, payload = record["type"], record["payload"]
        match kind:
            case "session_meta":
                return [SessionNamed(str(payload["id"]))]
            case "response_item":
                return self._item(payload)
            case "token_usage_record":
                return [_reply(payload)]
            case "compacted":
                return [Compacted()]
            case "event_msg":
                return self._event(payload)
            case _:
                return [] if kind in SILENT else None

    def _item(self, payload: Record) -> Iterable[Item] | None:
        match payload["type"]:
            case "message" if payload["role"] in ROLES:
                return [Said(payload["role"], text_of(payload["content"]))]
            case "reasoning":
                return [Thought(text_of(payload.get("summary")) or text_of(payload.get("content")))]
            case "function_call":
                return [ToolAsked(str(payload["call_id"]), str(payload["name"]), as_text(payload["arguments"]))]
            case "custom_tool_call":
                return [ToolAsked(str(payload["call_id"]), str(payload["name"]), as_text(payload["input"]))]
            case "function_call_output" | "custom_tool_call_output":
                return [self._done(payload)]
            case _:
                return None

    def _done(self, payload: Record) -> ToolDone:
        call_id, output = str(payload["call_id"]), payload["output"]
        ended = self._ended.pop(call_id, {})
        text = text_of(output) if isinstance(output, str | list) else as_text(output)
        code, spent = ended.get("exit_code"), ended.get("duration")
        return ToolDone(
            call_id,
            text,
            exit_code=code if isinstance(code, int) else None,
            is_error=ended["status"] != "completed" if "status" in ended else None,
            duration_s=spent["secs"] + spent["nanos"] / 1e9 if spent else None,
        )

    def _event(self, payload: Record) -> Iterable[Item] | None:
        match payload["type"]:
            case "item_completed":
                item = payload["item"]
                if item["type"] in RAN and len(self._ended) < CALLS_MAX:
                    self._ended[str(item["id"])] = item
                return []
            case "task_complete":
                return [Finished("complete")]
            case "turn_aborted":
                return [complaint(f"aborted: {payload.get('reason')}", is_final=True)]
            case "error" | "stream_error":
                return [complaint(str(payload["message"]))]
            case "context_compacted":
                return [Compacted()]
            case event:
                return [] if event in SILENT_EVENTS else None


def _reply(payload: Record) -> ReplyDone:
    usage: dict[str, Any] = payload["usage"]
    return ReplyDone(
        word(payload.get("response_id")),
        number(usage.get("input_tokens")),
        number(usage.get("output_tokens")),
        number(usage.get("cached_input_tokens")),
        number(usage.get("reasoning_output_tokens")),
    )


def _output(record: Record) -> Iterable[Item] | None:
    match record["type"]:
        case "thread.started":
            return [SessionNamed(str(record["thread_id"]))]
        case "turn.failed":
            return [complaint(str(record["error"]["message"]), is_final=True)]
        case "error":
            return [complaint(str(record["message"]))]
        case "turn.started" | "turn.completed" | "item.started" | "item.updated" | "item.completed":
            return []
        case _:
            return None


CODEX: Final = Harness(
    name="codex_agent",
    packages=(Package("npm", "@openai/codex", "0.171.0"),),
    dialect="responses",
    plan=plan,
    tokens=Tokens(has_prefix=True, arguments="verbatim", sends_thoughts=True),
    system_prompts=frozenset({"append", "replace"}),
    withholds=frozenset(WITHHOLDABLE),
    grants=frozenset({"model", "mcp"}),
    resumes=True,
    finds_skills=True,
    memory_mib=512,
)
