"""What a benchmark is to the rest of gym-bus: tasks, and a way to grade answers to them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from schemas.tasks import Evidence, Task


@dataclass(frozen=True, slots=True)
class Grade:
    """A reward with its parts; `failure_reason` says in words why it is not full."""

    reward: float
    components: Mapping[str, float] = field(default_factory=dict)
    failure_reason: str | None = None


LoadTasks = Callable[[Any], list[Task]]
"""Takes a taskset's configuration, returns its tasks in source order; raises `BadTaskset`. Blocking."""

GradeAnswer = Callable[[Mapping[str, Any], Evidence], Grade]
"""Takes a task's `verifier_data` and the evidence; blocking and possibly slow: runs in the grader's process."""
