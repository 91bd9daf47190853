"""Gemini CLI: a large agent on Node that speaks the Gemini API. Its session file tells every turn; its output, why it gave up."""

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
    Unsupported,
    environment_of,
    no_command,
)
from adapters.harnesses.launching.supervisor import FIRST
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

SCRIPT: Final = "node_modules/@google/gemini-cli/bundle/gemini.js"
TOOLS: Final = (
    "activate_skill", "enter_plan_mode", "glob", "grep_search", "invoke_agent", "list_background_processes", "list_directory",
    "read_background_output", "read_file", "replace", "run_shell_command", "update_topic", "web_fetch", "write_file",
)  # fmt: skip
SESSIONS: Final = "tmp/*/chats/session-*"
ONLY_AT_GOOGLE: Final = "google_web_search"
TRIES: Final = 6
TAKEN_FOR_ALL_TOKENS: Final = 1_048_576
"""What it believes of every model's context; a part of it says when to compact."""
COMPACTS_AT: Final = 0.8
NAMED_PART: Final = 8
"""How many characters of a session's id its file's name holds."""
IMPORT: Final = re.compile(r"(?:^|[ \t\r\n])@[./A-Za-z]")
PLACEHOLDER: Final = re.compile(r"\$\{(?:AgentSkills|SubAgents|AvailableTools|\w+_ToolName)\}")
SILENT: Final = frozenset({"info", "warning"})
SILENT_OUTPUT: Final = frozenset({"message", "tool_use", "tool_result"})
EXITED: Final = re.compile(
    r"\nExit Code: (\d+)(?:\nSignal: [^\n]*)?(?:\nBackground PIDs: [^\n]*)?\nProcess Group PGID: \d+(?:\n</untrusted_context>)?$"
)


def plan(activation: Activation) -> Plan:
    """See `Harness.plan`."""
    home = f"{activation.home}/.gemini"
    argv = (
        activation.node, f"{activation.installed}/{SCRIPT}", "--approval-mode", "yolo", "--output-format", "stream-json",
        *((f"--resume={activation.resume}",) if activation.resume else ()), *activation.extra_args,
    )  # fmt: skip
    variables = {
        "GEMINI_API_KEY": NO_KEY,
        "GOOGLE_GEMINI_BASE_URL": activation.base_url,
        "GEMINI_TELEMETRY_ENABLED": "false",
        "GEMINI_CLI_TRUST_WORKSPACE": "true",
        "GEMINI_CLI_NO_RELAUNCH": "true",
    }
    files = {f"{home}/settings.json": json.dumps(_settings(activation))}
    if system := activation.system_prompt:
        _check_literal(system.text, is_appended=system.mode == "append")
        place = f"{home}/{'GEMINI.md' if system.mode == 'append' else 'system.md'}"
        files[place] = system.text
        variables |= {"GEMINI_SYSTEM_MD": place} if system.mode == "replace" else {}
    # a session that goes on begins another file for nothing, and writes into its own
    sessions = f"{FIRST if activation.resume else ''}{home}/{SESSIONS}{(activation.resume or '')[:NAMED_PART]}.jsonl"
    return Plan(
        argv=argv,
        environment=environment_of(activation, variables),
        traces=(Trace(sessions, SessionReader), Trace("stdout", output_reader)),
        files=files,
        stdin=no_command(activation.prompt),
    )


def _check_literal(words: str, *, is_appended: bool) -> None:
    """Raise `Unsupported` for words that the model would not see as they are."""
    found = (IMPORT if is_appended else PLACEHOLDER).search(words)
    if found is not None:
        where = "append to" if is_appended else "replace"
        how = "a file to be read" if is_appended else "something to be put in"
        raise Unsupported(
            f"gemini_cli cannot {where} its system prompt with {found[0].strip()!r}: it takes that for {how}"
        )


def _settings(activation: Activation) -> Record:
    generation = {"maxOutputTokens": activation.max_output_tokens, "thinkingConfig": {"includeThoughts": True}}
    model = {"modelConfig": {"model": activation.model, "generateContentConfig": generation}}
    settings: Record = {
        "general": {
            "enableAutoUpdate": False,
            "enableAutoUpdateNotification": False,
            "checkpointing": {"enabled": False},
            "maxAttempts": TRIES,
        },
        "privacy": {"usageStatisticsEnabled": False},
        "telemetry": {"enabled": False},
        "security": {"auth": {"selectedType": "gemini-api-key"}, "folderTrust": {"enabled": False}},
        "model": {
            "name": activation.model,
            "compressionThreshold": round(COMPACTS_AT * activation.context_tokens / TAKEN_FOR_ALL_TOKENS, 6),
        },
        "modelConfigs": {"customAliases": {activation.model: model}},
        "experimental": {"useModelRouter": False},
        "tools": {"exclude": [ONLY_AT_GOOGLE, *activation.withheld], "useRipgrep": False},
    }
    if activation.mcp:
        settings["mcpServers"] = {
            server.name: entry_of(server, url="httpUrl", remote=more, local=more)
            for server in activation.mcp
            for more in ({"timeout": round(server.waits_s * 1000), "trust": True},)
        }
    return settings


