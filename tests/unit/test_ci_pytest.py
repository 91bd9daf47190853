"""How CI runs pytest: a few failures that do not come again are named and pass, all others fail the run."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from tests.support.boxes import processes_with, unique_sleep

RUNNER: Final = Path(__file__).resolve().parents[2] / ".ci" / "pytest"
WITHIN_S: Final = 120
FAILS: Final = """
from pathlib import Path

import pytest


@pytest.mark.parametrize("number", range({count}))
def test_some(number, pytestconfig):
    runs = Path(__file__).with_name(f"runs{{number}}")
    before = len(runs.read_text()) if runs.exists() else 0
    runs.write_text("x" * (before + 1))
    assert before >= {times}, f"run {{before}}"


def test_good():
    pass
"""


def run(directory: Path, text: str, **environment: str) -> subprocess.CompletedProcess[str]:
    (directory / "test_it.py").write_text(text)
    (directory / "pytest.ini").write_text("[pytest]\n")
    command = [str(RUNNER), sys.executable, "-q", "-n", "0", "test_it.py"]
    return subprocess.run(
        command,
        cwd=directory,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=WITHIN_S,
        check=False,
    )


@pytest.mark.parametrize(
    ("count", "times", "code", "said", "runs"),
    [
        (2, 1, 0, "failed beside others, passed twice", 3),
        (1, 2, 1, "a second look", 2),
        (6, 1, 1, "6 tests failed: too many for a second look", 1),
    ],
)
def test_failures(tmp_path: Path, count: int, times: int, code: int, said: str, runs: int) -> None:
    """Some once; one twice; too many. How often each was run is what a second look means."""
    done = run(tmp_path, FAILS.format(count=count, times=times))
    assert done.returncode == code, done.stdout + done.stderr
    assert said in done.stdout
    assert [len((tmp_path / f"runs{number}").read_text()) for number in range(count)] == [runs] * count
    if code == 0:
        assert "test_it.py::test_some[1]" in done.stdout.rpartition("passed twice")[2]


def test_what_cannot_be_collected(tmp_path: Path) -> None:
    """It is no failing test, and is not looked at again."""
    done = run(tmp_path, "import nothing_of_the_kind\n")
    assert done.returncode == 2
    assert "look" not in done.stdout


def test_what_hangs(tmp_path: Path) -> None:
    """It is ended, and where it stood is said; its servers and other children go with it."""
    sleep = unique_sleep()
    text = f"import subprocess\n\ndef test_it():\n    subprocess.run({sleep.split()})\n"
    done = run(tmp_path, text, CI_PYTEST_WITHIN_S="5")
    assert done.returncode not in {0, 1}
    assert "not done in 5 s" in done.stdout
    assert "test_it.py" in done.stderr.partition("Fatal Python error: Aborted")[2]
    assert not processes_with(sleep)
