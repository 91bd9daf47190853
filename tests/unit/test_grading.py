# ruff: noqa: ASYNC240  tests look at /proc
"""A grade comes from a process of its own, whatever happens to that process."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from adapters.benchmarks import Grade, GraderProcess, GradingFailed, catalog
from adapters.benchmarks import grader as child
from schemas.tasks import Evidence

pytest.importorskip("math_verify")
ROOT = Path(__file__).resolve().parents[2]
EVIDENCE = Evidence(answer="<answer>72</answer>", stop_reason="stop", turns=2)


@pytest.fixture
async def grader() -> AsyncIterator[GraderProcess]:
    grader = GraderProcess(timeout_s=20)
    yield grader
    await grader.aclose()


def pid_of(grader: GraderProcess) -> int:
    process: asyncio.subprocess.Process = vars(grader)["_process"]
    return process.pid


async def test_grades_come_back(grader: GraderProcess) -> None:
    assert await grader.grade("math_verify", {"answer": "72"}, EVIDENCE) == Grade(1.0)
    wrong = await grader.grade("math_verify", {"answer": "73"}, EVIDENCE)
    assert (wrong.reward, wrong.failure_reason) == (0.0, "expected '73', got '72'")
    assert "math-verify=" in grader.version


async def test_many_at_once_get_each_their_own(grader: GraderProcess) -> None:
    grades = await asyncio.gather(*(grader.grade("math_verify", {"answer": str(n)}, EVIDENCE) for n in range(60, 80)))
    assert [grade.reward for grade in grades] == [float(n == 72) for n in range(60, 80)]


async def test_what_the_scorer_raises_is_no_grade(grader: GraderProcess) -> None:
    with pytest.raises(GradingFailed, match="KeyError"):
        await grader.grade("math_verify", {}, EVIDENCE)
    with pytest.raises(GradingFailed, match="no verifier is called 'nobody'"):
        await grader.grade("nobody", {}, EVIDENCE)
    assert (await grader.grade("math_verify", {"answer": "72"}, EVIDENCE)).reward == 1


async def test_a_hanging_grade_fails_alone(grader: GraderProcess) -> None:
    """Its process is killed; who waits behind it is graded by the next one."""
    await grader.grade("math_verify", {"answer": "72"}, EVIDENCE)
    first = pid_of(grader)
    os.kill(first, signal.SIGSTOP)
    vars(grader)["_timeout_s"] = 0.1
    hanging = asyncio.ensure_future(grader.grade("math_verify", {"answer": "72"}, EVIDENCE))
    waiting = asyncio.ensure_future(grader.grade("math_verify", {"answer": "72"}, EVIDENCE))
    await asyncio.sleep(0)  # the first has its deadline now
    vars(grader)["_timeout_s"] = 20
    with pytest.raises(GradingFailed, match="no answer within"):
        await hanging
    assert (await waiting).reward == 1
    assert pid_of(grader) != first


async def test_a_dead_grader_is_replaced(grader: GraderProcess) -> None:
    await grader.grade("math_verify", {"answer": "72"}, EVIDENCE)
    os.kill(pid_of(grader), signal.SIGSTOP)
    asked = [asyncio.ensure_future(grader.grade("math_verify", {"answer": "72"}, EVIDENCE)) for _ in range(3)]
    await asyncio.sleep(0)
    os.kill(pid_of(grader), signal.SIGKILL)
    results = await asyncio.gather(*asked, return_exceptions=True)
    assert [isinstance(result, GradingFailed) for result in results] == [True, False, False]


async def test_a_cancelled_grade_is_not_the_next_ones(grader: GraderProcess) -> None:
    task = asyncio.ensure_future(grader.grade("math_verify", {"answer": "73"}, EVIDENCE))
    await asyncio.sleep(0.05)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert (await grader.grade("math_verify", {"answer": "72"}, EVIDENCE)).reward == 1


async def test_no_more_wait_than_may() -> None:
    grader = GraderProcess(max_waiting=0)
    with pytest.raises(GradingFailed, match="wait"):
        await grader.grade("math_verify", {"answer": "72"}, EVIDENCE)
    await grader.aclose()


def test_prints_of_scorers_do_not_disturb_the_protocol() -> None:
    script = (
        "import sys, types; scorer = types.ModuleType('scorer')\n"
        "def grade(data, evidence):\n"
        "    print('noise'); sys.stdout.flush(); import os; os.write(1, b'more noise'); raise SystemError('no')\n"
        "scorer.grade = grade; sys.modules['scorer'] = scorer\n"
        "from adapters.benchmarks import catalog, grader\n"
        "catalog.GRADERS = {'noisy': 'scorer:grade'}; grader.main()\n"
    )
    line = b'{"id": 1, "verifier": "noisy", "verifier_data": {}, "evidence": {"answer": null, "stop_reason": "stop", "turns": 1}}\n'
    run = subprocess.run([sys.executable, "-c", script], input=line, capture_output=True, cwd=ROOT, check=True)
    assert run.stdout == b'{"id": 1, "error": "SystemError: no"}\n'
    assert b"noise" in run.stderr


def test_every_grader_of_the_table_exists() -> None:
    assert all(callable(catalog.find_grader(name)) for name in catalog.GRADERS)
    assert child.graded({"id": 1})["error"].startswith("KeyError")


async def test_the_grader_sees_no_secret(grader: GraderProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOME_API_KEY", "secret")
    await grader.grade("math_verify", {"answer": "72"}, EVIDENCE)
    assert b"SOME_API_KEY" not in Path(f"/proc/{pid_of(grader)}/environ").read_bytes()