class SessionReader(LineReader):
    """Reads a session file. A reply is written when it is over, and once more when what it called has come back."""

    def __init__(self) -> None:
        """Begin before the first record."""
        super().__init__(self._interpreted)
        self._reply: str | None = None
        self._calls: set[str] = set()
        self._open: ReplyDone | None = None

    def end(self) -> list[Item]:
        """See `Reader`; the last reply is over as well."""
        return [*super().end(), *self._over()]

    def _interpreted(self, record: Record) -> Iterable[Item] | None:
        kind = record.get("type")
        if kind is None:
            named = record.get("sessionId")
            return [SessionNamed(named)] if isinstance(named, str) else _silence(record)
        match kind:
            case "user":
                return [*self._over(), *(Said("user", text) for text in _texts(record["content"]))]
            case "gemini":
                return self._replied(record)
            case "error":
                return [complaint("".join(_texts(record["content"])))]
            case _:
                return [] if kind in SILENT else None

    def _replied(self, record: Record) -> list[Item]:
        items: list[Item] = []
        if record["id"] != self._reply:
            items += self._over()
            self._reply, self._calls, self._open = record["id"], set(), ReplyDone()
            if thought := " ".join(_thought(told) for told in record.get("thoughts") or ()):
                items.append(Thought(thought))
            items += [Said("assistant", text) for text in _texts(record["content"])]
        if self._open is not None and (tokens := record.get("tokens")):
            self._open = _done(tokens)
        calls = [call for call in record.get("toolCalls") or () if call["id"] not in self._calls]
        self._calls |= {call["id"] for call in calls}
        items += [ToolAsked(_id(call), str(call["name"]), as_text(call["args"]), is_rewritten=True) for call in calls]
        return [*items, *(self._over() if calls else ()), *(_result(call) for call in calls)]

    def _over(self) -> list[Item]:
        done, self._open = self._open, None
        return [] if done is None else [done]


def _silence(record: Record) -> list[Item] | None:
    """Return nothing for a record about other records; None for one that nobody knows."""
    return [] if any(name.startswith("$") for name in record) else None


def _thought(told: Record) -> str:
    subject, words = str(told["subject"]), str(told["description"])
    return f"**{subject}** {words}".strip() if subject else words


def _texts(content: object) -> list[str]:
    """Return the words of a record: a string, or parts of which some are words."""
    parts = [content] if isinstance(content, str) else content if isinstance(content, list) else []
    found = [part if isinstance(part, str) else part.get("text") for part in parts]
    return [text for text in found if isinstance(text, str) and text]


def _done(tokens: Record) -> ReplyDone:
    """Return a reply's end with what it cost; thoughts are counted beside the answer."""
    read, said, cached, thoughts = (number(tokens.get(name)) for name in ("input", "output", "cached", "thoughts"))
    return ReplyDone(None, read, None if said is None else said + (thoughts or 0), cached, thoughts)


def _id(call: Record) -> str:
    """Return a call's id as the model's server gave it: the tool's name is written before it."""
    return str(call["id"]).removeprefix(f"{call['name']}__")


def _result(call: Record) -> ToolDone:
    """Return a result; the exit code of a command is told with its words, where it is not 0."""
    text = "".join(_told(part) for part in call.get("result") or ())
    found = EXITED.search(text)
    is_error = call["status"] != "success" or found is not None
    return ToolDone(_id(call), text, int(found[1]) if found else None if is_error else 0, is_error)


def _told(part: Record | str) -> str:
    """Return what the model was told by a part of a result."""
    if isinstance(part, str):
        return part
    response = (part.get("functionResponse") or {}).get("response") or {}
    words = response.get("output", response.get("error"))
    return words if isinstance(words, str) else as_text(response) if response else str(part.get("text") or "")


def output_reader() -> LineReader:
    """Return a reader for what `--output-format stream-json` prints."""
    return LineReader(_Output().interpret)


class _Output:
    """Tells why it gave up; what else is printed stands in the session file."""

    def __init__(self) -> None:
        self._last = ""

    def interpret(self, record: Record) -> Iterable[Item] | None:
        match record["type"]:
            case "init":
                return [SessionNamed(str(record["session_id"]))]
            case "error":
                self._last = str(record["message"])
                return [complaint(self._last)]
            case "result" if record["status"] == "success":
                return [Finished("success")]
            case "result":
                error = record.get("error") or {}
                return [complaint(f"{error.get('type', '')}: {error.get('message', self._last)}", is_final=True)]
            case kind:
                return [] if kind in SILENT_OUTPUT else None


GEMINI: Final = Harness(
    name="gemini_cli",
    packages=(Package("npm", "@google/gemini-cli", "0.61.0"),),
    dialect="gemini",
    plan=plan,
    tokens=Tokens(has_prefix=True, arguments="rewritten", sends_thoughts=True),
    needs_node=True,
    system_prompts=frozenset({"append", "replace"}),
    withholds=frozenset(TOOLS),
    withholds_all=True,
    grants=frozenset({"model", "mcp"}),
    resumes=True,
    memory_mib=4096,
)
