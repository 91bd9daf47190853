"""What is given wrongly costs one clear message and the documented exit code; nothing is lost, nothing is left running."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from schemas.events import ModelCallFailed, RolloutFinished
from tests.support.backend import KEY, backend, write_config, write_sums
from tests.support.checks import check_log, final_table
from tests.support.real_run import RealRun

FEW_TRIES = ("model.max_tries=2", "retries.max_attempts=2", "retries.backoff_s=0.1")
Done = subprocess.CompletedProcess[str]


@pytest.fixture
def run(tmp_path: Path) -> Iterator[RealRun]:
    """A run's place, with nothing left behind afterwards."""
    place = RealRun(tmp_path, run_id="r1")
    yield place
    if place.pids():
        place.stop()
    assert not place.pids()


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealRun]:
    """One place for all that leave a working bus behind."""
    place = RealRun(tmp_path_factory.mktemp("shared"), run_id="r1")
    yield place
    if place.pids():
        place.stop()
    assert not place.pids()


def start(run: RealRun, *arguments: str) -> Done:
    """Start a run and watch it to its end."""
    return run.cli("eval", "run", "--run-id", run.run_id, "--output", str(run.directory / run.run_id), *arguments)


def refused(done: Done, code: int, *said: str) -> None:
    """Check that a command said what is wrong, in one message and without a traceback."""
    print(done.stdout + done.stderr)
    assert done.returncode == code, done.stdout + done.stderr
    for text in said:
        assert text in done.stderr, done.stderr
    assert done.stderr.startswith("error: ")
    assert "Traceback" not in done.stdout + done.stderr


def nothing_started(run: RealRun) -> None:
    """Check that there are neither processes nor a log nor results."""
    assert not run.pids()
    assert not run.data_dir.exists()
    assert not (run.directory / run.run_id).exists()


def rows_of(run: RealRun) -> list[dict[str, object]]:
    """Return the rows of rollouts.jsonl and of failures.jsonl."""
    found = [(run.directory / run.run_id / name).read_text() for name in ("rollouts.jsonl", "failures.jsonl")]
    return [json.loads(line) for text in found for line in text.split("\n") if line]


# -- tasks ---------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b'{"question": "1+1?", "answer": "2"}\n{"question": nonsense}\n', ("tasks.jsonl:2: ", "column")),
        (b'{"question": "1+1?", "answer": "2"}\n{"question": "2+', ("tasks.jsonl:2: ", "the last line is torn")),
        (b'{"question": "1+1?"}\n', ("tasks.jsonl:1: ", "no key 'answer'", "'question'")),
        (b"", ("tasks.jsonl: no tasks in it",)),
        (b"\n \n", ("tasks.jsonl: no tasks in it",)),
    ],
)
def test_a_bad_file_of_tasks(run: RealRun, content: bytes, said: tuple[str, ...]) -> None:
    """File and line are named; nothing is started."""
    path = run.directory / "tasks.jsonl"
    path.write_bytes(content)
    refused(start(run, "--input", str(path)), 2, *said)
    nothing_started(run)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("taskset:\n  type: reasoning_gym\n  datasets: []\n", ("taskset", "name at least one dataset")),
        ("taskset:\n  datasets: [{name: chain_sum}]\nnum_repeat: 3\n", ("run.yaml:3", "did you mean num_repeats?")),
        ("taskset:\n  datasets: [{name: chain_sum, sise: 3}]\n", ("run.yaml:2", "sise", "did you mean size?")),
    ],
)
def test_a_bad_configuration(run: RealRun, text: str, said: tuple[str, ...]) -> None:
    """The key is named, with the place where it was written; nothing is started."""
    path = run.directory / "run.yaml"
    path.write_text(text)
    refused(start(run, "--config", str(path)), 2, *said)
    nothing_started(run)


@pytest.mark.parametrize(
    ("run_id", "datasets", "said"),
    [
        ("typo", "[{name: chain_sums}]", "no generator 'chain_sums'; did you mean chain_sum"),
        ("options", "[{name: chain_sum, config: {min_terms: 5, max_terms: 2}}]", "taskset: chain_sum: bad options"),
        ("option", "[{name: chain_sum, config: {no_such: 1}}]", "no_such"),
    ],
)
def test_a_generator_that_cannot_be(shared: RealRun, run_id: str, datasets: str, said: str) -> None:
    """Only the grader's process knows generators: the run fails, with the reason, and `eval status` keeps it."""
    shared.run_id = run_id
    done = start(shared, f"taskset.datasets={datasets}")
    print(done.stdout + done.stderr)
    assert done.returncode == 1
    assert f"run {run_id} failed: 0 planned" in done.stdout
    assert said in done.stdout
    assert "Traceback" not in done.stdout + done.stderr
    status = shared.cli("eval", "status", run_id)
    assert f"run {run_id}: failed" in status.stdout
    assert said in status.stdout


