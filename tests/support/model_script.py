"""A model for agents with loops of their own: it calls whatever shell tool it is offered, one command after the other, then it is done.

What it says next depends on the request alone: on how many results of tools there are in it. So a repeated call gets the same answer.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Final

from providers.dialects.catalog import DIALECTS
from schemas.conversation import (
    DialectName,
    Part,
    Reasoning,
    Reply,
    Request,
    Text,
    TokenUsage,
    Tool,
    ToolResult,
    ToolUse,
)

SHELLS: Final = (
    "bash",
    "Bash",
    "shell",
    "exec_command",
    "exec",
    "run_commands",
    "run_shell_command",
    "terminal",
    "ipython",
)
COMMAND_FIELDS: Final = ("command", "cmd", "commands", "code")
FAILING: Final = "ls /no/such/place"
MAKING: Final = "echo hello from here > hello.txt && cat hello.txt"
HAND_IN: Final = "echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT"
USUAL: Final = (f"{FAILING}; exit 1", MAKING)
LAST_WORDS: Final = "The file hello.txt is there now."
THOUGHT: Final = "I look around first."
USAGE: Final = TokenUsage(input_tokens=100, output_tokens=10)


def backend_for(dialect: DialectName) -> DialectName:
    """Return what the model behind a client of this dialect speaks: the same, where backends do."""
    return dialect if dialect in DIALECTS else "chat"


@dataclass(frozen=True)
class ModelScript:
    """Says `commands` in order, a call each, then `last`; with the first it says what it thinks."""

    dialect: DialectName
    commands: tuple[str, ...] = USUAL
    last: str = LAST_WORDS

    @property
    def last_words(self) -> str:
        """Return what the model says last."""
        return self.last

    @property
    def replies(self) -> int:
        """Return how often it is asked."""
        return len(self.commands) + 1

    def __call__(self, body: dict[str, Any]) -> Reply:
        """Return the answer to a request in the script's dialect."""
        request = DIALECTS[self.dialect].read_request(body)
        done = sum(isinstance(part, ToolResult) for turn in request.turns for part in turn.parts)
        if done >= len(self.commands):
            return self._reply(f"reply{done}", (Text(text=self.last),))
        thoughts: tuple[Part, ...] = (self._thought(),) if not done else ()
        call = self._call(f"call{done}", request, self.commands[done])
        return self._reply(f"reply{done}", (*thoughts, Text(text=f"Step {done + 1}."), call))

    def _call(self, call_id: str, request: Request, command: str) -> ToolUse:
        tool = shell_of(request)
        return ToolUse(id=call_id, name=tool.name, arguments=arguments_of(tool, command))

    def _thought(self) -> Reasoning:
        if self.dialect == "responses":
            return Reasoning(summaries=(THOUGHT,), encrypted="nobody-reads-this", id="rs_1")
        return Reasoning(texts=(THOUGHT,), signature="signed" if self.dialect == "messages" else None)

    def _reply(self, reply_id: str, parts: tuple[Part, ...]) -> Reply:
        reason = "tool_calls" if isinstance(parts[-1], ToolUse) else "stop"
        return Reply(dialect=self.dialect, id=reply_id, model="scripted", parts=parts, stop_reason=reason, usage=USAGE)


@dataclass(frozen=True)
class CallingScript(ModelScript):
    """Calls tools of MCP servers, whatever the harness calls them, with `commands` of the form `TOOL WORDS`; then is done."""

    def _call(self, call_id: str, request: Request, command: str) -> ToolUse:
        name, words = command.split(" ", 1)
        return call_of(request, call_id, name, text=words)


@dataclass(frozen=True)
class HandingIn(ModelScript):
    """The usual script; the last command is the end, and so the model has no last words."""

    @property
    def last_words(self) -> str:
        """See `ModelScript`."""
        return f"Step {len(self.commands)}."

    @property
    def replies(self) -> int:
        """See `ModelScript`."""
        return len(self.commands)


