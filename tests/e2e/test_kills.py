"""Real processes, really killed: the host, the bus, the command line, everything."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from gym_bus import boundary
from schemas.events import Claimed, ToolCallLost
from tests.support.checks import check_ledger, check_log, final_table
from tests.support.engine import needs_engine
from tests.support.real_run import RealRun
from tests.support.world import read_ledger

SAMPLE = (
    "collector.claimed",
    "collector.appended",
    "harness.received",
    "harness.append_sent",
    "model.effect_done",
    "sandbox.effect_started",
    "sandbox.effect_done",
    "sandbox.before_ack",
    "verifier.effect_started",
    "projector.before_commit",
    "projector.exported",
)
BUS_SAMPLE = ("harness.appended", "sandbox.append_sent", "model.appended")
NEEDS_A_LOSS = {"sandbox.decided"}
ALL = [name for name in boundary.BOUNDARIES if name not in NEEDS_A_LOSS]

Table = dict[str, tuple[str, float | None]]


@cache
def undisturbed() -> Table:
    """Return the final table of a run that nothing happens to."""
    with TemporaryDirectory() as directory:
        run = RealRun(Path(directory))
        try:
            done = run.cli(*run.arguments())
            assert done.returncode == 0, done.stdout + done.stderr
            table = final_table(run.events())
        finally:
            run.stop()
    assert len(table) == 12
    return table


@pytest.fixture
def run(tmp_path: Path) -> Iterator[RealRun]:
    """A run's place, with nothing left behind afterwards."""
    place = RealRun(tmp_path)
    yield place
    place.stop()
    assert not place.pids()


def check(run: RealRun) -> None:
    """Check what must hold at the end of any run."""
    events = run.events()
    check_log(events)
    check_ledger(events, read_ledger(run.ledger))
    assert final_table(events) == undisturbed()
    assert len(run.rows()) == 12
    doctor = run.cli("doctor")
    assert doctor.returncode == 0, doctor.stdout + doctor.stderr


def kill_at(run: RealRun, name: str, what: str) -> None:
    """Run with a fault at the boundary `name`; the run must end by itself and as if nothing had happened."""
    once = run.directory / "once"
    nth = 1 if name.startswith(("projector.", "collector.")) else 3
    run.environ = {"GYM_BUS_FAULT": f"{name}:{what}:{nth}", "GYM_BUS_FAULT_ONCE": str(once)}
    done = run.cli(*run.arguments())
    assert once.exists(), f"{name} was never hit"
    assert done.returncode == 0, done.stdout + done.stderr
    check(run)


@pytest.mark.parametrize("name", SAMPLE)
def test_host_killed_at(name: str, run: RealRun) -> None:
    """SIGKILL at a boundary: the run ends by itself with the undisturbed table."""
    kill_at(run, name, "kill")


@pytest.mark.parametrize("name", BUS_SAMPLE)
def test_bus_killed_at(name: str, run: RealRun) -> None:
    """SIGKILL of the server at a boundary: the run ends by itself with the undisturbed table."""
    kill_at(run, name, "kill_bus")


@pytest.mark.kill_all
@pytest.mark.parametrize("what", ["kill", "kill_bus"])
@pytest.mark.parametrize("name", ALL)
def test_every_boundary(name: str, what: str, run: RealRun) -> None:
    """The same at every declared boundary."""
    kill_at(run, name, what)


def test_command_line_killed(run: RealRun) -> None:
    """The run goes on without the command line; `eval resume` attaches to it."""
    command = run.spawn(*run.arguments(latency_s=0.2))
    run.wait_for_calls(6)
    os.kill(command.pid, signal.SIGKILL)
    command.wait(10)
    if command.stdout:
        command.stdout.close()
    done = run.cli("eval", "resume", run.run_id)
    assert done.returncode == 0, done.stdout + done.stderr
    check(run)


def test_everything_killed(run: RealRun) -> None:
    """Kill -9 of every process in the middle: `eval resume` brings all up again and the run ends as if nothing had happened."""
    command = run.spawn(*run.arguments(latency_s=0.2))
    run.wait_for_calls(9)
    assert run.kill_everything() >= 4
    command.wait(10)
    if command.stdout:
        command.stdout.close()
    done = run.cli("eval", "resume", run.run_id)
    assert done.returncode == 0, done.stdout + done.stderr
    check(run)
    asked = [line["key"] for line in read_ledger(run.ledger) if line["kind"] == "model"]
    assert len(asked) == len(set(asked))


@pytest.mark.parametrize("sandbox", ["bubblewrap", pytest.param("docker", marks=needs_engine)])
def test_host_of_real_machines_killed(run: RealRun, sandbox: str) -> None:
    """With real machines: a killed host leaves no process of them, and the run ends with the undisturbed table."""
    once = run.directory / "once"
    run.environ = {"GYM_BUS_FAULT": "sandbox.effect_done:kill:4", "GYM_BUS_FAULT_ONCE": str(once)}
    done = run.cli(*run.arguments(sandbox=sandbox))
    assert once.exists()
    assert done.returncode == 0, done.stdout + done.stderr
    check(run)
    manifest = json.loads((run.directory / "out" / "manifest.json").read_text())
    assert manifest["counts"]["scored"] == 12


def test_two_hosts_share_the_work(run: RealRun) -> None:
    """Two hosts take sessions side by side; one of them killed for good, the other ends the run."""
    run.environ = {"GYM_BUS_HOSTS": "2"}
    done = run.cli(*run.arguments(latency_s=0.2))
    assert done.returncode == 0, done.stdout + done.stderr
    check(run)
    workers = {
        e.data.worker.partition(".")[0] for e in run.events() if isinstance(e.data, Claimed) and e.actor == "harness"
    }
    assert workers == {"h0", "h1"}


def test_a_host_drains_on_sigterm(run: RealRun) -> None:
    """SIGTERM lets a host end what it has in hand: nothing is lost, and the next one goes on."""
    command = run.spawn(*run.arguments(latency_s=0.3))
    run.wait_for_calls(6)
    status = json.loads((run.data_dir / "supervisor" / "status.json").read_text())
    os.kill(status["processes"]["h0"]["pid"], signal.SIGTERM)
    output, _ = command.communicate(timeout=90)
    assert command.returncode == 0, output
    check(run)
    assert not [e for e in run.events() if isinstance(e.data, ToolCallLost)]
