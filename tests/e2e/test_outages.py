"""The model, the command line or the disk goes away for a while: the run waits, says so, and ends complete."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from schemas.envelope import Envelope
from schemas.events import ModelCallFailed, RolloutFinished, RunPaused, RunResumed, SessionRequested
from tests.support.backend import backend, write_config
from tests.support.checks import check_ledger, check_log, final_table
from tests.support.real_run import RealRun
from tests.support.world import read_ledger

MIB = 1024**2
OUTAGE_S = 15.0


@pytest.fixture
def run(tmp_path: Path) -> Iterator[RealRun]:
    """A run's place, with nothing left behind afterwards."""
    place = RealRun(tmp_path, run_id="r1")
    yield place
    place.stop()
    assert not place.pids()


def start(run: RealRun, *arguments: str) -> tuple[str, ...]:
    """Return the arguments that start the run."""
    return ("eval", "run", "--run-id", run.run_id, "--output", str(run.directory / "out"), *arguments)


def check_all_right(run: RealRun, count: int) -> list[Envelope]:
    """Check that every rollout was scored 1, at the first attempt, and is in the results; return the events."""
    events = run.events()
    check_log(events)
    assert list(final_table(events).values()) == [("scored", 1.0)] * count
    assert sum(isinstance(e.data, RolloutFinished) for e in events) == count, "an outage of the model costs no attempt"
    assert len(run.rows()) == count
    assert {row["reward"] for row in run.rows()} == {1.0}
    return events


def until(what: str, is_so: object, patience_s: float = 60.0) -> None:
    """Wait until `is_so()`."""
    assert callable(is_so)
    deadline = time.monotonic() + patience_s
    while not is_so():
        assert time.monotonic() < deadline, f"never: {what}"
        time.sleep(0.1)


# -- the model -----------------------------------------------------------------------------------------------------------------


def test_the_model_is_away_for_15_s(run: RealRun) -> None:
    """500 to everything, then well: calls are tried again at growing intervals, and no rollout pays for it."""
    with backend(chat=500) as fake:

        def heal() -> None:
            fake.wait_for_calls(1)
            time.sleep(OUTAGE_S)
            fake.chat = "well"

        healing = threading.Thread(target=heal)
        healing.start()
        done = run.cli(*start(run, "--config", str(write_config(run.directory, fake, tasks=6))))
        healing.join()
        assert done.returncode == 0, done.stdout + done.stderr
        assert "problem: " in done.stdout
        assert "answered 500" in done.stdout
        calls = len(fake.calls)
    events = check_all_right(run, 6)
    failed = [e for e in events if isinstance(e.data, ModelCallFailed)]
    assert calls == len(failed) + 6
    for rollout in {e.rollout_id for e in failed}:
        waits = [e.data.retry_in_s for e in failed if e.rollout_id == rollout and isinstance(e.data, ModelCallFailed)]
        print(rollout, waits)
        assert len(waits) >= 4
        for n, wait in enumerate(waits):
            assert wait is not None
            assert 0.5 * min(0.5 * 2**n, 8) <= wait <= 1.5 * min(0.5 * 2**n, 8)


def test_connections_break_in_the_middle_of_answers(run: RealRun) -> None:
    """Half an answer is no answer: the call is made again, and what was cut off counts for nothing."""
    with backend(chat="torn") as fake:
        config = str(write_config(run.directory, fake, tasks=4))
        command = run.spawn(*start(run, "--config", config))
        fake.wait_for_calls(6)
        fake.chat = "well"
        said, _ = command.communicate(timeout=60)
        assert command.returncode == 0, said
    events = check_all_right(run, 4)
    kinds = {e.data.failure.kind for e in events if isinstance(e.data, ModelCallFailed)}
    print(kinds, said)
    assert kinds == {"transport_unreachable"}


# -- the command line ----------------------------------------------------------------------------------------------------------


def test_ctrl_c_detaches_and_attach_sees_the_end(run: RealRun) -> None:
    """130, and the commands that bring one back; the run is not touched."""
    with backend(delay_s=6.0) as fake:
        command = run.spawn(*start(run, "--config", str(write_config(run.directory, fake, tasks=4))))
        fake.wait_for_calls(4)
        command.send_signal(signal.SIGINT)
        said, _ = command.communicate(timeout=20)
        print(said)
        assert command.returncode == 130
        for way in ("eval attach r1", "eval cancel r1", "eval resume r1"):
            assert f"gym-bus {way}" in said
        assert "the run goes on" in said
        done = run.cli("eval", "attach", "r1")
        assert done.returncode == 0, done.stdout + done.stderr
    check_all_right(run, 4)


def test_ctrl_c_twice_cancels(run: RealRun) -> None:
    """1, and what is under way winds up: planned = scored + failed + masked + missing."""
    with backend(delay_s=4.0) as fake:
        config = str(write_config(run.directory, fake, tasks=6, num_samples_in_parallel=2))
        command = run.spawn(*start(run, "--config", config))
        fake.wait_for_calls(2)
        command.send_signal(signal.SIGINT)
        time.sleep(0.7)
        command.send_signal(signal.SIGINT)
        said, _ = command.communicate(timeout=60)
        print(said)
    assert command.returncode == 1
    assert "cancelling" in said
    assert "run r1 cancelled: 6 planned = " in said
    assert "6 missing" in said
    events = run.events()
    check_log(events)
    assert all(reward is None for _, reward in final_table(events).values())
    status = run.cli("eval", "status", "r1")
    assert "run r1: cancelled" in status.stdout


# -- the store -----------------------------------------------------------------------------------------------------------------


