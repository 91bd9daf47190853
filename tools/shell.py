"""The one tool there is: a shell. What a model wrote is taken literally or refused, never repaired."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

from gym_bus.nesting import GIVEN_MAX_LEVELS, is_deeper
from schemas.values import ToolCall, ToolSpec

COMMAND_MAX_BYTES: Final = 32 * 1024
ARGUMENTS_MAX_BYTES: Final = 256 * 1024

SHELL: Final = ToolSpec(
    name="shell",
    description=(
        "Run a command with /bin/sh -c in a Linux sandbox without network. "
        "Returns standard output and standard error together. "
        "Files in the working directory stay between calls; variables and `cd` do not."
    ),
    parameters={
        "type": "object",
        "properties": {"command": {"type": "string", "description": "The command line to run."}},
        "required": ["command"],
        "additionalProperties": False,
    },
)


@dataclass(frozen=True, slots=True)
class BadArguments:
    """A call that is not executed; `message` is for the model."""

    message: str


def parse_call(tool_call: ToolCall, specs: Iterable[ToolSpec]) -> str | BadArguments:
    """Return the command of `tool_call`, or why it cannot be executed."""
    known = sorted(spec.name for spec in specs)
    if tool_call.name not in known:
        names = ", ".join(known) or "none"
        return BadArguments(f"There is no tool called {_shown(tool_call.name)}. Available tools: {names}.")
    arguments = arguments_of(tool_call, example=': {"command": "..."}')
    return arguments if isinstance(arguments, BadArguments) else _command(arguments)


def arguments_of(tool_call: ToolCall, example: str = "") -> dict[str, Any] | BadArguments:
    """Return the arguments of `tool_call`, or why they are none."""
    try:
        arguments = json.loads(tool_call.arguments, object_pairs_hook=_unique, parse_constant=_refuse)
    except (ValueError, RecursionError) as error:
        return BadArguments(
            f"The arguments are not valid JSON: {_shown(str(error))}. Nothing was executed; send the call again."
        )
    if not isinstance(arguments, dict):
        return BadArguments(f"The arguments must be a JSON object{example}. Nothing was executed.")
    if is_deeper(tool_call.arguments.encode(errors="replace"), GIVEN_MAX_LEVELS):
        return BadArguments(f"The arguments have more than {GIVEN_MAX_LEVELS} levels. Nothing was executed.")
    return arguments


def text_of(arguments: dict[str, Any]) -> str | BadArguments:
    """Return arguments as JSON text that can be stored, or why they cannot."""
    text = json.dumps(arguments, ensure_ascii=False)
    try:
        size = len(text.encode())
    except UnicodeEncodeError:
        return BadArguments(
            "The arguments are not valid Unicode: they contain half of a surrogate pair. Nothing was executed."
        )
    if size > ARGUMENTS_MAX_BYTES:
        return BadArguments(
            f"The arguments are {size} bytes long, at most {ARGUMENTS_MAX_BYTES} are allowed. Nothing was executed."
        )
    return text


def _command(arguments: dict[str, Any]) -> str | BadArguments:
    if set(arguments) != {"command"}:
        given = ", ".join(_shown(key) for key in sorted(arguments)[:8]) or "none"
        return BadArguments(
            f'The arguments must have exactly one key, "command"; given: {given}. Nothing was executed.'
        )
    command = arguments["command"]
    if not isinstance(command, str) or not command.strip():
        return BadArguments('"command" must be a string that is not empty. Nothing was executed.')
    if "\0" in command:
        return BadArguments('"command" must not contain NUL characters. Nothing was executed.')
    try:
        size = len(command.encode())
    except UnicodeEncodeError:
        return BadArguments(
            '"command" is not valid Unicode: it contains half of a surrogate pair. Nothing was executed.'
        )
    if size > COMMAND_MAX_BYTES:
        return BadArguments(
            f'"command" is {size} bytes long, at most {COMMAND_MAX_BYTES} are allowed. Nothing was executed.'
        )
    return command


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a key is given twice")
    return found


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is not JSON")


def _shown(text: str) -> str:
    """Return foreign text in a form that can be stored and is not too long."""
    return text.encode(errors="replace").decode()[:200]
