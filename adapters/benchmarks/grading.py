"""Grading from the outside: a child process that is killed if it does not answer in time, and started again."""

from __future__ import annotations

import asyncio
import sys
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from itertools import count
from pathlib import Path
from typing import Any, Final

import pydantic_core

from adapters.benchmarks.base import Grade
from gym_bus.errors import BadTaskset, Retryable
from schemas.tasks import Evidence

ROOT: Final = Path(__file__).resolve().parents[2]
"""Where the child finds our packages."""

LINE_MAX_BYTES: Final = 1024 * 1024
CLOSE_TIMEOUT_S: Final = 2.0
WARM_TIMEOUT_S: Final = 120.0
GRADED_BY: Final = ("gym-bus", "math-verify", "reasoning-gym")


class GradingFailed(Retryable):
    """There is no grade: the scorer raised, hung, or took its process with it."""


class GraderProcess:
    """Grades one answer after the other in a child process, started at the first; at most `max_waiting` wait."""

    def __init__(self, timeout_s: float = 30.0, max_waiting: int = 4096) -> None:
        self._timeout_s = timeout_s
        self._max_waiting = max_waiting
        self._waiting = 0
        self._turn = asyncio.Lock()
        self._process: asyncio.subprocess.Process | None = None
        self._numbers = count(1)
        self._version: str | None = None

    @property
    def version(self) -> str:
        """Return what identifies the code that grades: the versions of the packages it is made of."""
        if self._version is None:
            self._version = " ".join(f"{name}={_version(name)}" for name in GRADED_BY)
        return self._version

    async def grade(self, verifier: str, verifier_data: dict[str, Any], evidence: Evidence) -> Grade:
        """Return the grade; raises `GradingFailed`. The deadline runs from the moment it is this answer's turn."""
        if self._waiting >= self._max_waiting:
            raise GradingFailed(f"{self._waiting} answers wait for their grade already")
        request = {
            "id": next(self._numbers),
            "verifier": verifier,
            "verifier_data": verifier_data,
            "evidence": evidence,
        }
        line = pydantic_core.to_json(request) + b"\n"
        self._waiting += 1
        try:
            async with self._turn:
                answer = await self._ask(line)
        finally:
            self._waiting -= 1
        if answer.get("id") != request["id"]:
            raise GradingFailed(f"{verifier}: the grader answered another question")
        if "grade" not in answer:
            raise GradingFailed(f"{verifier}: {answer.get('error')}")
        return Grade(**answer["grade"])

    async def load(self, taskset: dict[str, Any], path: Path, timeout_s: float) -> int:
        """Have the tasks of a taskset written to `path` as JSON lines; return how many. Raises `BadTaskset`, `GradingFailed`."""
        request = {"id": next(self._numbers), "load": taskset, "path": str(path)}
        async with self._turn:
            answer = await self._ask(pydantic_core.to_json(request) + b"\n", timeout_s)
        if "bad_taskset" in answer:
            raise BadTaskset(answer["bad_taskset"])
        if "loaded" not in answer:
            raise GradingFailed(f"the tasks could not be loaded: {answer.get('error')}")
        return int(answer["loaded"])

    async def warm(self, kind: str) -> None:
        """Start the child and let it import what tasksets of `kind` need, so that the first request finds it ready."""
        request = {"id": next(self._numbers), "warm": kind}
        async with self._turn:
            await self._ask(pydantic_core.to_json(request) + b"\n", WARM_TIMEOUT_S)

    async def aclose(self) -> None:
        """End the child; the next grade starts another one."""
        async with self._turn:
            if self._process and self._process.stdin:
                self._process.stdin.close()
                with suppress(TimeoutError):
                    async with asyncio.timeout(CLOSE_TIMEOUT_S):
                        await self._process.wait()
            await self._kill()

    async def _ask(self, line: bytes, timeout_s: float | None = None) -> dict[str, Any]:
        """Send one request and wait for its answer; the child does not outlive a request that got none."""
        timeout_s = timeout_s or self._timeout_s
        try:
            async with asyncio.timeout(timeout_s):
                return await self._exchange(line)
        except TimeoutError as error:
            await self._kill()
            raise GradingFailed(f"no answer within {timeout_s:g} s; the grader was killed") from error
        except (OSError, ValueError) as error:  # ValueError: an answer that is no JSON, or endless
            code = await self._kill()
            raise GradingFailed(f"the grader died (exit code {code}): {error!r}") from error
        except asyncio.CancelledError:
            await self._kill()  # its answer would be taken for the next one's
            raise

    async def _exchange(self, line: bytes) -> dict[str, Any]:
        if self._process is None or self._process.returncode is not None:
            self._process = await _start()
        stdin, stdout = self._process.stdin, self._process.stdout
        if stdin is None or stdout is None:
            raise BrokenPipeError("it was started without pipes")
        stdin.write(line)
        await stdin.drain()
        answer = await stdout.readline()
        if not answer:
            raise BrokenPipeError("its output ended")
        found: dict[str, Any] = pydantic_core.from_json(answer)
        return found

    async def _kill(self) -> int | None:
        """Kill the child if it lives; return how it ended."""
        process, self._process = self._process, None
        if process is None:
            return None
        with suppress(ProcessLookupError):
            process.kill()
        with suppress(TimeoutError):
            async with asyncio.timeout(CLOSE_TIMEOUT_S):
                await process.wait()
        return process.returncode


async def _start() -> asyncio.subprocess.Process:
    """Start the child with an environment of its own: scorers see no secret."""
    return await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "adapters.benchmarks.grader",
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
        cwd="/",
        env={"PATH": "/usr/bin:/bin", "LANG": "C.UTF-8", "PYTHONPATH": str(ROOT)},
        limit=LINE_MAX_BYTES,
    )


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "none"