def store_status(run: RealRun) -> str:
    """Return how the store is by `eval status`."""
    done = run.cli("eval", "status", "--json")
    return str(json.loads(done.stdout)["store"]["state"]) if done.returncode == 0 else f"({done.stderr})"


def check_scripted(run: RealRun, count: int) -> None:
    """Check log, outside ledger and results of a run of the scripted model."""
    events = run.events()
    check_log(events)
    check_ledger(events, read_ledger(run.ledger))
    assert {state for state, _ in final_table(events).values()} == {"scored"}
    assert len(final_table(events)) == count
    assert len(run.rows()) == count


@pytest.mark.skipif(os.getuid() != 0, reason="only root can mount a small disk")
def test_the_disk_is_full(run: RealRun) -> None:
    """Nothing is stored while there is no room; once there is, the server is restarted by itself and the run ends complete."""
    store = run.data_dir / "bus" / "store"
    store.mkdir(parents=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=24m", "tmpfs", str(store)], check=True)
    try:
        run.environ = {"GYM_BUS_STORE_MAX_BYTES": str(256 * MIB), "GYM_BUS_STORE_MIN_FREE_BYTES": str(2 * MIB)}
        command = run.spawn(*run.arguments(size=40, repeats=3, latency_s=0.2))
        run.wait_for_calls(20)
        seen = {e.event_id for e in run.events()}
        ballast = store / "ballast"
        fill(ballast)
        until("the store is full", lambda: fill(ballast) or store_status(run) == "full")
        status = run.cli("eval", "status", "r1")
        print(status.stdout + status.stderr)
        assert "store: full: " in status.stdout
        time.sleep(3)
        calls = run.ledger.read_bytes().count(b"\n")
        time.sleep(3)
        assert run.ledger.read_bytes().count(b"\n") == calls, "work goes on although nothing can be recorded"
        assert command.poll() is None
        ballast.unlink()
        said, _ = command.communicate(timeout=90)
        print(said)
        assert command.returncode == 0, said
        assert "the store is full" in said
        assert seen <= {e.event_id for e in run.events()}, "an acknowledged event is gone"
        check_scripted(run, 120)
        assert store_status(run) == "ok"
    finally:
        run.stop()
        subprocess.run(["umount", str(store)], check=True)


def fill(ballast: Path) -> None:
    """Take all the room there is."""
    with ballast.open("ab", buffering=0) as file:
        try:
            while True:
                file.write(bytes(64 * 1024))
        except OSError:
            return


def test_the_store_is_nearly_full(run: RealRun) -> None:
    """At 90 % of the limit nothing new starts: the run pauses and says why; with a higher limit it goes on by `eval resume`."""
    run.environ = {"GYM_BUS_STORE_MAX_BYTES": str(MIB)}
    arguments = run.arguments("num_samples_in_parallel=2", size=50, repeats=2, latency_s=0.15)
    with_raised_limit(run, arguments, 100, "run r1: paused", "paused because: the store holds ")
    pauses = [e.data for e in run.events() if isinstance(e.data, RunPaused)]
    assert [p.kind for p in pauses] == ["store"]
    assert any(isinstance(e.data, RunResumed) for e in run.events())


def test_the_store_is_at_its_limit(run: RealRun) -> None:
    """All begin while there is room, and need more: they wait, `eval status` says so, and all goes on with a higher limit."""
    run.environ = {"GYM_BUS_STORE_MAX_BYTES": str(MIB), "GYM_BUS_DRAIN_S": "2"}
    at_once = "num_samples_in_parallel=40"  # nothing is left to begin later, before which the run would pause
    arguments = run.arguments(at_once, size=20, repeats=2, latency_s=0.01, padding="\n" + 4000 * "(no hurry) ")
    seen = with_raised_limit(run, arguments, 40, "store: full: the log holds ")
    begun = sum(isinstance(e.data, SessionRequested) for e in seen)
    assert begun > sum(isinstance(e.data, RolloutFinished) for e in seen), (
        "nothing was under way, and so this test shows nothing"
    )


def with_raised_limit(run: RealRun, arguments: list[str], count: int, *said: str) -> list[Envelope]:
    """Run until `eval status` says `said`; raise the limit, resume, check that all is there; return what was there before."""
    command = run.spawn(*arguments)
    try:
        until("a full store", lambda: all(text in run.cli("eval", "status", "r1").stdout for text in said))
        print(run.cli("eval", "status", "r1").stdout)
        assert command.poll() is None
    finally:
        command.send_signal(signal.SIGINT)
        print(command.communicate(timeout=20)[0])
    seen = run.events()
    assert run.cli("bus", "down").returncode == 0
    assert not run.pids()
    run.environ = {"GYM_BUS_STORE_MAX_BYTES": str(64 * MIB)}
    done = run.cli("eval", "resume", "r1")
    assert done.returncode == 0, done.stdout + done.stderr
    assert [e.event_id for e in run.events()][: len(seen)] == [e.event_id for e in seen]
    check_scripted(run, count)
    return seen


def test_the_plan_is_gone(run: RealRun) -> None:
    """Blobs that somebody removed: the run is parked, whoever watches hears of it and is not kept waiting."""
    command = run.spawn(*run.arguments(size=20, repeats=3, latency_s=0.2))
    run.wait_for_calls(4)
    command.kill()  # it would start everything again
    command.communicate()
    assert run.cli("bus", "down").returncode == 0
    for path in (run.data_dir / "blobs").rglob("*"):
        if path.is_file():
            path.unlink()
    done = run.cli("eval", "resume", "r1")
    assert done.returncode == 1, done.stdout + done.stderr
    assert "parked: nobody could go on with the run" in done.stdout
    assert "gym-bus dlq redrive" in done.stdout
