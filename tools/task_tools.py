"""Tools that a task can offer without a server of its own. Pure: what a call does is what it returns, and the log keeps that.

So a call whose worker died before its answer was recorded may be executed again: nothing has happened yet.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from schemas.environment import BuiltIn, TaskTool

VALUE_MAX_BYTES: Final = 64 * 1024
KEYS_SHOWN: Final = 20


@dataclass(frozen=True, slots=True)
class Ran:
    """What came of a call: the words for the agent, whether it was refused, and what it leaves in the environment."""

    text: str
    is_error: bool = False
    record: Any = None


@dataclass(frozen=True, slots=True)
class BuiltInTool:
    """A tool of this module: how it is offered if a task says nothing else, and what runs it with `(arguments, data)`."""

    description: str
    parameters: Mapping[str, Any]
    run: Callable[[Mapping[str, Any], Mapping[str, Any]], Ran]


def _text_of(arguments: Mapping[str, Any], name: str) -> str | Ran:
    value = arguments.get(name)
    if set(arguments) != {name} or not isinstance(value, str):
        return Ran(f'The arguments must have exactly one key, "{name}", and it must be a string.', is_error=True)
    if len(value.encode(errors="replace")) > VALUE_MAX_BYTES:
        return Ran(f'"{name}" is longer than {VALUE_MAX_BYTES} bytes.', is_error=True)
    return value


def _lookup(arguments: Mapping[str, Any], data: Mapping[str, Any]) -> Ran:
    """Return the entry of `data["table"]` under the key that is asked for."""
    key = _text_of(arguments, "key")
    if isinstance(key, Ran):
        return key
    table: Mapping[str, Any] = data["table"]
    if key not in table:
        known = ", ".join(sorted(table)[:KEYS_SHOWN]) if data.get("shows_keys") else ""
        return Ran(f"There is no entry {key!r}." + (f" There are: {known}." if known else ""), is_error=True)
    entry = table[key]
    return Ran(entry if isinstance(entry, str) else json.dumps(entry, ensure_ascii=False))


def _note(arguments: Mapping[str, Any], data: Mapping[str, Any]) -> Ran:
    """Leave the text in the environment."""
    del data
    text = _text_of(arguments, "text")
    return text if isinstance(text, Ran) else Ran("Noted.", record=text)


def _parameters(name: str, description: str) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": {name: {"type": "string", "description": description}},
        "required": [name],
        "additionalProperties": False,
    }


BUILT_IN: Final[Mapping[str, BuiltInTool]] = {
    "lookup": BuiltInTool("Look an entry up by its key.", _parameters("key", "The key of the entry."), _lookup),
    "note": BuiltInTool("Write a text down. What is written down stays.", _parameters("text", "The text."), _note),
}


def offered(name: str, tool: BuiltIn) -> TaskTool:
    """Return a tool of this module as a task offers it that says nothing of its own; raises `ValueError` for what is no such tool."""
    if tool.tool not in BUILT_IN:
        msg = f"no tool is called {tool.tool!r}; there are {', '.join(sorted(BUILT_IN))}"
        raise ValueError(msg)
    if tool.tool == "lookup" and not isinstance(tool.data.get("table"), dict):
        msg = f"the tool {name!r} is a lookup, and wants `table`, an object, in its data"
        raise ValueError(msg)
    found = BUILT_IN[tool.tool]
    return TaskTool(name=name, description=found.description, parameters=dict(found.parameters))


def run_built_in(tool: BuiltIn, arguments: Mapping[str, Any]) -> Ran:
    """Execute a call."""
    return BUILT_IN[tool.tool].run(arguments, tool.data)
