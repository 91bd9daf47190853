"""What a harness is to us: a row of facts, a function that says how it is started, and readers for what it writes."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final, Literal

from adapters.harnesses.readers import Reader
from adapters.harnesses.servers import SERVER_SLACK_S, Server, entry_of
from gym_bus.errors import Permanent
from schemas.conversation import DialectName

ARGUMENT_MAX_BYTES: Final = 131_071
TOOL_COMMAND: Final = Path(__file__).with_name("tool_command.py")
SERVER_CHECK: Final = Path(__file__).with_name("server_check.py")
CHECKED_WITHIN_S: Final = 30.0
"""What a required server has to list its tools, before a program is begun."""
SKILLS: Final = ".agents/skills"
"""Where harnesses look for skills, below their home: a place that all who look for any have in common."""
SERVER_NAME: Final = re.compile(r"[a-z][a-z0-9_]{0,31}")
SESSION_ID: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,127}")


class Unsupported(Permanent):
    """A harness was asked for what it cannot do; the message says which, and what."""


@dataclass(frozen=True, slots=True)
class Package:
    """A package that is installed for a harness, in exactly this version."""

    ecosystem: Literal["npm", "pypi"]
    name: str
    version: str


@dataclass(frozen=True, slots=True)
class SystemPrompt:
    """Words for the system prompt: behind the harness's own, or in its place."""

    text: str
    mode: Literal["append", "replace"] = "append"


@dataclass(frozen=True, slots=True)
class ToolCommand:
    """Where `gym-tool` (`tool_command.py`) asks, and how long one call may take. A `required` one is asked before the launch begins."""

    url: str
    timeout_s: float = 300.0
    required: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Activation:
    """One input that a harness works on, and where; all paths are the machine's.

    `base_url` is the gateway's for this activation, with the token in its path and without `/v1`. `home` is the harness's own storage,
    which outlives the launch; `installed`, `node`, `program` and `brought_python` are where `installing`'s directories are shown.
    `withheld` are tools, by the harness's own names; `resume` is the id of a session in `home` to go on with. With a `tool_command` its
    shell finds `gym-tool`. `skills` is a directory of the machine, a directory a skill, which is copied to where the harness looks for
    them. `variables` are the task's, for the environment of all commands. `config` is added to the harness's own configuration.
    """

    prompt: str
    model: str
    base_url: str
    home: str
    workspace: str
    installed: str
    node: str = "/opt/gym-bus/node"
    program: str = "/opt/gym-bus/program"
    python: str = "/usr/bin/python3"
    brought_python: str = "/opt/gym-bus/python/bin/python3"
    system_prompt: SystemPrompt | None = None
    withheld: tuple[str, ...] = ()
    mcp: tuple[Server, ...] = ()
    tool_command: ToolCommand | None = None
    skills: str | None = None
    variables: Mapping[str, str] = field(default_factory=dict)
    config: Mapping[str, Any] = field(default_factory=dict)
    extra_args: tuple[str, ...] = ()
    resume: str | None = None
    context_tokens: int = 131_072
    max_output_tokens: int = 8192


@dataclass(frozen=True, slots=True)
class Trace:
    """A file that a harness writes: `stdout`, or a glob in the machine; a `document` is written anew each time, lines are appended.

    Of several files that match a glob it is the last by name, the first with `first:` before the glob.
    """

    where: str
    reader: Callable[[], Reader]
    is_document: bool = False


@dataclass(frozen=True, slots=True)
class Plan:
    """How an activation is run: files that are written first (path to content, mode 0600), what is started, and what it will write.

    `programs` are files that can be run (mode 0700), `starts` the words of the command that what is started starts in its turn;
    `copied` are directories of the machine, and where what is in them is copied to.

    The first trace tells the conversation, the others what it leaves out.
    """

    argv: tuple[str, ...]
    environment: Mapping[str, str]
    traces: tuple[Trace, ...]
    files: Mapping[str, str] = field(default_factory=dict)
    programs: Mapping[str, str] = field(default_factory=dict)
    starts: tuple[str, ...] = ()
    copied: Mapping[str, str] = field(default_factory=dict)
    stdin: str | None = None


@dataclass(frozen=True, slots=True)
class Tokens:
    """What a harness's calls are worth for training on token ids, as measured: see docs/harnesses.md.

    `has_prefix` if each call's conversation begins with the one before; `arguments` is how it sends a call's arguments back;
    `sends_thoughts` if it sends the model's reasoning back.
    """

    has_prefix: bool
    arguments: Literal["verbatim", "rewritten"]
    sends_thoughts: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Harness:
    """One harness. `plan` may rely on what `plan_for` has checked: that only what it declares is asked of it.

    `withholds_all` if without the tools that it `withholds` it has none of its own. `needs_python` are versions of Python, the best one
    first, of which one is brought along; without any it does with the sandbox's. `finds_skills` if it tells its model of those in
    `SKILLS`. A server of one of the `taken_names` would be taken for something of its own. It is installed without the files in
    `left_out`: marks by which its packages know that their scripts, none of which is run, did not do their work. `is_worker` if it is
    run by a runner of ours, which tells its result last: told whole, that is the end, however its process ends, and an end without one
    is none.
    """

    name: str
    packages: tuple[Package, ...]
    dialect: DialectName
    plan: Callable[[Activation], Plan]
    tokens: Tokens
    needs_node: bool = False
    needs_python: tuple[str, ...] = ()
    system_prompts: frozenset[Literal["append", "replace"]] = frozenset()
    withholds: frozenset[str] = frozenset()
    withholds_all: bool = False
    grants: frozenset[Literal["model", "mcp", "http"]] = frozenset({"model"})
    prompt_by: Literal["stdin", "argument"] = "stdin"
    resumes: bool = False
    finds_skills: bool = False
    taken_names: frozenset[str] = frozenset()
    left_out: tuple[str, ...] = ()
    is_worker: bool = False
    memory_mib: int = 1024
    processes: int = 256


