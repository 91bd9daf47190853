"""What each session of a recorded run was given, input by input: those of its task, and those that somebody gave from outside."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from providers.models.replay_recording import recorded_events
from schemas.events import ActivationStarted, SessionRequested
from schemas.values import Message

NEEDED: Final = (SessionRequested, ActivationStarted)
Inputs = dict[int, tuple[Message, ...]]
"""The messages of a session's inputs by their number, from 2: the first is the task's question."""


def recorded_inputs(path: Path) -> dict[tuple[str, int], Inputs]:
    """Return the inputs that each session took, by task and repeat; raises `BadRecording`.

    Of a rollout that was tried several times the last attempt counts, as for what its model said.
    """
    names: dict[tuple[str, int], tuple[str, int]] = {}
    newest: dict[tuple[str, int], tuple[int, Inputs]] = {}
    for _, head, event in recorded_events(path, NEEDED):
        attempt, rollout = head["attempt"], (head["rollout_id"], head["attempt"])
        if isinstance(event, SessionRequested):
            name = names[rollout] = (event.task.task_id, event.repeat)
            if name not in newest or newest[name][0] < attempt:
                newest[name] = (attempt, {})
        elif isinstance(event, ActivationStarted):
            of, inputs = newest.get(names.get(rollout, ("", -1)), (0, {}))
            if of == attempt:
                inputs.setdefault(event.activation, event.messages)
    return {name: inputs for name, (_, inputs) in newest.items()}
