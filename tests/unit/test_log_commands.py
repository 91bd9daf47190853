"""`gym-bus log` about a run that is not there: every command says so, and none waits for it."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from gym_bus import client
from gym_bus.cli.entry import run
from gym_bus.memory_bus import MemoryBus, MemoryServer


@pytest.fixture(autouse=True)
def empty(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A bus with nothing in it."""

    @asynccontextmanager
    async def connected(_: object) -> AsyncGenerator[MemoryBus]:
        yield MemoryBus(MemoryServer(), client.USER)

    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GYM_BUS_DATA_DIR", str(tmp_path / "data"))
    monkeypatch.setattr(client, "connect_cli", connected)


@pytest.mark.parametrize(
    "command", [["show"], ["show", "--json"], ["tail"], ["tail", "--from-start"], ["export", "--out", "run.jsonl"]]
)
def test_a_run_that_is_not_there_is_said_to_be_none(command: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """In the same words, with the same exit code, and nothing is written."""
    assert run(["log", command[0], "nope", *command[1:]]) == 1
    assert (
        capsys.readouterr().err == "error: the log has nothing about run nope: `gym-bus eval status` lists the runs\n"
    )
    assert not list(Path().glob("*run.jsonl*"))


def test_an_export_onto_a_file_says_what_to_do(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Before anything is read: the file stays as it is."""
    (tmp_path / "run.jsonl").write_text("mine")
    out = str(tmp_path / "run.jsonl")
    assert run(["log", "export", "r1", "--out", out, "--data-dir", str(tmp_path)]) != 0
    assert f"--out: {out} is there already: remove it, or name another file" in capsys.readouterr().err
    assert (tmp_path / "run.jsonl").read_text() == "mine"
