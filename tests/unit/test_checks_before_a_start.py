"""What a run needs on this host is looked for before it starts: sandboxes, engines, the local model."""

from __future__ import annotations

import json
import socket
import socketserver
import threading
from contextlib import ExitStack
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest

from gym_bus.cli import checks
from gym_bus.errors import BadConfig
from gym_bus.settings import Settings
from schemas.config import (
    LocalModel,
    ReasoningGymDataset,
    ReasoningGymTaskset,
    RunConfig,
    SimpleAgent,
)
from schemas.sandboxes import Bubblewrap, Docker, SharedDirectory

pytestmark = pytest.mark.usefixtures("elsewhere")


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


def test_a_directory_that_cannot_be_shown_is_told_before_the_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With what to do; where hosts may be other machines, it is theirs to say."""
    monkeypatch.setattr("shutil.which", lambda name: name)
    config = RunConfig(
        taskset=ReasoningGymTaskset(datasets=(ReasoningGymDataset(name="chain_sum"),)),
        sandbox=Bubblewrap(shared=(SharedDirectory(source=str(tmp_path), at="/opt/mine"),)),
    )
    with pytest.raises(BadConfig, match=rf"^sandbox\.shared: .*`touch {tmp_path}/\.gym-bus-shared`"):
        checks.check_config(config, None, Settings())
    checks.check_config(config, None, Settings(bus_url="nats://h:1"))
    (tmp_path / ".gym-bus-shared").touch()
    checks.check_config(config, None, Settings())


@pytest.mark.parametrize(
    ("agent", "row", "said"),
    [
        ({"type": "python_agent", "function": "a:b", "version": "1.2.3"}, {}, "agent: python_agent cannot be run in"),
        ({"type": "codex_agent", "withheld_tools": ["shel"]}, {}, "agent: codex_agent has no tool 'shel'"),
        ({"type": "mini_swe_agent"}, {"follow_ups": ["More."]}, "t: mini_swe_agent cannot go on with its session"),
    ],
)
def test_what_is_refused_begins_with_whose_it_is(tmp_path: Path, agent: dict[str, Any], row: Any, said: str) -> None:
    """The agent's configuration, or the task that asks for it."""
    task = {"id": "t", "question": "1 + 1?", "answer": "2", **row}
    (tmp_path / "tasks.jsonl").write_text(json.dumps(task) + "\n")
    tasks = {"type": "jsonl", "jsonl_fpath": str(tmp_path / "tasks.jsonl")}
    with pytest.raises(BadConfig, match=f"^{said}"):
        checks.check_config(RunConfig.model_validate({"taskset": tasks, "agent": agent}), None, Settings())
