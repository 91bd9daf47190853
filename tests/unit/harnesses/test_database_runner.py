"""The runner for agents that keep their conversation in a database: what it tells of it, and when."""

from __future__ import annotations

import json
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

RUNNER: Final = Path(__file__).resolve().parents[3] / "adapters" / "harnesses" / "database_runner.py"
QUERY: Final = "SELECT id, text FROM messages WHERE id > ? ORDER BY id"
AGENT: Final = """
import sqlite3, sys, time
connection = sqlite3.connect(sys.argv[1])
connection.execute("CREATE TABLE IF NOT EXISTS messages (id INTEGER PRIMARY KEY, text TEXT)")
for text in ("one", "two"):
    connection.execute("INSERT INTO messages (text) VALUES (?)", (text,))
    connection.commit()
    print("said " + text, flush=True)
    if len(sys.argv) > 3:
        sys.stdin.readline()
sys.exit(int(sys.argv[2]))
"""
ENDED_WITHIN_S: Final = 30


def started(database: Path, *more: str) -> subprocess.Popen[bytes]:
    command = (sys.executable, "-c", AGENT, str(database), *more)
    runner = (sys.executable, str(RUNNER), str(database), QUERY, *command)
    return subprocess.Popen(runner, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def told(output: bytes) -> list[dict[str, Any]]:
    return [json.loads(line) for line in output.splitlines()]


def test_each_row_is_told_once_in_order_and_then_the_end(tmp_path: Path) -> None:
    """What the agent prints is no record; its exit code is the runner's."""
    runner = started(tmp_path / "db", "3")
    output, errors = runner.communicate(timeout=ENDED_WITHIN_S)
    assert told(output) == [
        {"type": "row", "id": 1, "text": "one"},
        {"type": "row", "id": 2, "text": "two"},
        {"type": "ended", "exit_code": 3, "said": "said one\nsaid two"},
    ]
    assert errors == b"said one\nsaid two\n"
    assert runner.returncode == 3


def test_rows_of_the_session_before_are_not_told_again(tmp_path: Path) -> None:
    database = tmp_path / "db"
    started(database, "0").communicate(timeout=ENDED_WITHIN_S)
    output, _ = started(database, "0").communicate(timeout=ENDED_WITHIN_S)
    assert [record.get("id") for record in told(output)] == [3, 4, None]


def test_a_row_is_told_while_the_agent_runs(tmp_path: Path) -> None:
    """It is not waited for the end: whoever follows the output hears of a turn when it is there."""
    with started(tmp_path / "db", "0", "slowly") as runner:
        assert runner.stdin is not None
        assert runner.stdout is not None
        assert json.loads(runner.stdout.readline())["text"] == "one"
        assert runner.poll() is None
        runner.communicate(b"\n\n", timeout=ENDED_WITHIN_S)


def test_an_agent_that_makes_no_database(tmp_path: Path) -> None:
    """Nothing is told but how it ended, and no database is made for it."""
    command = (sys.executable, str(RUNNER), str(tmp_path / "none"), QUERY, "/bin/sh", "-c", "echo no key; exit 1")
    done = subprocess.run(command, capture_output=True, timeout=ENDED_WITHIN_S, check=False)
    assert told(done.stdout) == [{"type": "ended", "exit_code": 1, "said": "no key"}]
    assert not list(tmp_path.iterdir())


def test_a_database_of_another_form(tmp_path: Path) -> None:
    """A table that is not there is no failure of the agent."""
    sqlite3.connect(tmp_path / "db").close()
    command = (sys.executable, str(RUNNER), str(tmp_path / "db"), QUERY, "/bin/true")
    done = subprocess.run(command, capture_output=True, timeout=ENDED_WITHIN_S, check=False)
    assert (done.returncode, told(done.stdout)) == (0, [{"type": "ended", "exit_code": 0, "said": ""}])
