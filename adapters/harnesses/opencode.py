"""OpenCode: one binary with a database. What it prints tells every turn but the model's thoughts. It starts slowly: 5 to 12 s."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
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
from adapters.harnesses.literal import without_references
from adapters.harnesses.own_config import merged
from adapters.harnesses.readers import LineReader, Record, as_text, number
from adapters.harnesses.servers import LocalServer, Server, entry_of, normalised
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

TOOLS: Final = ("bash", "edit", "glob", "grep", "read", "skill", "task", "todowrite", "webfetch", "write")
WHERE_ITS_MODEL_IS: Final = (
    ("model",), ("small_model",), ("enabled_providers",), ("disabled_providers",),
    ("provider", "gym_bus", "npm"), ("provider", "gym_bus", "options"), ("provider", "gym_bus", "api"),
    ("provider", "gym_bus", "models", "*", "provider"), ("agent", "*", "model"), ("mode", "*", "model"),
)  # fmt: skip
RULES: Final = ("permission", "tools")
"""Where it is said which tools the model is offered: for all, and for each agent."""
SWITCHES: Final = (
    "DISABLE_MODELS_FETCH", "DISABLE_AUTOUPDATE", "DISABLE_LSP_DOWNLOAD", "DISABLE_DEFAULT_PLUGINS", "DISABLE_SHARE",
    "DISABLE_AUTOCOMPACT", "DISABLE_PRUNE",
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Fork:
    """OpenCode, or what was made of it: its program, the prefix of its variables, its configuration's file and first agent."""

    binary: str
    prefix: str
    file: str
    agent: str
    flags: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)

    def plan(self, activation: Activation) -> Plan:
        """See `Harness.plan`. It has a title, or the model would be asked for one first."""
        home = activation.home
        config = f"{home}/{self.file}"
        variables = {f"{self.prefix}_{name}": "1" for name in SWITCHES}
        variables |= {f"XDG_{kind}_HOME": f"{home}/{kind.lower()}" for kind in ("DATA", "CONFIG", "STATE", "CACHE")}
        variables |= {**self.environment, f"{self.prefix}_CONFIG": config}
        argv = (
            f"{activation.installed}/{self.binary}", "run", *self.flags, "--pure", "--format", "json",
            "--model", f"gym_bus/{activation.model}", "--title", "task",
            *(("--session", activation.resume) if activation.resume else ()), *activation.extra_args,
        )  # fmt: skip
        return Plan(
            argv=argv,
            environment=environment_of(activation, variables),
            traces=(Trace("stdout", reader),),
            files={config: without_references(_config(activation, self.agent))},
            stdin=activation.prompt,
        )


def _config(activation: Activation, agent: str) -> Record:
    limit = {"context": activation.context_tokens, "output": activation.max_output_tokens}
    provider = {
        "npm": "@ai-sdk/openai-compatible",  # it has this one built in
        "name": "gym-bus",
        "options": {"baseURL": f"{activation.base_url}/v1", "apiKey": NO_KEY, "timeout": False},
        "models": {activation.model: {"tool_call": True, "reasoning": False, "limit": limit}},
    }
    config: Record = {
        "permission": {"*": "allow", **dict.fromkeys(activation.withheld, "deny")},
        "share": "disabled",
        "autoupdate": False,
        "snapshot": False,
        "lsp": False,
        "formatter": False,
        "small_model": f"gym_bus/{activation.model}",
        "enabled_providers": ["gym_bus"],
        "provider": {"gym_bus": provider},
    }
    if activation.system_prompt:
        config["agent"] = {agent: {"prompt": activation.system_prompt.text}}
    if activation.mcp:
        config["mcp"] = {server.name: _server(server) for server in activation.mcp}
    return merged(config, activation.config, _kept(activation, agent))