def test_line_separators_of_unicode_are_no_line_ends(shared: RealRun) -> None:
    """U+2028, U+2029, U+0085, vertical tab and form feed inside strings: one task, one row each, character for character."""
    marks = "\u2028\u2029\u0085\x0b\x0c"
    rows = [
        {"task_id": f"a{mark}b", "question": f"What is 1{mark}+{mark}{n}?", "answer": "1"}
        for n, mark in enumerate(marks)
    ]
    path = shared.directory / "odd.jsonl"
    lines = [json.dumps(row, ensure_ascii=n % 2 == 0) for n, row in enumerate(rows)]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8", newline="\n")
    shared.run_id = "odd"
    done = start(shared, "--input", str(path), "agent.enable_tools=false")
    assert done.returncode == 0, done.stdout + done.stderr
    raw = (shared.directory / "odd" / "rollouts.jsonl").read_bytes()
    assert raw.count(b"\n") == len(marks)
    written = [json.loads(line) for line in raw.split(b"\n") if line]
    assert sorted(row["task_id"] for row in written) == sorted(row["task_id"] for row in rows)


# -- runs that are not, or are already -----------------------------------------------------------------------------------------


def test_an_unknown_run(shared: RealRun) -> None:
    """Status, cancel, resume and attach name it and say where to look; nothing is written about it."""
    assert shared.cli("bus", "up").returncode == 0
    for command in ("status", "cancel", "resume", "attach"):
        refused(shared.cli("eval", command, "nosuch"), 1, "there is no run 'nosuch'", "gym-bus eval status")
    assert not [e for e in shared.events() if e.run_id == "nosuch"]


def test_a_used_output_path_and_a_changed_configuration(shared: RealRun) -> None:
    """Results are never mixed, and a run never goes on as another: what may be done instead is said."""
    shared.run_id = "first"
    path = str(write_sums(shared.directory / "sums.jsonl", 2))
    basics = ("--input", path, "agent.enable_tools=false")
    done = start(shared, *basics)
    assert (done.returncode, "warning: no model was named" in done.stderr) == (0, True)
    before = {p.name: p.read_bytes() for p in (shared.directory / "first").iterdir()}
    again = shared.cli("eval", "run", "--run-id", "second", "--output", str(shared.directory / "first"), *basics)
    refused(again, 2, "has the results of run first", "--overwrite", "--resume", "--output")
    taken = shared.cli("eval", "run", "--run-id", "first", "--output", str(shared.directory / "elsewhere"), *basics)
    refused(taken, 2, "run first exists", "gym-bus eval attach first", "gym-bus eval resume first")
    changed = shared.cli("eval", "resume", "first", "num_repeats=3", "agent.max_steps=2")
    refused(changed, 2, "num_repeats: 1 -> 3", "agent.max_steps: 8 -> 2", "gym-bus eval run")
    same = shared.cli("eval", "resume", "first", "num_repeats=1")
    assert same.returncode == 0, same.stdout + same.stderr
    after = {p.name: p.read_bytes() for p in (shared.directory / "first").iterdir()}
    assert after["rollouts.jsonl"] == before["rollouts.jsonl"]
    assert not (shared.directory / "elsewhere").exists()
    assert not [e for e in shared.events() if e.run_id == "second"]


# -- the machine ---------------------------------------------------------------------------------------------------------------


@pytest.mark.alone
def test_the_port_of_the_bus_is_taken(run: RealRun) -> None:
    """The port, and what to do, within seconds; once it is free everything comes up by itself, with the whole log."""
    path = str(write_sums(run.directory / "sums.jsonl", 2))
    assert start(run, "--input", path, "agent.enable_tools=false").returncode == 0
    events = run.events()
    assert run.cli("bus", "down").returncode == 0
    assert not run.pids()
    port, _ = json.loads((run.data_dir / "bus" / "last_ports.json").read_text())
    with socket.create_server(("127.0.0.1", port)):
        began = time.monotonic()
        refused(run.cli("eval", "resume", run.run_id), 1, f"port {port}", "taken by another program", "last_ports.json")
        assert time.monotonic() - began < 15
        assert run.cli("bus", "down").returncode == 0
        assert not run.pids()
    done = run.cli("eval", "resume", run.run_id)
    assert done.returncode == 0, done.stdout + done.stderr
    assert [e.event_id for e in run.events()] == [e.event_id for e in events]


