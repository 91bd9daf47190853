"""A task of two inputs, and a model that does what each asks for: what it says depends on the request alone."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from providers.dialects.catalog import DIALECTS
from schemas.conversation import DialectName, Reply, Text, ToolResult
from tests.support.model_script import FAILING, MAKING, ModelScript

SECOND_INPUT: Final = "Now make bye.txt as well."
MAKING_SECOND: Final = "cat hello.txt > bye.txt && echo and bye >> bye.txt && cat bye.txt"
TASK: Final = {
    "id": "make-both",
    "question": "Make hello.txt, in two steps.",
    "follow_ups": [SECOND_INPUT],
    "test_command": "grep -q 'hello from here' hello.txt && grep -q 'hello from here' bye.txt && grep -q 'and bye' bye.txt",
    "artifacts": ["hello.txt", "bye.txt"],
}


@dataclass(frozen=True)
class TwoInputs:
    """Does `first` for the first input, `second` once the request holds the second one."""

    dialect: DialectName
    first: tuple[str, ...] = (f"{FAILING}; exit 1", MAKING)
    second: tuple[str, ...] = (MAKING_SECOND,)

    def __call__(self, body: dict[str, Any]) -> Reply:
        """Return the answer to a request in the script's dialect."""
        request = DIALECTS[self.dialect].read_request(body)
        places = [n for n, turn in enumerate(request.turns) if _says(turn.parts, SECOND_INPUT)]
        if not places:
            return ModelScript(self.dialect, self.first)(body)
        results = (part for turn in request.turns[places[0] :] for part in turn.parts if isinstance(part, ToolResult))
        return _Second(self.dialect, self.second, last="Both are there now.").after(sum(1 for _ in results), body)


class _Second(ModelScript):
    def after(self, done: int, body: dict[str, Any]) -> Reply:
        """Return what follows `done` commands of the second input."""
        request = DIALECTS[self.dialect].read_request(body)
        if done >= len(self.commands):
            return self._reply(f"second{done}", (Text(text=self.last),))
        call = self._call(f"second-call{done}", request, self.commands[done])
        return self._reply(f"second{done}", (Text(text=f"Then step {done + 1}."), call))


def _says(parts: Any, words: str) -> bool:
    return any(isinstance(part, Text) and words in part.text for part in parts)


def write_two_inputs(directory: Path) -> Path:
    """Write the file of tasks."""
    path = directory / "tasks.jsonl"
    path.write_text(json.dumps(TASK) + "\n")
    return path
