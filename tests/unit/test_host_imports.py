"""What every host of actors loads before it does anything: nothing that only some of them need, or only for some runs.

(aiohttp is there: the client of NATS loads it.)
"""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.support.gateway_process import ROOT

LATER = {"aiodocker", "anthropic", "duckdb", "e2b", "mcp", "openai", "starlette", "uvicorn"}


@pytest.mark.parametrize("module", ["actors.host", "actors.wiring", "gym_bus.supervisor", "adapters.benchmarks.grader"])
def test_what_is_loaded_when_it_is_needed(module: str) -> None:
    code = f"import sys, {module}\nprint(sorted({LATER!r} & set(sys.modules)))"
    done = subprocess.run(
        [sys.executable, "-c", code], check=True, capture_output=True, text=True, cwd=ROOT, timeout=120
    )
    assert done.stdout.strip() == "[]"
