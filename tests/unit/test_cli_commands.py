"""The front door's commands: help is quick, mistakes cost one line and start nothing."""

from __future__ import annotations

import io
import json
import subprocess
import sys
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from gym_bus import inputs
from gym_bus.cli import checks, eval_run, session
from gym_bus.cli.entry import COMMANDS, run
from gym_bus.cli.eval_run import is_stand_in_unasked
from gym_bus.cli.eval_status import processes_of
from gym_bus.errors import BadConfig
from gym_bus.inputs import Standing
from gym_bus.settings import Settings
from schemas.config import (
    JsonlTaskset,
    OpenAIModel,
    ReasoningGymDataset,
    ReasoningGymTaskset,
    ReplayModel,
    RunConfig,
    SimpleAgent,
)
from schemas.harnesses import MiniSweAgent, NopAgent, OracleAgent
from schemas.sandboxes import Bubblewrap

HELP_MAX_S = 0.6
ROOT = Path(__file__).resolve().parents[2]
SUBCOMMANDS = {
    "eval": ("run", "attach", "status", "cancel", "resume", "samples"),
    "log": ("show", "tail", "export"),
    "bus": ("up", "down", "status"),
    "gateway": ("up", "down", "status"),
    "dlq": ("list", "redrive"),
    "programs": ("list", "install", "remove"),
    "session": ("say", "end", "show"),
}


pytestmark = pytest.mark.usefixtures("elsewhere")


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
        (["eval", "run"], 2, "taskset: has to be set: a FOLDER of tasks, --reasoning-gym NAME, --input FILE.jsonl"),
        (
            ["eval", "run", "--reasoning-gym", "chain_sum", "--limit", "3", "limit=4"],
            2,
            "--limit 3 and limit=4 say two",
        ),
        (["eval", "run", "--config", "nope.yaml"], 2, "nope.yaml: cannot be read"),
        (["eval", "run", "--reasoning-gym", "chain_sum", "num_repeat=1"], 2, "did you mean num_repeats?"),
        (["eval", "run", "--reasoning-gym", "chain_sum", "--input", "x"], 2, "give one of them"),
        (["eval", "run", "--reasoning-gym", "chain_sum", "--model", "m"], 2, "--model and --model-url go together"),
        (["eval", "run", "--reasoning-gym", "chain_sum", "--model-api-key", "k"], 2, "--model-api-key needs a model"),
        (["eval", "run", "--reasoning-gym", "chain_sum", "--run-id", "a b"], 2, "--run-id: 'a b' is no name"),
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


@pytest.mark.parametrize(
    ("more", "advice"),
    [
        ([], "another --run-id starts"),
        (["--output", "out"], "with another --output than"),
        (["--overwrite"], "another --run-id"),
    ],
)
def test_a_run_that_exists_is_said_to_before_its_results_are(
    more: list[str], advice: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Moving them aside would lead to the next error; of a log that is gone they may be moved."""
    output = tmp_path / "out" if "--output" in more else Path("results/r1").absolute()
    checks.mark_output(output, "r1", tmp_path)
    (tmp_path / "data" / "bus").mkdir(parents=True)
    known = {"r1"}
    monkeypatch.setattr(eval_run, "_is_known", lambda _, run_id: run_id in known)
    more = [str(output) if word == "out" else word for word in more]
    asked = ["eval", "run", "--reasoning-gym", "chain_sum", "--run-id", "r1", *more, "agent.enable_tools=false"]
    assert run(asked) == 2
    said = capsys.readouterr().err
    assert said.startswith(
        "error: run r1 exists: `gym-bus eval attach r1` watches it, `gym-bus eval resume r1` goes on"
    )
    assert advice in said
    assert (output / "run.json").exists()
    known.clear()
    if "--overwrite" not in more:
        assert run(asked) == 2
        assert "has the results of run r1: --overwrite moves them aside" in capsys.readouterr().err


def test_a_model_that_is_never_asked_is_not_looked_for(tmp_path: Path) -> None:
    """Nobody answers at its address, and an agent that asks none needs none; one that asks does."""
    path = tmp_path / "tasks.jsonl"
    path.write_text('{"id": "sum", "question": "1+1?", "answer": "2"}\n')
    model = OpenAIModel(policy_base_url="http://127.0.0.1:1/v1", policy_model_name="m")
    config = RunConfig(taskset=JsonlTaskset(jsonl_fpath=str(path)), agent=NopAgent(), model=model)
    checks.check_config(config, None, Settings())
    checks.check_config(config.replaced(model=ReplayModel(recording="nowhere.jsonl")), None, Settings())
    with pytest.raises(BadConfig, match=r"127\.0\.0\.1:1"):
        checks.check_config(config.replaced(agent=SimpleAgent(enable_tools=False)), None, Settings())


@pytest.mark.parametrize(
    ("given", "taken"), [("Now this.\n", "Now this."), ("Now\n\n", "Now\n"), ("Now", "Now"), (" Now \n", " Now ")]
)
def test_words_from_standard_input_end_without_their_line_end(
    given: str, taken: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So that the same words as an argument are the same input; nothing else is left out."""
    heard = []

    async def say(settings: object, where: tuple[str, str], words: str, *_: object, **__: object) -> int:
        heard.append(words)
        return 0

    (tmp_path / "data" / "bus").mkdir(parents=True)
    monkeypatch.setattr(session, "_say", say)
    monkeypatch.setattr(sys, "stdin", io.StringIO(given))
    assert run(["session", "say", "r1", "0-0", "-"]) == 0
    assert heard == [taken]


def test_the_end_of_inputs_is_told_to_programs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """As one object: of which attempt, and after which input."""
    standing = Standing("r1", "0-0", attempt=2, fingerprints={1: "a", 2: "b"})

    @asynccontextmanager
    async def connected(_: object) -> AsyncGenerator[None]:
        yield None

    async def opened(*_: object) -> tuple[None, Standing]:
        return None, standing

    async def end(*_: object) -> None:
        """Do nothing."""

    (tmp_path / "data" / "bus").mkdir(parents=True)
    monkeypatch.setattr(session, "up_and_connected", connected)
    monkeypatch.setattr(session, "_opened", opened)
    monkeypatch.setattr(inputs, "end", end)
    assert run(["session", "end", "r1", "0-0", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told == {"run_id": "r1", "rollout_id": "0-0", "attempt": 2, "activation": 2}
    assert run(["session", "end", "r1", "0-0"]) == 0
    assert capsys.readouterr().out == "r1/0-0 gets no further input\n"


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


def test_a_supervisor_that_is_stopped_is_not_believed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its status file is old although its lock is held: what it said of processes is called old, and no health."""
    monkeypatch.setattr("gym_bus.cli.eval_status.supervisor_pid", lambda _: 7)
    for age_s, said in ((1.0, "running (pid 7)"), (42.0, "does not answer (pid 7)")):
        status = {"pid": 7, "bus": {}, "store": {"state": "ok"}, "processes": {}, "age_s": age_s}
        monkeypatch.setattr("gym_bus.cli.eval_status.read_status", lambda _, status=status: status)
        assert processes_of(Settings(data_dir=tmp_path))["supervisor"].startswith(said)