@pytest.mark.alone
def test_the_store_is_locked_by_another_process(run: RealRun) -> None:
    """Two servers never run on one store; the holder is named within seconds."""
    lock = run.data_dir / "bus" / "lock"
    lock.parent.mkdir(parents=True)
    holder = subprocess.Popen(
        [
            sys.executable,
            "-c",
            f"import fcntl, time; f = open({str(lock)!r}, 'w'); fcntl.flock(f, 2); print(1, flush=True); time.sleep(99)",
        ],
        stdout=subprocess.PIPE,
    )
    try:
        assert holder.stdout
        holder.stdout.readline()
        began = time.monotonic()
        path = str(write_sums(run.directory / "sums.jsonl", 1))
        done = start(run, "--input", path, "agent.enable_tools=false")
        refused(done, 1, "locked by another process", f"pid {holder.pid}", "--data-dir")
        assert time.monotonic() - began < 20
        assert not list((run.data_dir / "bus" / "store").iterdir())
    finally:
        holder.kill()
        holder.wait()
        if holder.stdout:
            holder.stdout.close()


def test_without_bubblewrap(run: RealRun) -> None:
    """The one command that helps is said, and nothing else is used in its place."""
    programs = run.directory / "bin"
    programs.mkdir()
    run.environ = {"PATH": str(programs)}
    done = start(run, "--reasoning-gym", "chain_sum")
    refused(done, 2, "bubblewrap is not installed", "`apt-get install bubblewrap`")
    nothing_started(run)


# -- the model -----------------------------------------------------------------------------------------------------------------


@pytest.mark.alone
def test_nobody_at_the_models_address(run: RealRun) -> None:
    """Said at once, with the address; nothing is started."""
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{unused.getsockname()[1]}/v1"
        path = str(write_sums(run.directory / "sums.jsonl", 1))
        began = time.monotonic()
        done = start(run, "--input", path, "--model", "m", "--model-url", url)
    refused(done, 2, url, "cannot be reached", "is the server running, and --model-url right?")
    assert time.monotonic() - began < 10
    nothing_started(run)


@pytest.mark.parametrize(
    ("mood", "said"),
    [
        (401, ("refused the key (401)", "--model-api-key")),
        ("html", ("is no API of a model", "hotel", "Does --model-url lack /v1?")),
    ],
)
def test_a_model_that_is_wrong_from_the_start(run: RealRun, mood: str | int, said: tuple[str, ...]) -> None:
    """What it answered is shown, the key is not; nothing is started."""
    with backend(lists=mood) as fake:
        done = start(run, "--config", str(write_config(run.directory, fake)))
        refused(done, 2, fake.url, *said)
        assert KEY not in done.stdout + done.stderr
        assert not fake.calls
    nothing_started(run)


@pytest.mark.parametrize(
    ("mood", "kind", "said"),
    [
        (429, "provider_rate_limited", "answered 429"),
        ("html", "provider_bad_answer", "did not answer with a chat completion"),
    ],
)
def test_a_model_that_never_answers_well(shared: RealRun, mood: str | int, kind: str, said: str) -> None:
    """Bounded tries: every rollout is failed, none has a reward, and the run ends."""
    shared.run_id = f"never-{mood}"
    with backend(chat=mood) as fake:
        done = start(shared, "--config", str(write_config(shared.directory, fake, tasks=3)), *FEW_TRIES)
        print(done.stdout + done.stderr)
        assert len(fake.calls) == 3 * 2 * 2
    assert done.returncode == 1
    assert f"run {shared.run_id} completed: 3 planned = 0 scored + 3 failed + 0 masked + 0 missing" in done.stdout
    [reason] = [line for line in done.stdout.splitlines() if line.startswith(f"3 failed: {kind}: ")]
    assert said in reason
    assert len(reason) <= 300
    again = shared.cli("eval", "attach", shared.run_id, "--json")
    end = json.loads(again.stdout.splitlines()[-1])
    assert [(f["failure_kind"], f["rollouts"], said in f["message"]) for f in end["failures"]] == [(kind, 3, True)]
    events = [e for e in shared.events() if e.run_id == shared.run_id]
    check_log(events)
    assert set(final_table(events).values()) == {("exhausted", None)}
    failures = [e.data.failure for e in events if isinstance(e.data, ModelCallFailed)]
    assert {f.kind for f in failures} == {kind}
    assert all(said in f.message for f in failures)
    assert all(row.get("reward") is None for row in rows_of(shared))
    status = shared.cli("eval", "status", shared.run_id)
    assert said in status.stdout


