"""Verdicts by tests that are run in a fresh machine: what is asked of the sandbox actor, and what its answer is worth."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any, Final, Literal

from adapters.benchmarks import cases
from adapters.benchmarks.base import Grade
from adapters.benchmarks.harbor.rewards import BadReward, reward_of
from gym_bus.errors import BadTaskset
from schemas.cases import CaseRun
from schemas.events import GradingDone, GradingRequested, VerdictRequested
from schemas.sandboxes import SandboxConfig
from schemas.tasks import Staged
from schemas.values import Failure

VERSION: Final = "commands-1"
OUTPUT_SHOWN: Final = 400
_FAILED: Final = re.compile(r"(exit|signal|out_of_memory):(?!0$)(.+)")
"""What a session says of a solution that did not end with 0."""


def wanted(request: VerdictRequested) -> GradingRequested:
    """Return what is to be run for a verdict; raises `BadTaskset` if the task does not say it."""
    data: dict[str, Any] = request.verifier_data
    if request.sandbox is None:
        msg = "a task whose tests are run hands in `files` or its `machine`, not its `answer`"
        raise BadTaskset(msg)
    try:
        runs = tuple(CaseRun.model_validate(case) for case in data.get("cases", ()))
        return GradingRequested(
            sandbox=_spacious(request.sandbox, runs),
            files=request.evidence.files,
            artifacts=tuple(data.get("artifacts", ())),
            is_whole=bool(data.get("is_whole", False)),
            services=tuple(data.get("services", ())),
            tests=dict(data.get("tests", {})),
            command=None if data["command"] is None else str(data["command"]),
            timeout_s=float(data.get("timeout_s", 60.0)),
            cases=runs,
            staged=Staged.model_validate(data["staged"]) if data.get("staged") else None,
            rewards_in=data.get("rewards_in"),
        )
    except (KeyError, TypeError, ValueError) as error:
        msg = f"the task's tests cannot be read: {error}"
        raise BadTaskset(msg) from error


def _spacious(sandbox: SandboxConfig, cases: tuple[CaseRun, ...]) -> SandboxConfig:
    """Return the machine with room for the output of each case: what is right is not to be cut."""
    least = max((case.kept_bytes for case in cases), default=0)
    if sandbox.limits.output_bytes >= least:
        return sandbox
    return sandbox.model_copy(update={"limits": sandbox.limits.replaced(output_bytes=least)})


def graded(request: VerdictRequested) -> Literal["files", "machine"]:
    """Return what a verdict by tests is about."""
    return "machine" if request.verifier_data.get("is_whole") else "files"


def worth(request: VerdictRequested, done: GradingDone) -> Grade | Failure:
    """Return what the tests say: by their exit code (1 for 0), or by the reward that they wrote, without which there is none.

    Where there are cases too, they count if the tests are worth anything.
    """
    if done.refused:
        return Grade(0.0, failure_reason=done.refused)
    data = request.verifier_data
    if data.get("rewards_in"):
        return _written(request, done)
    grade = Grade(1.0) if data["command"] is None else _of_tests(done)
    if not grade.reward:
        grade = replace(grade, failure_reason=_told(request, done))
    if grade.reward and data.get("expected"):
        return cases.worth(data["expected"], done.cases, partial=bool(data.get("partial")))
    return grade


def _of_tests(done: GradingDone) -> Grade:
    if done.ended_by == "exit" and done.exit_code == 0:
        return Grade(1.0)
    return Grade(0.0)


def _written(request: VerdictRequested, done: GradingDone) -> Grade | Failure:
    told = _told(request, done)
    if done.ended_by != "exit":
        return Failure(kind="verifier_error", message=told, stage="verification")
    if done.rewards_changed:
        message = "something outlived the tests and wrote a reward, so theirs is not known"
        return Failure(kind="reward_invalid", message=message, stage="verification")
    try:
        grade = reward_of(done.rewards)
    except BadReward as error:
        kind: Literal["reward_invalid", "reward_missing"] = "reward_invalid" if done.rewards else "reward_missing"
        return Failure(kind=kind, message=f"{error}; {told}", stage="verification")
    is_full = grade.reward >= 1
    return grade if is_full else replace(grade, failure_reason=told)


def _told(request: VerdictRequested, done: GradingDone) -> str:
    """Return what may explain a reward that is not full: how a solution failed, which artifacts are not there, how the tests ended."""
    told = (
        [f"the solution failed ({solved[1]} {solved[2]})"]
        if (solved := _FAILED.fullmatch(request.evidence.stop_reason))
        else []
    )
    if done.missing:
        told.append(f"artifacts that are not there: {', '.join(done.missing)}")
    return "; ".join([*told, _ended(done)])


def _ended(done: GradingDone) -> str:
    """Return how the tests ended, with the end of what they printed."""
    how = {
        "exit": f"ended with {done.exit_code}",
        "signal": f"were ended by a signal ({done.exit_code})",
        "timeout": f"were not done after {done.duration_s:g} s",
        "out_of_memory": "needed more memory than there was",
    }[done.ended_by]
    tail = done.output.strip()[-OUTPUT_SHOWN:]
    return f"the tests {how}: {tail}" if tail else f"the tests {how}"
