"""The front door's commands: help is quick, mistakes cost one line and start nothing."""

from __future__ import annotations

import json
import socket
import socketserver
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest
import structlog

from gym_bus.cli import checks, model_checks
from gym_bus.cli.entry import COMMANDS, run
from gym_bus.cli.eval_run import is_stand_in_unasked
from gym_bus.cli.eval_status import processes_of
from gym_bus.errors import BadConfig
from gym_bus.settings import Settings
from schemas.config import (
    JsonlTaskset,
    LocalModel,
    OpenAIModel,
    ReasoningGymDataset,
    ReasoningGymTaskset,
    ReplayModel,
    RunConfig,
    SimpleAgent,
)
from schemas.harnesses import MiniSweAgent, NopAgent, OracleAgent
from schemas.sandboxes import Bubblewrap, Docker

HELP_MAX_S = 0.6
ROOT = Path(__file__).resolve().parents[2]
SUBCOMMANDS = {
    "eval": ("run", "attach", "status", "cancel", "resume", "samples"),
    "log": ("show", "tail", "export"),
    "bus": ("up", "down", "status"),
    "gateway": ("up", "down", "status"),
    "dlq": ("list", "redrive"),
    "session": ("say", "end", "show"),
}


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Every command works in a directory of its own, finds an empty environment, and leaves logging as it was."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GYM_BUS_DATA_DIR", str(tmp_path / "data"))
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    yield
    structlog.reset_defaults()


@pytest.mark.alone
def test_help_is_quick() -> None:
    """Less than 0.6 s, of several tries the best: click alone is imported."""

    def once() -> float:
        began = time.monotonic()
        subprocess.run([sys.executable, "-m", "gym_bus.cli", "--help"], check=True, capture_output=True, cwd=ROOT)
        return time.monotonic() - began

    best = min(once() for _ in range(5))
    print(f"gym-bus --help: {best:.3f} s")
    assert best < HELP_MAX_S


