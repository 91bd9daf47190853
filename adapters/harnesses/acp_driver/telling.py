"""What an agent tells by the protocol, as JSON lines: texts whole, a call when it begins and when it ends, and where replies end.

The protocol does not say where one reply of the model ends and the next begins: here it ends with the first result of a tool.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping
from typing import Any, Protocol

TEXT_MAX_BYTES = 1024 * 1024
"""What a text, or a call's arguments, may have in a line; as text in JSON arguments have twice of it at most."""
PIECE_CHARS = 16 * 1024
NAME_MAX_CHARS = 1000
PLAN_MAX_STEPS = 200
TOO_DEEP = "[nested too deep to be told]"
ENDS = frozenset({"completed", "failed"})


class Shown(Protocol):
    """A command that the agent had us run, as far as a call's result shows it."""

    @property
    def text(self) -> str:
        """Return what is kept of its output."""
        ...

    @property
    def exit_code(self) -> int | None:
        """Return its exit code, None if it has none."""
        ...


class Call:
    """One call of a tool: what is known of it by now."""

    def __init__(self, call_id: str) -> None:
        """Begin with its id."""
        self.id = call_id
        self.name = ""
        self.arguments: Any = None
        self.content: list[Any] = []
        self.output: Any = None
        self.begun = time.monotonic()
        self.is_told = False
        self.is_over = False


class Telling:
    """Prints what happens. Pieces of a text are put together; a reply ends where something new begins after a tool's end."""

    def __init__(self, lines: int) -> None:
        """Print to the file descriptor `lines`."""
        self._lines = lines
        self._kind: str | None = None
        self._pieces: list[str] = []
        self._size = 0
        self._calls: dict[str, Call] = {}
        self._untold: dict[str, Call] = {}
        self._is_replying = False
        self._plan: list[Any] = []

    def tell(self, kind: str, **facts: Any) -> None:
        """Print a line; whoever tells sees to it that it is none that is too long to be read."""
        line = (json.dumps({"type": kind, **facts}) + "\n").encode()
        while line:
            line = line[os.write(self._lines, line) :]

    def piece(self, kind: str, text: str) -> None:
        """Take in a piece of what is said or thought: of what is too long for a line there are several."""
        self._is_replying = True
        for first in range(0, len(text), PIECE_CHARS):
            part = text[first : first + PIECE_CHARS]
            size = size_of(part)
            if kind != self._kind or self._size + size > TEXT_MAX_BYTES:
                self.flush()
                self._kind = kind
            self._pieces.append(part)
            self._size += size

    def flush(self) -> None:
        """Print the text that is being put together."""
        if self._kind is not None and self._size:
            self.tell(self._kind, text="".join(self._pieces))
        self._kind, self._pieces, self._size = None, [], 0

    def plan(self, entries: list[Any]) -> None:
        """Print a plan, if it is another one than before."""
        told = [
            {"content": entry.content[:NAME_MAX_CHARS], "status": entry.status} for entry in entries[:PLAN_MAX_STEPS]
        ]
        if told != self._plan:
            self.flush()
            self._plan = told
            self.tell("plan", entries=told)

    def call(self, update: Any, terminals: Mapping[str, Shown]) -> None:
        """Take in what is new of a call, and print it when it has begun, and when it is over."""
        call_id = update.tool_call_id[:NAME_MAX_CHARS]
        if call_id not in self._calls:
            self._is_replying = True
            self.flush()
            self._calls[call_id] = self._untold[call_id] = Call(call_id)
        call = self._calls[call_id]
        if call.is_over:
            return
        call.name = call.name or update.title or update.kind or ""
        call.arguments = update.raw_input if update.raw_input not in (None, {}) else call.arguments
        call.content = update.content or call.content
        call.output = update.raw_output if update.raw_output is not None else call.output
        if update.status in {"in_progress", *ENDS}:
            self._asked(call)
        if update.status in ENDS:
            call.is_over = True
            self._done(call, update.status == "failed", terminals)
            call.arguments, call.content, call.output = None, [], None

    def end_of_reply(self) -> None:
        """Print what is left of a reply, and that it is over."""
        self.flush()
        for call in list(self._untold.values()):
            self._asked(call)
        if self._is_replying:
            self.tell("reply")
        self._is_replying = False

    def _asked(self, call: Call) -> None:
        if not call.is_told:
            call.is_told, call.begun = True, time.monotonic()
            self._untold.pop(call.id, None)
            self.tell(
                "tool_asked", id=call.id, name=call.name[:NAME_MAX_CHARS], arguments=told_arguments(call.arguments)
            )

    def _done(self, call: Call, has_failed: bool, terminals: Mapping[str, Shown]) -> None:
        self.end_of_reply()
        spent = round(time.monotonic() - call.begun, 6)
        shown = [
            terminals[part.terminal_id] for part in call.content if getattr(part, "terminal_id", None) in terminals
        ]
        code = next((one.exit_code for one in shown if one.exit_code is not None), exit_code_in(call.output))
        text = "".join([text_in(part) for part in call.content] + [one.text for one in shown]) or text_in(call.output)
        self.tell(
            "tool_done",
            id=call.id,
            text=cut(text),
            exit_code=code,
            is_error=has_failed or bool(code),
            duration_s=spent,
        )


def size_of(text: str) -> int:
    """Return how many bytes a text has in a line."""
    return len(json.dumps(text)) - 2


def cut(text: str) -> str:
    """Return the beginning of a text that is too long for a line, and that there was more; others as they are."""
    kept: list[str] = []
    room = TEXT_MAX_BYTES
    for first in range(0, len(text), PIECE_CHARS):
        part = text[first : first + PIECE_CHARS]
        room -= size_of(part)
        if room < 0:
            return "".join(kept) + f"\n[{len(text) - first} more characters]"
        kept.append(part)
    return text


def told_arguments(arguments: Any) -> Any:
    """Return a call's arguments as they are told: those that are too long as the beginning of their JSON."""
    if arguments is None:
        return {}
    text = written(arguments)
    return arguments if len(text) <= TEXT_MAX_BYTES and text != TOO_DEEP else cut(text)


def written(value: Any) -> str:
    """Return a value as JSON."""
    try:
        return json.dumps(value)
    except RecursionError:
        return TOO_DEEP


def text_in(part: Any) -> str:
    """Return the words of a part of a result: text, what a diff changes, or whatever it is as JSON."""
    if part is None or isinstance(part, str):
        return part or ""
    if isinstance(part, dict):
        output = part.get("output")
        return output if isinstance(output, str) else written(part)
    if getattr(part, "type", None) == "content":
        return getattr(part.content, "text", None) or f"[{part.content.type}]"
    if getattr(part, "type", None) == "diff":
        return f"{part.path}\n{part.new_text}"
    return ""


def exit_code_in(output: Any) -> int | None:
    """Return the exit code that an agent puts into a result by one of the usual names."""
    if not isinstance(output, dict):
        return None
    inner = output.get("metadata")
    places = (output, inner if isinstance(inner, dict) else {})
    found = (place.get(name) for place in places for name in ("exit_code", "exitCode", "exit"))
    return next((code for code in found if isinstance(code, int) and not isinstance(code, bool)), None)
