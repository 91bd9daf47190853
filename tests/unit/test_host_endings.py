"""A host that cannot start leaves a line that says why, whatever it was: `gym-bus gateway up` shows it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from actors.host import reason_of
from gym_bus.cli.gateway_up import reason_in
from gym_bus.errors import Permanent
from tests.support.gateway_process import ROOT


def ended(kinds: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Return what a host said that ended at its start."""
    return subprocess.run(
        [sys.executable, "-m", "actors.host", "--kinds", kinds],
        env={**os.environ, **environment},
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_an_error_that_nobody_foresaw_leaves_its_line(tmp_path: Path) -> None:
    """A file is where the directory should be: an `OSError`, which is none of ours."""
    (tmp_path / "file").touch()
    done = ended("gateway", GYM_BUS_DATA_DIR=str(tmp_path / "file" / "data"))
    said = json.loads(done.stderr.splitlines()[-1])
    assert (done.returncode, said["event"]) == (1, "host_failed")
    assert said["reason"].startswith("NotADirectoryError: ")
    assert "Traceback" in said["exception"]
    log_path = tmp_path / "g0.log"
    log_path.write_text(done.stderr)
    assert reason_in(log_path) == said["reason"]


def test_of_a_group_the_first_is_told() -> None:
    inner = ExceptionGroup("inner", [Permanent("the queue is not there"), OSError("x")])
    assert reason_of(ExceptionGroup("outer", [inner, ValueError("y")])) == "the queue is not there"
    assert reason_of(OSError("no room")) == "OSError: no room"


@pytest.mark.parametrize("content", ["", "Traceback\n", '{"event": "host_ready"}\n', "[]\n7\n"])
def test_a_log_without_such_a_line_says_nothing(tmp_path: Path, content: str) -> None:
    (tmp_path / "g0.log").write_text(content)
    assert reason_in(tmp_path / "g0.log") == "it left no word"
