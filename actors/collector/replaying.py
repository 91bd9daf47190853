"""The rollouts of a replayed run: a session that somebody gave further inputs is given the same ones again, and waits for nobody."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from actors.collector.plan import Planned
from providers.models.recorded_inputs import Inputs, recorded_inputs
from schemas.config import ReplayModel, RunConfig


def with_recorded_inputs(rollouts: list[Planned], config: RunConfig) -> Sequence[Planned]:
    """Return the rollouts with the inputs of the recorded run, under the same numbers and to the same end.

    Only of a replay, and only of tasks that wait for inputs; raises `BadRecording` if the recording cannot be read.
    """
    waits = any(planned.task.input.awaits_input_s is not None for planned in rollouts)
    if not isinstance(config.model, ReplayModel) or not waits:
        return rollouts
    recorded = recorded_inputs(Path(config.model.recording))
    return [_given(planned, recorded.get((planned.task.task_id, planned.repeat), {})) for planned in rollouts]


def _given(planned: Planned, inputs: Inputs) -> Planned:
    """Return a rollout whose task has the inputs as its own, after those that it has itself."""
    task = planned.task.input
    if task.awaits_input_s is None:
        return planned
    own = len(task.follow_ups)
    more = tuple(inputs[number] for number in sorted(inputs) if number > own + 1)
    given = task.replaced(follow_ups=(*task.follow_ups, *more), awaits_input_s=None, continuation=task.continues)
    return replace(planned, task=planned.task.replaced(input=given))
