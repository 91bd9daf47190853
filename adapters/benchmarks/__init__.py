"""Tasks to solve and how answers to them are graded."""

from adapters.benchmarks.base import Grade
from adapters.benchmarks.catalog import GRADERS, load_tasks
from adapters.benchmarks.grading import GraderProcess, GradingFailed

__all__ = ["GRADERS", "Grade", "GraderProcess", "GradingFailed", "load_tasks"]
