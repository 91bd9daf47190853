"""A model that does the usual two commands and then calls its task's tool `note`, by the program's own name for it, or by its shell."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Final

from adapters.harnesses.table import installed_for
from schemas.conversation import Request, Tool, ToolUse
from tests.support.model_script import HAND_IN, USUAL, ModelScript, backend_for

NOTED: Final = "the file is made"


@dataclass(frozen=True)
class NotingScript(ModelScript):
    """Calls the tool `note`, whatever the harness calls it, where the command is what is noted; by the shell if it is no tool there."""

    def _call(self, call_id: str, request: Request, command: str) -> ToolUse:
        if command != NOTED:
            return super()._call(call_id, request, command)
        arguments = json.dumps({"text": NOTED})
        offered = [tool for tool in request.tools or () if isinstance(tool, Tool)]
        found = next((tool for tool in offered if tool.name.endswith("note")), None)
        if found is None:
            return super()._call(call_id, request, f"gym-tool note '{arguments}'")
        return ToolUse(id=call_id, name=found.name, arguments=arguments, namespace=found.namespace)


def noting(name: str) -> NotingScript:
    """Return the script for a harness; mini-swe-agent ends with a command."""
    last = (HAND_IN,) if name == "mini_swe_agent" else ()
    return NotingScript(backend_for(installed_for(name).dialect), (*USUAL, NOTED, *last))