def test_help_imports_nothing_heavy() -> None:
    """Whatever the machine, these stay out."""
    code = (
        "import sys\nfrom gym_bus.cli.entry import run\nrun(['--help'])\n"
        "print({'pydantic', 'nats', 'rich', 'structlog', 'duckdb', 'httpx', 'asyncio'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True, cwd=ROOT)
    assert done.stdout.splitlines()[-1] == "set()"


@pytest.mark.parametrize(
    "command", [*([name] for name in COMMANDS), *([g, c] for g, commands in SUBCOMMANDS.items() for c in commands)]
)
def test_every_command_has_help(command: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """-h and --help say the same, and every command that does something shows an example."""
    assert run([*command, "--help"]) == 0
    text = capsys.readouterr().out
    assert run([*command, "-h"]) == 0
    assert capsys.readouterr().out == text
    if command[0] not in SUBCOMMANDS or len(command) == 2:
        assert f"gym-bus {' '.join(command)}" in text.split("Options:")[0].partition("\n")[2]


def test_the_version_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    """One line."""
    assert run(["--version"]) == 0
    assert capsys.readouterr().out.startswith("gym-bus ")


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["evl"], 2, "No such command 'evl'"),
        (["eval", "run", "--no-such"], 2, "No such option"),
        (["eval", "run"], 2, "taskset: has to be set"),
        (["eval", "run", "--config", "nope.yaml"], 2, "nope.yaml: cannot be read"),
        (["eval", "run", "--reasoning-gym", "chain_sum", "num_repeat=1"], 2, "did you mean num_repeats?"),
        (["eval", "run", "--reasoning-gym", "chain_sum", "--input", "x"], 2, "give one of them"),
        (["eval", "run", "--reasoning-gym", "chain_sum", "--model", "m"], 2, "--model and --model-url go together"),
        (["eval", "run", "--reasoning-gym", "chain_sum", "--model-api-key", "k"], 2, "--model-api-key needs a model"),
        (["eval", "run", "--reasoning-gym", "chain_sum", "--run-id", "a b"], 2, "--run-id: 'a b'"),
        (["eval", "run", "--input", "nope.jsonl"], 2, "nope.jsonl: cannot be read"),
        (["eval", "run", "--reasoning-gym", "chain_sum", "--resume"], 2, "--resume needs to know which run"),
        (["eval", "status"], 1, "there is no log to look at"),
        (["log", "tail", "--from-start"], 2, "--from-start needs to know which run"),
        (["log", "show", "r"], 1, "no bus runs"),
        (["log", "export", "r", "--out", "x"], 1, "no bus runs"),
        (
            ["eval", "run", "--agent", "codex", "--agent", "pi"],
            2,
            "--agent is given twice; see `gym-bus eval run --help`",
        ),
        (["eval", "run", "--limit=1", "--limit", "2"], 2, "--limit is given twice"),
        (["eval", "run", "-o", "a", "--output", "b"], 2, "--output is given twice"),
        (["eval", "run", "--limit", "x"], 2, "Invalid value for '--limit'"),
        (["eval", "attach"], 2, "Missing argument 'RUN'; see `gym-bus eval attach --help`"),
        (["sql", "SELECT 1", "--csv", "--json"], 2, "--csv and --json say two things"),
        (["sql", "SELECT 1", "--max-rows", "1", "--max-rows", "2"], 2, "--max-rows is given twice"),
        (["log", "tail", "r"], 1, "no bus runs"),
        (["session", "show", "r", "0-0"], 1, "there is no log under"),
        (["session", "end", "r", "0-0"], 1, "there is no log under"),
        (
            ["eval", "run", "--reasoning-gym", "chain_sum", "model.type=replay", "model.recording=nope.jsonl"],
            2,
            "model.recording: no file",
        ),
    ],
)
def test_a_mistake_costs_one_line_and_starts_nothing(
    arguments: list[str], code: int, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """No traceback, nothing on disk."""
    assert run(arguments) == code
    shown = capsys.readouterr().err
    assert said in shown
    assert shown.startswith("error: ")
    assert "Usage:" not in shown
    assert not (tmp_path / "data").exists()
    assert not (tmp_path / "results").exists()


@pytest.mark.parametrize(
    ("content", "is_fine"),
    [
        (b'{"type": "run_started.v1", "run_id": "r", "event_id": "e", "data": {}}\nwhatever', True),
        (b'\n{"type": "undecodable", "sequence": 3}\n', True),
        (b"", False),
        (b"not json\n", False),
        (b"[1]\n", False),
        (b'{"question": "1+1?"}\n', False),
        (b'{"type": "no_such.v1", "run_id": "r", "event_id": "e", "data": {}}\n', False),
        (b"\xff\xfe", False),
        (b"[" * 100_000, False),
    ],
)
def test_a_recording_begins_with_an_event(content: bytes, is_fine: bool, tmp_path: Path) -> None:
    """The first line is looked at before anything starts; the rest is the replay's own."""
    path = tmp_path / "run.jsonl"
    path.write_bytes(content)
    tasks = ReasoningGymTaskset(datasets=(ReasoningGymDataset(name="chain_sum"),))
    config = RunConfig(taskset=tasks, model=ReplayModel(recording=str(path)), agent=SimpleAgent(enable_tools=False))
    if is_fine:
        checks.check_config(config, None, Settings())
        return
    with pytest.raises(BadConfig, match=r"model.recording: .*run.jsonl:1: no event as `gym-bus log export` writes"):
        checks.check_config(config, None, Settings())


def test_doctor_tells_a_log_that_is_not_projected_yet_from_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A log that was not looked at is not called well."""
    run(["doctor"])
    assert "ok   log: there is none" in capsys.readouterr().out
    (tmp_path / "data" / "bus" / "store" / "jetstream").mkdir(parents=True)
    assert run(["doctor"]) == 1
    assert "BAD  log: not checked: nothing runs that reads it" in capsys.readouterr().out
    monkeypatch.setattr("gym_bus.cli.doctor.supervisor_pid", lambda _: 7)
    assert run(["doctor"]) == 1
    assert "BAD  log: not checked: the projector is not ready" in capsys.readouterr().out


def test_an_unknown_setting_is_named(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """A typing error in the environment is not ignored."""
    monkeypatch.setenv("GYM_BUS_HOST", "2")
    assert run(["eval", "status"]) == 2
    assert "GYM_BUS_HOSTS" in capsys.readouterr().err


def test_old_results_are_refused_or_moved_aside(tmp_path: Path) -> None:
    """Never mixed, never deleted."""
    output = tmp_path / "out"
    assert checks.make_room(output, overwrite=False) is None
    checks.mark_output(output, "r1", tmp_path)
    (output / "rollouts.jsonl").write_text("{}\n")
    with pytest.raises(BadConfig, match="of run r1: --overwrite moves them aside"):
        checks.make_room(output, overwrite=False)
    aside = checks.make_room(output, overwrite=True)
    assert aside is not None
    assert json.loads((aside / "run.json").read_text())["run_id"] == "r1"
    assert not output.exists()


def test_a_directory_with_other_files_is_used(tmp_path: Path) -> None:
    """Only results are in the way."""
    (tmp_path / "notes.txt").write_text("mine")
    assert checks.make_room(tmp_path, overwrite=False) is None


def test_a_torn_file_of_tasks_is_found_before_anything_starts(tmp_path: Path) -> None:
    """The message names the line."""
    path = tmp_path / "tasks.jsonl"
    path.write_text('{"question": "1+1?", "answer": "2"}\n{"question": ')
    config = RunConfig(taskset=JsonlTaskset(jsonl_fpath=str(path)))
    with pytest.raises(Exception, match=":2: "):
        checks.check_config(config, None, Settings())


def test_a_row_that_the_agent_cannot_be_given_is_found_before_anything_starts(tmp_path: Path) -> None:
    """As a folder is: the run would fail at its start."""
    path = tmp_path / "tasks.jsonl"
    path.write_text('{"id": "sum", "question": "1+1?", "answer": "2"}\n')
    config = RunConfig(taskset=JsonlTaskset(jsonl_fpath=str(path)), agent=OracleAgent())
    with pytest.raises(BadConfig, match="sum: it has no solution"):
        checks.check_config(config, None, Settings())


def test_inputs_that_no_task_can_be_given_are_found_before_anything_starts(tmp_path: Path) -> None:
    """An agent that cannot go on with its session has no use for a file of nothing but tasks with further inputs."""
    path = tmp_path / "tasks.jsonl"
    row = '{"id": "sum", "question": "1+1?", "answer": "2", "follow_ups": ["And 2+2?"]}\n'
    path.write_text(row)
    config = RunConfig(taskset=JsonlTaskset(jsonl_fpath=str(path)), agent=MiniSweAgent(), sandbox=Bubblewrap())
    with pytest.raises(BadConfig, match="sum: mini_swe_agent cannot go on with its session"):
        checks.check_config(config, None, Settings())
    path.write_text(row + '{"id": "other", "question": "1+1?", "answer": "2"}\n')
    checks.check_config(config, None, Settings())


def test_a_run_that_asks_no_model_names_none() -> None:
    """Results are not said to be those of a model that had no part in them."""
    taskset = ReasoningGymTaskset(datasets=(ReasoningGymDataset(name="chain_sum"),))
    assert RunConfig(taskset=taskset, agent=NopAgent()).model_label == "none is asked"
    assert RunConfig(taskset=taskset).model_label.startswith("scripted")


@pytest.mark.parametrize(
    ("more", "is_warned"),
    [
        ([], True),
        (["--agent", "codex"], True),
        (["num_repeats=2"], True),
        (["model.type=scripted"], False),
        (["model.error_rate=0"], False),
        (["model.type=local"], False),
        (["--model", "m", "--model-url", "http://h/v1"], False),
        (["--agent", "oracle"], False),
        (["--config", str(ROOT / "examples" / "quickstart.yaml")], False),
    ],
)
def test_a_stand_in_that_nobody_asked_for_is_warned_of(
    more: list[str], is_warned: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its scores look like a model's; what names it, or asks no model, stays silent."""
    found: list[RunConfig] = []

    def stop(config: RunConfig, *_: object, **__: object) -> None:
        found.append(config)
        raise BadConfig("enough")

    monkeypatch.setattr(checks, "check_config", stop)
    assert run(["eval", "run", "--reasoning-gym", "chain_sum", *more]) == 2
    assert [is_stand_in_unasked(config) for config in found] == [is_warned]


def test_a_missing_sandbox_is_found_before_anything_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    """With what can be done about it."""
    monkeypatch.setattr("shutil.which", lambda _: None)
    config = RunConfig(taskset=ReasoningGymTaskset(datasets=(ReasoningGymDataset(name="chain_sum"),)))
    with pytest.raises(BadConfig, match="apt-get install bubblewrap"):
        checks.check_config(config, None, Settings())


class _Engine(BaseHTTPRequestHandler):
    """An engine without images, which pulls none: Python's server says 501 to a POST."""

    def do_GET(self) -> None:
        is_ping = self.path == "/_ping"
        body = b"OK" if is_ping else b'{"message": "No such image: some/image:1"}'
        self.send_response(200 if is_ping else 404)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        """Say nothing."""


@pytest.mark.parametrize(
    ("engine", "programs", "problem"),
    [
        ("none", (), "none is installed.*scripts/setup docker"),
        ("none", ("dockerd",), "no container engine runs at.*systemctl start docker"),
        ("dead", (), "no container engine runs at.*systemctl start docker"),
        ("deaf", (), "does not answer.*is it a container engine"),
        ("no_image", (), "(?s)image some/image:1 was not pulled: .*501.*: `docker pull some/image:1`"),
        ("may_not_pull", (), "has no image some/image:1: `docker pull some/image:1`"),
    ],
)
def test_a_missing_engine_is_found_before_anything_starts(
    engine: str, programs: tuple[str, ...], problem: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Not installed, not running, not an engine, without the image: each with what can be done about it."""
    monkeypatch.setattr("shutil.which", lambda name: name if name in programs else None)
    monkeypatch.setattr("gym_bus.cli.engine_checks.ENGINE_TIMEOUT_S", 0.2)
    path = tmp_path / "engine.sock"
    tasks = ReasoningGymTaskset(datasets=(ReasoningGymDataset(name="chain_sum"),))
    pull: Any = "never" if engine == "may_not_pull" else "missing"
    config = RunConfig(taskset=tasks, sandbox=Docker(image="some/image:1", socket=str(path), pull=pull))
    with ExitStack() as stack:
        if engine in {"dead", "deaf"}:
            listener = stack.enter_context(socket.socket(socket.AF_UNIX))
            listener.bind(str(path))
            if engine == "deaf":
                listener.listen()
        if engine in {"no_image", "may_not_pull"}:
            server = stack.enter_context(socketserver.UnixStreamServer(str(path), _Engine))
            threading.Thread(target=server.serve_forever, daemon=True).start()
            stack.callback(server.shutdown)
        with pytest.raises(BadConfig, match=problem):
            checks.check_config(config, None, Settings())
    checks.check_config(config.model_copy(update={"agent": SimpleAgent(enable_tools=False)}), None, Settings())


def test_a_missing_local_model_is_found_before_anything_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    """With what can be done about it."""
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    tasks = ReasoningGymTaskset(datasets=(ReasoningGymDataset(name="chain_sum"),))
    config = RunConfig(taskset=tasks, model=LocalModel(), agent=SimpleAgent(enable_tools=False))
    with pytest.raises(BadConfig, match="scripts/setup local"):
        checks.check_config(config, None, Settings())


@contextmanager
def backend(status: int, body: str) -> Iterator[str]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status)
            self.end_headers()
            self.wfile.write(body.encode())

        def do_POST(self) -> None:
            """Hang up on a call without a question, as clumsy servers do."""
            self.close_connection = True

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002
            """Say nothing."""

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/v1"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@pytest.mark.parametrize(
    ("status", "body", "problem"),
    [
        (200, '{"data": []}', None),
        (404, "", None),
        (429, "slow down", None),
        (503, "loading", None),
        (401, "bad key sk-made-up", "refused the key"),
        (403, "no", "refused the key"),
        (200, "<html>hello</html>", "is no API of a model"),
        (400, "what?", "answered 400"),
    ],
)
def test_the_backend_is_asked_once(status: int, body: str, problem: str | None) -> None:
    """A busy or a clumsy one may start a run, a wrong one may not; the key is never shown."""
    with backend(status, body) as url:
        model = OpenAIModel(policy_base_url=url, policy_model_name="m")
        if problem is None:
            model_checks.check_endpoint(model, "sk-made-up")
            return
        with pytest.raises(BadConfig, match=problem) as caught:
            model_checks.check_endpoint(model, "sk-made-up")
        assert "sk-made-up" not in str(caught.value)


def serve_slowly(write: Callable[[socket.socket], None]) -> tuple[str, threading.Thread]:
    """Serve one connection with `write`; return the address."""
    listening = socket.create_server(("127.0.0.1", 0))
    url = f"http://127.0.0.1:{listening.getsockname()[1]}/v1"

    def serve() -> None:
        with listening, listening.accept()[0] as connection, suppress(OSError):
            connection.recv(65_536)
            connection.sendall(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n\r\n")
            write(connection)

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    return url, thread


@pytest.mark.alone
def test_a_list_of_models_that_never_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """Dripping or endless: an error within the deadline, whatever single reads take, and not the machine's memory."""
    monkeypatch.setattr(model_checks, "ENDPOINT_TIMEOUT_S", 0.5)

    def drip(connection: socket.socket) -> None:
        for _ in range(40):
            connection.sendall(b" ")
            time.sleep(0.1)

    def flood(connection: socket.socket) -> None:
        while True:
            connection.sendall(b" " * 65_536)

    for write, said in ((drip, "no answer"), (flood, "more than")):
        url, thread = serve_slowly(write)
        began = time.monotonic()
        with pytest.raises(BadConfig, match=said):
            model_checks.check_endpoint(OpenAIModel(policy_base_url=url, policy_model_name="m"), None)
        assert time.monotonic() - began < 3
        thread.join(10)


def test_a_list_of_models_nested_without_end_is_no_list() -> None:
    with backend(200, "[" * 100_000 + "]" * 100_000) as url, pytest.raises(BadConfig, match="is no API"):
        model_checks.check_endpoint(OpenAIModel(policy_base_url=url, policy_model_name="m"), None)


def test_an_output_directory_is_taken_once(tmp_path: Path) -> None:
    """Of two runs that found it free one gets it; a place that cannot be is a clear error."""
    output = tmp_path / "out"
    checks.mark_output(output, "r1", tmp_path)
    checks.mark_output(output, "r1", tmp_path)
    with pytest.raises(BadConfig, match="taken by run r1"):
        checks.mark_output(output, "r2", tmp_path)
    assert (checks.run_in(output) or {})["run_id"] == "r1"
    assert [path.name for path in output.iterdir()] == ["run.json"]
    for place in (Path("/dev/null/x"), Path("/proc/gym-bus")):
        with pytest.raises(BadConfig, match="--output"):
            checks.mark_output(place, "r1", tmp_path)


@pytest.mark.parametrize("place", ["/dev/null", "/dev/null/x", "/proc/gym-bus-x"])
def test_a_data_directory_that_cannot_be(
    place: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("GYM_BUS_DATA_DIR", place)
    assert run(["bus", "up"]) == 2
    assert f"error: the data directory {place}" in capsys.readouterr().err


def test_a_run_is_not_called_like_an_option(capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("-x", ""):
        assert run(["eval", "run", "--reasoning-gym", "chain_sum", f"--run-id={name}"]) == 2
        assert "--run-id" in capsys.readouterr().err


def test_nobody_at_the_address_is_said_with_the_address() -> None:
    """Not a timeout of minutes: one line with the URL."""
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{unused.getsockname()[1]}/v1"
    with pytest.raises(BadConfig, match="cannot be reached") as caught:
        model_checks.check_endpoint(OpenAIModel(policy_base_url=url, policy_model_name="m"), None)
    assert url in str(caught.value)


def test_a_supervisor_that_is_stopped_is_not_believed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its status file is old although its lock is held: what it said of processes is called old, and no health."""
    monkeypatch.setattr("gym_bus.cli.eval_status.supervisor_pid", lambda _: 7)
    for age_s, said in ((1.0, "running (pid 7)"), (42.0, "does not answer (pid 7)")):
        status = {"pid": 7, "bus": {}, "store": {"state": "ok"}, "processes": {}, "age_s": age_s}
        monkeypatch.setattr("gym_bus.cli.eval_status.read_status", lambda _, status=status: status)
        assert processes_of(Settings(data_dir=tmp_path))["supervisor"].startswith(said)


@pytest.mark.parametrize(
    ("changes", "what"),
    [
        ({"sandbox": {"type": "daytona"}}, r"sandbox: daytona needs an API key: set DAYTONA_API_KEY"),
        ({"sandbox": {"type": "apptainer", "image": "x.sif", "binary": "no-such"}}, r"no program 'no-such' on PATH"),
        ({"grading_sandbox": {"type": "daytona"}}, r"grading_sandbox: daytona needs an API key: set DAYTONA_API_KEY"),
        (
            {"checkpoints": {"restore_in": {"type": "enroot", "image": "x", "binary": "no-such"}}},
            r"checkpoints.restore_in: there is no program 'no-such'",
        ),
        (
            {"grading_sandbox": {"type": "docker", "image": "x", "socket": "/nowhere/docker.sock"}},
            r"grading_sandbox: no container engine runs at /nowhere",
        ),
    ],
)
def test_sandboxes_that_cannot_be_had_are_told_before_the_start(changes: dict[str, Any], what: str) -> None:
    """Those for grading and for restoring too, by their own names."""
    config = RunConfig.model_validate(
        {
            "taskset": {"type": "reasoning_gym", "datasets": [{"name": "chain_sum"}]},
            "sandbox": {"type": "inline"},
            **changes,
        }
    )
    with pytest.raises(BadConfig, match=what):
        checks.check_config(config, None, Settings())
