"""What a run will do: its rollouts in their order, made once and kept as a blob that the run's first event names."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Sequence
from dataclasses import dataclass

import pydantic_core

from adapters.benchmarks.harbor import why_not
from gym_bus.errors import BadTaskset
from gym_bus.nesting import GIVEN_MAX_LEVELS, is_deeper
from schemas.config import RunConfig
from schemas.machines import fitted
from schemas.sandboxes import with_image
from schemas.tasks import Task


@dataclass(frozen=True, slots=True)
class Planned:
    """One rollout: a task and which repeat of it."""

    task: Task
    repeat: int

    @property
    def rollout_id(self) -> str:
        """Return `<task index>-<repeat>`, both from 0: the same whatever the order or the selection."""
        return f"{self.task.index}-{self.repeat}"


def select(tasks: Sequence[Task], config: RunConfig) -> list[Task]:
    """Return the tasks of a run in order: shuffled if asked for, then cut to the limit."""
    chosen = list(tasks)
    if config.shuffle_seed is not None:
        random.Random(config.shuffle_seed).shuffle(chosen)  # noqa: S311  an order, not a secret
    return chosen[: config.limit] if config.limit else chosen


def check(tasks: Sequence[Task], config: RunConfig) -> None:
    """Raise `BadTaskset`, `NoImage` or `Unfit` for a task that the run's agent cannot be given, or not in the run's sandboxes."""
    for task in tasks:
        if why := why_not(task, config.agent):
            raise BadTaskset(f"{task.task_id}: {why}")
        if is_deeper(pydantic_core.to_json(task), GIVEN_MAX_LEVELS):
            raise BadTaskset(
                f"{task.task_id}: what it holds has more than {GIVEN_MAX_LEVELS} levels of arrays and objects"
            )
        fitted(with_image(config.sandbox, task.image), task.machine)
        fitted(config.grading_sandbox or config.sandbox, task.grading)


def order(tasks: Sequence[Task], config: RunConfig) -> list[Planned]:
    """Return the rollouts in order: a a b b, or a b a b when repeats are interleaved."""
    if config.interleave_repeats:
        return [Planned(task, repeat) for repeat in range(config.num_repeats) for task in tasks]
    return [Planned(task, repeat) for task in tasks for repeat in range(config.num_repeats)]


def dump(tasks: Sequence[Task]) -> bytes:
    """Return the tasks as JSON lines."""
    return b"".join(pydantic_core.to_json(task) + b"\n" for task in tasks)


def load(content: bytes) -> list[Task]:
    """Return the tasks of JSON lines."""
    return [Task.model_validate_json(line) for line in content.split(b"\n") if line]


def digest(tasks: Sequence[Task]) -> str:
    """Return the SHA-256 over the selected tasks in the order of their index, first 32 hex digits."""
    return hashlib.sha256(dump(sorted(tasks, key=lambda t: t.index))).hexdigest()[:32]
