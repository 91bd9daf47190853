"""What a configuration says of an agent that runs somewhere else: refused before anything starts, its key written down nowhere."""

from __future__ import annotations

import json
import socket
from pathlib import Path
from typing import Any

import pytest

from gym_bus.cli.checks import check_config
from gym_bus.cli.eval_run import other_keys, resolve, with_keys
from gym_bus.config_agent import with_agent_key_name_of
from gym_bus.errors import BadConfig
from gym_bus.secrets_store import SecretsStore
from gym_bus.settings import Settings
from schemas.harnesses import RemoteAgent

HERE = "agent.url=http://127.0.0.1:9000/do"


def options(directory: Path, *overrides: str, **row: Any) -> dict[str, Any]:
    """Return the options of a run of one task."""
    task = {"id": "t", "question": "What is 1 + 1?", "answer": "2", **row}
    (directory / "tasks.jsonl").write_text(json.dumps({k: v for k, v in task.items() if v is not None}) + "\n")
    return {"input_path": str(directory / "tasks.jsonl"), "overrides": ["agent.type=remote_agent", *overrides]}


def test_a_run_of_it_needs_no_sandbox(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        config, _ = resolve(options(tmp_path, f"agent.url=http://127.0.0.1:{listening.getsockname()[1]}/do"), {})
        check_config(config, None, Settings(data_dir=tmp_path))
    assert not config.agent.needs_sandbox


@pytest.mark.parametrize("url", ["http://127.0.0.1:{}/do", "http://no-such-host.invalid/do", "http://a..b/do"])
def test_one_that_is_not_there_is_said_before_anything_starts(tmp_path: Path, url: str) -> None:
    """But for a bus of another machine, whose hosts are elsewhere as well."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
    config, _ = resolve(options(tmp_path, f"agent.url={url.format(port)}"), {})
    here = Settings(data_dir=tmp_path, default_host="10.1.1.1")
    with pytest.raises(BadConfig, match=r"^agent\.url: .* cannot be reached \(.+\): is the agent running"):
        check_config(config, None, here)
    check_config(config, None, here.model_copy(update={"bus_url": "nats://10.0.0.1:4222"}))


@pytest.mark.parametrize(
    ("overrides", "row", "said"),
    [
        (("agent.url=http://agent.example/do",), {}, "GYM_BUS_DEFAULT_HOST"),
        ((HERE, "sandbox.type=docker", "sandbox.image=a"), {}, "^agent: remote_agent runs .*, and sandbox say"),
        ((HERE, "install.command=make"), {}, "install"),
        ((HERE, "responses_create_params.temperature=1"), {}, "sampling"),
        ((HERE,), {"install": {"command": "true"}}, "t: remote_agent runs outside"),
        ((HERE,), {"follow_ups": ["More."]}, "agent.resumes=true"),
        ((HERE,), {"answer": None, "test_command": "true", "artifacts": ["a"]}, "files of the workspace"),
    ],
)
def test_what_it_cannot_be_given_is_said_before_anything_starts(
    tmp_path: Path, overrides: tuple[str, ...], row: dict[str, Any], said: str
) -> None:
    config, _ = resolve(options(tmp_path, *overrides, **row), {})
    with pytest.raises(BadConfig, match=said):
        check_config(config, None, Settings(data_dir=tmp_path))


def test_a_folder_of_tasks_is_refused_before_anything_starts(tmp_path: Path) -> None:
    """What is graded there is a machine, and it has none."""
    examples = Path(__file__).resolve().parents[1] / "harbor_tasks"
    config, _ = resolve({"folder": str(examples / "plain"), "overrides": ["agent.type=remote_agent", HERE]}, {})
    with pytest.raises(
        BadConfig, match=r"agent: plain: remote_agent runs outside of any sandbox, .* the machine as it was left"
    ):
        check_config(config, None, Settings(data_dir=tmp_path))


def test_its_key_is_written_down_nowhere(tmp_path: Path) -> None:
    """The configuration holds a name, which another key given later does not change; the secret's file holds the value."""
    given, environ = options(tmp_path, HERE, "agent.api_key=env:MY_KEY"), {"MY_KEY": "key-by-name"}
    config, _ = resolve(given, environ)
    assert isinstance(config.agent, RemoteAgent)
    assert config.agent.api_key is None
    named = with_keys(config, None, Settings(data_dir=tmp_path), other_keys(given, environ))
    assert isinstance(named.agent, RemoteAgent)
    assert named.agent.api_key
    assert "key-by-name" not in named.model_dump_json()
    assert SecretsStore(tmp_path / "secrets").read(named.agent.api_key) == "key-by-name"
    assert with_agent_key_name_of(config, named) == named
    with pytest.raises(BadConfig, match="MY_KEY"):
        resolve(given, {})
    assert other_keys(options(tmp_path, HERE), {}) == {}
