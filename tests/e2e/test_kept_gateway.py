"""The gateway as the command line asks for it and the supervisor keeps it, with kill -9 of both."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from gym_bus.status_file import supervisor_pid
from tests.support.real_run import RealRun

pytestmark = pytest.mark.filterwarnings("ignore:subprocess:ResourceWarning")  # a server outlives whoever started it


@pytest.fixture
def place(tmp_path: Path) -> Iterator[RealRun]:
    run = RealRun(tmp_path)
    try:
        yield run
    finally:
        run.stop()


def status(run: RealRun) -> dict[str, Any]:
    told = run.cli("gateway", "status", "--json")
    facts: dict[str, Any] = json.loads(told.stdout)
    assert told.returncode == (0 if facts["state"] == "running" else 1)
    return facts


def until(run: RealRun, condition: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
    deadline = time.monotonic() + 60
    while not condition(facts := status(run)):
        assert time.monotonic() < deadline, facts
        time.sleep(0.1)
    return facts


def is_well(facts: dict[str, Any]) -> bool:
    found: bool = httpx.get(f"{facts['url']}/healthz", timeout=5).json() == {"status": "ok"}
    return found


def test_it_is_there_until_it_is_given_up(place: RealRun) -> None:
    """Killed, it comes back at its address; its supervisor killed, it goes on, and the next one keeps it; then it is ended for good."""
    before = status(place)
    assert (before["state"], before["is_wanted"], before["pid"]) == ("not running", False, None)
    assert place.cli("gateway", "down").stdout == "no gateway was running\n"
    came_up = place.cli("gateway", "up")
    assert came_up.returncode == 0, came_up.stderr
    first = status(place)
    assert first["url"] in came_up.stdout
    assert (first["is_wanted"], first["remote_url"], first["restarts"]) == (True, None, 0)
    assert is_well(first)

    os.kill(first["pid"], signal.SIGKILL)
    second = until(place, lambda facts: facts["state"] == "running" and facts["pid"] not in {first["pid"], None})
    assert (second["url"], second["socket"]) == (first["url"], first["socket"])
    assert is_well(second)

    keeper = supervisor_pid(place.data_dir)
    assert keeper is not None
    os.kill(keeper, signal.SIGKILL)
    orphaned = until(place, lambda facts: facts["supervisor"] == "not running")
    assert (orphaned["state"], orphaned["pid"], orphaned["is_wanted"]) == ("running", second["pid"], True)
    assert place.cli("bus", "up").returncode == 0
    adopted = until(place, lambda facts: facts["restarts"] is not None)
    assert adopted["pid"] == second["pid"]
    os.kill(second["pid"], signal.SIGKILL)
    third = until(place, lambda facts: facts["state"] == "running" and facts["pid"] not in {second["pid"], None})
    assert third["url"] == first["url"]

    assert place.cli("bus", "down").returncode == 0
    assert status(place)["pid"] is None
    assert place.cli("bus", "up").returncode == 0
    until(place, lambda facts: facts["state"] == "running")
    down = place.cli("gateway", "down")
    assert (down.returncode, down.stdout) == (0, "the gateway is down\n"), down.stderr
    time.sleep(1)
    after = status(place)
    assert (after["state"], after["pid"], after["is_wanted"]) == ("not running", None, False)
    assert after["supervisor"].startswith("running")


def test_one_that_cannot_start_says_why(tmp_path: Path) -> None:
    """Soon, with what the gateway itself says; nobody goes on wanting it."""
    run = RealRun(tmp_path, {"GYM_BUS_DEFAULT_HOST": "127.0.0.1"})
    try:
        failed = run.cli("gateway", "up")
        assert failed.returncode == 1
        assert "this machine to itself" in failed.stderr
        assert not status(run)["is_wanted"]
    finally:
        run.stop()