@dataclass(frozen=True)
class TypingScript(ModelScript):
    """Types `commands`, a reply each, in words as Terminus-2 wants them; with the last it says that it is done, and then again."""

    def __call__(self, body: dict[str, Any]) -> Reply:
        """See `ModelScript`."""
        request = DIALECTS[self.dialect].read_request(body)
        done = sum(turn.role == "assistant" for turn in request.turns)
        thoughts: tuple[Part, ...] = (self._thought(),) if not done else ()
        return self._reply(f"reply{done}", (*thoughts, Text(text=self._words(done))))

    @property
    def last_words(self) -> str:
        """See `ModelScript`."""
        return self._words(len(self.commands))

    def _words(self, done: int) -> str:
        typed = [{"keystrokes": f"{command}\n", "duration": 1.0} for command in self.commands[done : done + 1]]
        is_complete = done + 1 >= len(self.commands)
        return json.dumps(
            {"analysis": f"Step {done + 1}.", "plan": self.last, "commands": typed, "task_complete": is_complete}
        )


@dataclass(frozen=True)
class EditingScript(ModelScript):
    """Edits a file by blocks as aider wants them, `edits` one after the other: what is searched for, and what takes its place."""

    commands: tuple[str, ...] = ()
    edits: tuple[tuple[str, str], ...] = (("no such line\n", ""), ("", "hello from here\n"))
    file: str = "hello.txt"

    def __call__(self, body: dict[str, Any]) -> Reply:
        """See `ModelScript`."""
        request = DIALECTS[self.dialect].read_request(body)
        parts = (part for turn in request.turns if turn.role == "assistant" for part in turn.parts)
        done = sum(
            isinstance(part, Text) and part.text.startswith("Step ") for part in parts
        )  # others are its examples
        thoughts: tuple[Part, ...] = (self._thought(),) if not done else ()
        return self._reply(f"reply{done}", (*thoughts, Text(text=self._words(done))))

    @property
    def last_words(self) -> str:
        """See `ModelScript`."""
        return self._words(len(self.edits) - 1)

    @property
    def replies(self) -> int:
        """See `ModelScript`."""
        return len(self.edits)

    def _words(self, done: int) -> str:
        if not self.edits:
            return f"Step {done + 1}. {self.last}"
        search, replacement = self.edits[min(done, len(self.edits) - 1)]
        return (
            f"Step {done + 1}.\n\n{self.file}\n```\n<<<<<<< SEARCH\n{search}=======\n{replacement}>>>>>>> REPLACE\n```"
        )


def script_for(name: str, dialect: DialectName) -> ModelScript:
    """Return the usual script as a harness can be told it: a command that fails, one that makes a file, the end."""
    in_one_shell = (f"({FAILING}; exit 1)", MAKING)  # which has to outlive the first
    match name:
        case "mini_swe_agent":
            return HandingIn(dialect, (*USUAL, HAND_IN))
        case "openhands":
            return ModelScript(dialect, in_one_shell)
        case "aider":
            return EditingScript(dialect)
        case "terminus_2_agent":
            return TypingScript(dialect, in_one_shell)
        case _:
            return ModelScript(dialect)


def call_of(request: Request, call_id: str, name: str, **arguments: str) -> ToolUse:
    """Return a call of a tool of an MCP server, whatever the harness calls it."""
    offered = [tool for tool in request.tools or () if isinstance(tool, Tool)]
    tool = next(tool for tool in offered if tool.name.endswith(name))
    return ToolUse(id=call_id, name=tool.name, arguments=json.dumps(arguments), namespace=tool.namespace)


def shell_of(request: Request) -> Tool:
    """Return the tool that runs commands; an `AssertionError` lists what there is instead."""
    offered = {tool.name: tool for tool in request.tools or () if isinstance(tool, Tool)}
    for name in SHELLS:
        if name in offered:
            return offered[name]
    raise AssertionError(f"no shell among {sorted(offered)}")


def arguments_of(tool: Tool, command: str) -> str:
    """Return the call's arguments: the command where it belongs, and what else the schema demands."""
    schema = tool.parameters or {}
    properties: dict[str, Any] = schema.get("properties", {})
    field = next(name for name in COMMAND_FIELDS if name in properties)
    filled: dict[str, Any] = {field: f"%%bash\n{command}" if field == "code" else command}
    for name in schema.get("required", ()):
        filled.setdefault(name, 10_000 if properties[name].get("type") in {"number", "integer"} else "Look around")
    return json.dumps(filled)
