"""Which module loads a taskset, and which function grades its answers; both are imported when they are first needed."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any, Final, cast

from adapters.benchmarks.base import GradeAnswer, LoadTasks
from gym_bus.errors import BadTaskset
from schemas.config import TasksetConfig
from schemas.tasks import Task

LOADERS: Final[Mapping[str, str]] = {
    "harbor": "adapters.benchmarks.harbor:load",
    "jsonl": "adapters.benchmarks.jsonl_tasks:load",
    "reasoning_gym": "adapters.benchmarks.reasoning_gym_tasks:load",
}
GRADERS: Final[Mapping[str, str]] = {
    "math_verify": "adapters.benchmarks.jsonl_tasks:grade",
    "reasoning_gym": "adapters.benchmarks.reasoning_gym_tasks:grade",
    "tool_state": "adapters.benchmarks.tool_tasks:grade",
}

RUN_IN_A_MACHINE: Final = frozenset({"commands", "harbor"})
"""Verifiers whose tests are run in a machine, and graded by nobody in this process."""

WARMERS: Final[Mapping[str, str]] = {"reasoning_gym": "adapters.benchmarks.reasoning_gym_tasks:library"}


def load_tasks(config: TasksetConfig) -> list[Task]:
    """Return the tasks of a taskset in source order; raises `BadTaskset`, also if there are none. Blocking."""
    load = cast("LoadTasks", _imported(LOADERS[config.type]))
    if not (tasks := load(config)):
        raise BadTaskset("taskset: no tasks in it; name at least one dataset")
    return tasks


def warm(kind: str) -> None:
    """Import what tasksets of `kind` need; nothing for a kind that needs nothing large."""
    if kind in WARMERS:
        _imported(WARMERS[kind])()


def find_grader(verifier: str) -> GradeAnswer:
    """Return the function that grades for `verifier`; raises `BadTaskset` if nobody knows it."""
    if verifier not in GRADERS:
        raise BadTaskset(f"no verifier is called {verifier!r}; there are {', '.join(sorted(GRADERS))}")
    return cast("GradeAnswer", _imported(GRADERS[verifier]))


def _imported(place: str) -> Any:
    module, _, name = place.partition(":")
    return getattr(import_module(module), name)