def test_a_model_that_is_asked_at_the_wrong_place(run: RealRun) -> None:
    """A forgotten `/v1` is found by the path of the calls, before anything starts."""
    with backend(lists=404, chat=404) as fake:
        done = start(run, "--config", str(write_config(run.directory, fake)), f"model.policy_base_url={fake.url[:-3]}")
        refused(done, 2, "nothing of this kind is at", "is `/v1` missing, or is it another API")
    nothing_started(run)


def test_a_run_whose_rollouts_were_ended_by_their_budget(shared: RealRun) -> None:
    """It is said how many, and by which; nothing has failed. `--detach --json` says where the results will be."""
    shared.run_id = "spent"
    path, out = str(write_sums(shared.directory / "sums.jsonl", 2)), shared.directory / "spent"
    left = start(shared, "--input", path, "budget.rollout.model_calls=0", "--detach", "--json")
    assert left.returncode == 0, left.stderr
    assert json.loads(left.stdout) == {"type": "detached", "run_id": "spent", "output_dir": str(out)}
    done = shared.cli("eval", "attach", "spent")
    assert "\n2 ended by their budget (model_calls)\n" in done.stdout, done.stdout + done.stderr
    end = json.loads(shared.cli("eval", "attach", "spent", "--json").stdout.splitlines()[-1])
    assert (end["failures"], end["ended_by_budget"]) == ([], {"model_calls": 2})


def test_rows_of_a_model_that_was_not_asked_for_token_ids(shared: RealRun) -> None:
    """Which kind of model that was, and which to take."""
    shared.run_id = "no-ids"
    with backend() as fake:
        done = start(shared, "--config", str(write_config(shared.directory, fake, tasks=1)))
    assert done.returncode == 0, done.stdout + done.stderr
    assert "gym-bus eval samples" not in done.stdout
    rows = shared.directory / "rows.jsonl"
    made = shared.cli("eval", "samples", "no-ids", "--out", str(rows))
    assert "no rows: model.type=openai does not ask for token ids: use --model-type vllm" in made.stdout, made.stderr
    assert f"0 rows written to {rows}" in made.stdout


def test_the_bus_is_up_when_its_projector_answers(run: RealRun) -> None:
    """What is asked next finds somebody, with nothing in the log yet."""
    assert run.cli("bus", "up").returncode == 0
    asked = run.cli("sql", "SELECT count(*) AS n FROM events", "--json")
    assert (asked.returncode, asked.stdout) == (0, '{"n": 0}\n'), asked.stderr
    doctor = run.cli("doctor")
    assert doctor.returncode == 0, doctor.stdout
    assert "there is none" not in doctor.stdout


def test_a_key_that_is_refused_during_the_run(run: RealRun) -> None:
    """The run pauses, says why and how to go on; once the key is good it goes on and is complete."""
    with backend(chat=401) as fake:
        config = str(write_config(run.directory, fake, tasks=4))
        done = start(run, "--config", config)
        print(done.stdout + done.stderr)
        assert done.returncode == 3
        assert "paused: provider_auth" in done.stdout
        assert "401" in done.stdout
        assert f"gym-bus eval resume {run.run_id}" in done.stdout
        status = run.cli("eval", "status", run.run_id)
        assert f"run {run.run_id}: paused" in status.stdout
        assert "paused because: provider_auth" in status.stdout
        assert run.cli("eval", "attach", run.run_id).returncode == 3
        still = run.cli("eval", "resume", run.run_id)
        assert still.returncode == 3
        calls = len(fake.calls)
        time.sleep(1)
        assert len(fake.calls) == calls, "a paused run asks nobody"
        fake.chat = "well"
        done = run.cli("eval", "resume", run.run_id, "--config", config)
        assert done.returncode == 0, done.stdout + done.stderr
        assert fake.keys == {f"Bearer {KEY}"}
    events = run.events()
    check_log(events)
    assert list(final_table(events).values()) == [("scored", 1.0)] * 4
    assert not [e for e in events if isinstance(e.data, RolloutFinished) and e.data.state == "exhausted"]


def test_an_output_directory_in_use_is_refused(run: RealRun) -> None:
    """`--overwrite` moves what is over aside, and never the place of a run that still writes there."""
    assert run.cli(*run.arguments(size=20, repeats=5, latency_s=0.5), "--detach").returncode == 0
    again = ["eval", "run", "--config", str(run.directory / "run.yaml"), "--run-id", "r2"]
    refused = run.cli(*again, "--output", str(run.directory / "out"), "--overwrite")
    assert refused.returncode == 2
    assert "belongs to run r1, which is not over" in refused.stderr
    assert json.loads((run.directory / "out" / "run.json").read_text())["run_id"] == "r1"
    assert run.cli("eval", "status", "r2").returncode == 1
