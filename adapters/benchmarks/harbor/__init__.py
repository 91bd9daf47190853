"""Tasks in Harbor's format: folders with `task.toml`, `instruction.md`, `environment/`, `tests/` and `solution/` (docs/harbor.md)."""

from adapters.benchmarks.harbor.agents import why_not
from adapters.benchmarks.harbor.tasks import Found, found_in, load

__all__ = ["Found", "found_in", "load", "why_not"]
