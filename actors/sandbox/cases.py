"""Running test cases in a machine for grading: each a process of its own, which finds the input of no case that comes after it."""

from __future__ import annotations

import asyncio
import shlex
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from providers.sandboxes.base import Box, SandboxUnavailable
from providers.sandboxes.capabilities import WithFiles
from schemas.cases import CaseResult, CaseRun

CASE_EXTRA_S: Final = 30.0
"""What a case may take beyond its time: its input is brought in, and what runs too long is ended."""


async def run_cases(box: Box, cases: Sequence[CaseRun], request_id: str, place: str) -> tuple[CaseResult, ...]:
    """Return what came of each of `cases`, in order; inputs are files below `place`. Raises `BoxLost`, `SandboxUnavailable`."""
    return tuple(
        [await _run(box, case, f"{request_id}/case-{n}", f"{place}/inputs/{n}") for n, case in enumerate(cases)]
    )


async def _run(box: Box, case: CaseRun, key: str, path: str) -> CaseResult:
    source = "/dev/null"
    if case.stdin:
        source = path
        await _bring(box, case.stdin, path)
    command = f"{{ {case.command}\n}} <{shlex.quote(source)} 2>/dev/null"
    result = await box.exec(command, key=key, timeout_s=case.timeout_s)
    is_much = len(result.output.encode()) > case.kept_bytes
    return CaseResult(
        id=case.id,
        exit_code=result.exit_code,
        output=result.output.encode()[: case.kept_bytes].decode(errors="ignore"),
        truncated=result.truncated or is_much,
        ended_by=result.ended_by,
        duration_s=round(result.duration_s, 4),
    )


async def _bring(box: Box, text: str, path: str) -> None:
    if not isinstance(box, WithFiles):
        msg = "this type of sandbox cannot be given the input of a test case: set `grading_sandbox` to one that can"
        raise SandboxUnavailable(msg)
    with tempfile.TemporaryDirectory(prefix="gym-bus-case-") as directory:
        source = Path(directory) / "input"
        await asyncio.to_thread(source.write_text, text, encoding="utf-8")
        await box.put(source, path, mode=0o644)
