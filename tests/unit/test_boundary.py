"""The switch that kills a process at a named place, at the n-th hit; and that it does nothing in production."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Generator
from pathlib import Path

import pytest

from gym_bus import boundary
from gym_bus.boundary import BOUNDARIES, POINTS, InjectedFault, hook_from

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(autouse=True)
def no_hook_is_left() -> Generator[None]:
    yield
    boundary.install(None)


def test_without_a_wish_nothing_is_armed() -> None:
    """In production `reach` does nothing."""
    assert hook_from(None, None) is None
    assert hook_from("", "") is None
    assert not boundary.is_armed()
    boundary.reach("harness", "appended")


@pytest.mark.parametrize(
    "spec",
    [
        "harness.nowhere:kill:1",
        "nobody.appended:kill:1",
        "appended:kill:1",
        "harness.appended",
        "harness.appended:explode:1",
        "harness.appended::1",
        ":kill:1",
    ],
)
def test_an_unknown_place_or_action_is_refused(spec: str) -> None:
    """A fault that would never happen is an error that shows what can be asked for."""
    with pytest.raises(ValueError, match=r"want <boundary>:<kill.*harness\.appended"):
        hook_from(spec, None)


@pytest.mark.parametrize("count", ["x", "1.5"])
def test_a_count_that_is_no_number_is_refused(count: str) -> None:
    """So is a count that cannot be counted to."""
    with pytest.raises(ValueError, match="invalid literal"):
        hook_from(f"harness.appended:kill:{count}", None)


@pytest.mark.parametrize("nth", [1, 2, 5])
def test_it_strikes_at_the_nth_hit_only(nth: int) -> None:
    """Not before, not after, and at no other place."""
    boundary.install(hook_from(f"harness.appended:raise:{nth}", None))
    assert boundary.is_armed()
    for hit in range(1, 8):
        boundary.reach("harness", "before_append")
        boundary.reach("sandbox", "appended")
        if hit == nth:
            with pytest.raises(InjectedFault, match=r"harness\.appended"):
                boundary.reach("harness", "appended")
        else:
            boundary.reach("harness", "appended")


def test_a_count_may_be_left_out() -> None:
    """It is the first hit then."""
    boundary.install(hook_from("harness.appended:raise", None))
    with pytest.raises(InjectedFault):
        boundary.reach("harness", "appended")


def test_a_point_that_a_kind_does_not_have_is_no_boundary() -> None:
    """The runtime passes points that not every kind declares."""
    reached: list[str] = []
    boundary.install(reached.append)
    boundary.reach("verifier", "fact_received")
    boundary.reach("cli", "appended")
    boundary.reach("verifier", "appended")
    assert reached == ["verifier.appended"]


def test_names_are_unique() -> None:
    assert len(set(BOUNDARIES)) == len(BOUNDARIES) == sum(map(len, POINTS.values()))


def test_what_was_hit_is_written_once(tmp_path: Path) -> None:
    """Each name gets one line, also when nothing is to be struck, and also when several processes write."""
    coverage = tmp_path / "coverage"
    for _ in range(2):
        boundary.install(hook_from("sandbox.acked:raise:99", str(coverage)))
        for _ in range(5):
            boundary.reach("harness", "appended")
            boundary.reach("sandbox", "acked")
    assert sorted(coverage.read_text().split()) == sorted(["harness.appended", "sandbox.acked"] * 2)


def test_it_kills_the_process_at_once() -> None:
    """SIGKILL: nothing after the boundary runs, not even what is cleaned up at exit."""
    code = (
        "import atexit; from gym_bus.boundary import reach\n"
        "atexit.register(print, 'cleaned up')\n"
        "for n in range(5): print(n, flush=True); reach('harness', 'appended')\n"
    )
    environ = {**os.environ, "PYTHONPATH": str(ROOT), "GYM_BUS_FAULT": "harness.appended:kill:3"}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environ, capture_output=True, text=True, timeout=30, check=False
    )
    assert done.returncode == -signal.SIGKILL
    assert done.stdout.split() == ["0", "1", "2"]


def test_a_process_with_a_bad_wish_does_not_start() -> None:
    """A test that asks for the impossible fails instead of passing undisturbed."""
    environ = {**os.environ, "PYTHONPATH": str(ROOT), "GYM_BUS_FAULT": "harness.nowhere:kill:1"}
    command = [sys.executable, "-c", "import gym_bus.boundary"]
    done = subprocess.run(command, env=environ, capture_output=True, text=True, timeout=30, check=False)
    assert done.returncode == 1
    assert "harness.nowhere:kill:1" in done.stderr