def plan_for(harness: Harness, activation: Activation) -> Plan:
    """Return how `activation` is run by `harness`; raises `Unsupported` for what it has no way to do."""
    _check_withheld(harness, activation.withheld)
    for cannot in _undeclared(harness, activation):
        raise Unsupported(f"{harness.name} cannot {cannot}")
    plan = with_checked_servers(with_tool_command(harness.plan(activation), activation), activation)
    if activation.skills:
        plan = replace(plan, copied={activation.skills: f"{activation.home}/{SKILLS}"})
    for cannot in _impossible(plan):
        raise Unsupported(f"{harness.name} cannot {cannot}")
    return plan


def with_tool_command(plan: Plan, activation: Activation) -> Plan:
    """Return the plan with `gym-tool` where the harness's shell finds it, if that is wanted."""
    if activation.tool_command is None:
        return plan
    where = f"{activation.home}/bin"
    said = {"url": activation.tool_command.url, "timeout_s": activation.tool_command.timeout_s + SERVER_SLACK_S}
    return replace(
        plan,
        files={**plan.files, f"{where}/gym-tool.json": json.dumps(said)},
        programs={f"{where}/gym-tool": f"#!{activation.python}\n{TOOL_COMMAND.read_text()}"},
        environment={**plan.environment, "PATH": f"{where}:{plan.environment['PATH']}"},
    )


def with_checked_servers(plan: Plan, activation: Activation) -> Plan:
    """Return the plan with a look at each required server in the same process, before it becomes the program."""
    wanted: list[dict[str, object]] = [
        {"name": server.name, **entry_of(server)} for server in activation.mcp if server.required
    ]
    if activation.tool_command and activation.tool_command.required:
        wanted.append({"name": "gym-tool", "url": activation.tool_command.url, "is_plain": True})
    if not wanted:
        return plan
    script, servers = f"{activation.home}/bin/server_check.py", f"{activation.home}/bin/servers.json"
    said = json.dumps({"servers": wanted, "within_s": CHECKED_WITHIN_S})
    return replace(
        plan,
        argv=("/usr/bin/env", "python3", "-I", "-S", script, servers, *plan.argv),
        files={**plan.files, script: SERVER_CHECK.read_text(), servers: said},
    )


def _check_withheld(harness: Harness, withheld: tuple[str, ...]) -> None:
    """Raise `Unsupported` for tools that a harness does not say it can withhold."""
    if unknown := sorted(set(withheld) - harness.withholds):
        names, able = " or ".join(map(repr, unknown)), ", ".join(sorted(harness.withholds)) or "none"
        raise Unsupported(f"{harness.name} has no tool {names} that can be withheld; those that can: {able}")


def _undeclared(harness: Harness, activation: Activation) -> Iterator[str]:
    """Yield what a harness is asked for that it does not say it can do."""
    if activation.system_prompt and activation.system_prompt.mode not in harness.system_prompts:
        yield f"{activation.system_prompt.mode} its system prompt"
    if activation.mcp and "mcp" not in harness.grants:
        yield "use MCP servers"
    if activation.tool_command and "http" not in harness.grants:
        yield "call tools by a command of its shell"
    if activation.skills and not harness.finds_skills:
        yield "be given skills"
    for server in activation.mcp:
        if not SERVER_NAME.fullmatch(server.name):
            yield f"be given an MCP server called {server.name!r}: lower-case letters, digits and `_`"
        if server.name in harness.taken_names:
            yield f"be given an MCP server called {server.name!r}, as tools of its own are: give it another name"
    if activation.resume is not None and not (harness.resumes and SESSION_ID.fullmatch(activation.resume)):
        yield f"resume session {activation.resume!r}"


def _impossible(plan: Plan) -> Iterator[str]:
    """Yield why no process can be started so."""
    words = (*plan.argv, *plan.starts, *plan.environment.values())
    try:
        "".join((*words, *plan.files.values(), plan.stdin or "")).encode()
    except UnicodeEncodeError:
        yield "be given what is no text: it holds half a character"
    if any("\0" in word for word in words):
        yield "be given a NUL"
    if any(len(word.encode(errors="replace")) > ARGUMENT_MAX_BYTES for word in words):
        yield f"be given an argument of more than {ARGUMENT_MAX_BYTES} bytes"


def environment_of(activation: Activation, more: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of a harness: its task's, what every program expects, nothing of this host, and `more`."""
    return {
        **activation.variables,
        "PATH": "/usr/local/bin:/usr/bin:/bin",
        "HOME": activation.home,
        "TMPDIR": "/tmp",  # noqa: S108  in the machine
        "LANG": "C.UTF-8",
        "TERM": "dumb",
        "USER": "agent",
        **more,
    }


def no_command(prompt: str) -> str:
    """Return a prompt as programs are given it that take a first word like `/init` for a command of their own: behind a line feed.

    Theirs are answered without the model, or with another question; the words behind a line feed reach it as they are.
    """
    return f"\n{prompt}" if prompt.startswith("/") else prompt


NO_KEY: Final = "unused"
"""For clients that want a key: the token is in the address."""