def _kept(activation: Activation, agent: str) -> Iterable[tuple[str, ...]]:
    """Yield what a run's addition cannot say: if it withholds tools, no rules; if it has words for the system prompt, no others."""
    yield from WHERE_ITS_MODEL_IS
    yield from (("mcp", name) for name in (*_named_alike(activation), *(server.name for server in activation.mcp)))
    if activation.withheld:
        yield from ((rules,) for rules in RULES)
        yield from ((kind, "*", rules) for kind in ("agent", "mode") for rules in RULES)
    if activation.system_prompt:
        yield from ((kind, agent, "prompt") for kind in ("agent", "mode"))
        yield ("default_agent",)


def _named_alike(activation: Activation) -> list[str]:
    """Return the names of servers in a run's addition that are, without punctuation, those of servers that the task offers."""
    theirs = activation.config.get("mcp")
    granted = {server.name for server in activation.mcp}
    return [name for name in theirs if normalised(name) in granted] if isinstance(theirs, dict) else []


def _server(server: Server) -> Record:
    timeout_ms = round(server.waits_s * 1000)
    if isinstance(server, LocalServer):
        command = [server.command, *server.args]
        return {"type": "local", "command": command, "environment": dict(server.variables), "timeout": timeout_ms}
    return entry_of(server, remote={"type": "remote", "oauth": False, "timeout": timeout_ms})


def reader() -> LineReader:
    """Return a reader for what `run --format json` prints."""
    return LineReader(_Output().interpret)


class _Output:
    """The session's id is in every record; it is told once."""

    def __init__(self) -> None:
        self._session: str | None = None

    def interpret(self, record: Record) -> Iterable[Item] | None:
        items = self._items(record)
        if items is not None and self._session is None:
            self._session = str(record["sessionID"])
            return [SessionNamed(self._session), *items]
        return items

    def _items(self, record: Record) -> Iterable[Item] | None:
        match record["type"]:
            case "step_start":
                return []
            case "text" | "reasoning" as kind:
                words = str(record["part"]["text"])
                return [Said("assistant", words) if kind == "text" else Thought(words)]
            case "tool_use":
                return _tool(record["part"])
            case "step_finish":
                return _step(record["part"])
            case "error":
                return [complaint(_words(record["error"]), is_final=True)]
            case _:
                return None


def _tool(part: Record) -> list[Item]:
    """Return a call and its result, which are told together."""
    state, call_id = part["state"], str(part["callID"])
    asked = ToolAsked(call_id, str(part["tool"]), as_text(state["input"]), is_rewritten=True)
    has_failed = state["status"] == "error"
    code = number((state.get("metadata") or {}).get("exit"))
    time = state.get("time") or {}
    spent = (time["end"] - time["start"]) / 1000 if "end" in time else None
    text = state.get("error") if has_failed else state["output"]
    return [asked, ToolDone(call_id, str(text), code, has_failed or bool(code), spent)]


def _step(part: Record) -> list[Item]:
    tokens: Record = part.get("tokens") or {}
    cached = (tokens.get("cache") or {}).get("read")
    counts = (tokens.get("input"), tokens.get("output"), cached, tokens.get("reasoning"))
    done = ReplyDone(None, *map(number, counts))
    return [done] if part["reason"] == "tool-calls" else [done, Finished(str(part["reason"]))]


def _words(error: Record) -> str:
    data = error.get("data") or {}
    return f"{error.get('name')}: {data.get('statusCode', '')} {data.get('message', '')}"


OPENCODE: Final = Harness(
    name="opencode_agent",
    packages=(Package("npm", "opencode-linux-x64", "1.18.33"),),
    dialect="chat",
    plan=Fork(
        binary="node_modules/opencode-linux-x64/bin/opencode", prefix="OPENCODE", file="opencode.json", agent="build"
    ).plan,
    tokens=Tokens(has_prefix=True, arguments="rewritten", sends_thoughts=True),
    system_prompts=frozenset({"replace"}),
    withholds=frozenset(TOOLS),
    withholds_all=True,
    grants=frozenset({"model", "mcp"}),
    resumes=True,
    finds_skills=True,
    memory_mib=2048,
)
