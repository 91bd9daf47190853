"""A model that does the usual two commands and then calls its task's tool `note`, by the program's own name for it, or by its shell."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import Final

from adapters.harnesses.table import installed_for
from schemas.conversation import Request, Tool, ToolUse
from tests.support.model_script import EditingScript, ModelScript, TypingScript, backend_for, script_for

NOTED: Final = "the file is made"
ARGUMENTS: Final = json.dumps({"text": NOTED})
BY_SHELL: Final = f"gym-tool note '{ARGUMENTS}'"


@dataclass(frozen=True)
class NotingScript(ModelScript):
    """Calls the tool `note`, whatever the harness calls it, where the command is what is noted; by the shell if it is no tool there."""

    def _call(self, call_id: str, request: Request, command: str) -> ToolUse:
        if command != NOTED:
            return super()._call(call_id, request, command)
        offered = [tool for tool in request.tools or () if isinstance(tool, Tool)]
        found = next((tool for tool in offered if tool.name.endswith("note")), None)
        if found is None:
            return super()._call(call_id, request, BY_SHELL)
        return ToolUse(id=call_id, name=found.name, arguments=ARGUMENTS, namespace=found.namespace)


def noting(name: str) -> ModelScript:
    """Return the script for a harness: the usual commands, the note, and what it ends with; one that calls no tools notes nothing."""
    usual = script_for(name, backend_for(installed_for(name).dialect))
    if isinstance(usual, EditingScript):
        return usual
    if isinstance(usual, TypingScript):
        return replace(usual, commands=(*usual.commands, BY_SHELL))
    return NotingScript(usual.dialect, (*usual.commands[:2], NOTED, *usual.commands[2:]))
