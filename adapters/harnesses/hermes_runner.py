"""Runs Hermes, whose conversation is in a database only, and prints each message of it as a JSON line once it is there.

Carried into the machine as text; its arguments are the database and the command. What the command prints goes to the error output.
"""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import sys
import threading
from contextlib import closing
from pathlib import Path
from typing import IO, Any

POLL_S = 0.3
BUSY_S = 5.0
SAID_MAX = 4000
SAID = (
    "id",
    "session_id",
    "role",
    "content",
    "tool_calls",
    "tool_call_id",
    "tool_name",
    "finish_reason",
    "reasoning_content",
)


class Messages:
    """Those of a database that were not there when the command was started."""

    def __init__(self, path: str) -> None:
        self._path = Path(path)
        self._last = 0

    def fresh(self) -> list[dict[str, Any]]:
        """Return what was not told yet; nothing while there is no database, or no table in it."""
        if not self._path.exists():
            return []
        try:
            with closing(sqlite3.connect(f"file:{self._path}?mode=ro", uri=True, timeout=BUSY_S)) as connection:
                connection.row_factory = sqlite3.Row
                found = connection.execute("SELECT * FROM messages WHERE id > ? ORDER BY id", (self._last,)).fetchall()
        except sqlite3.OperationalError:
            return []
        rows = [{name: row[name] for name in SAID if name in row.keys()} for row in found]  # noqa: SIM118
        if rows:
            self._last = rows[-1]["id"]
        return rows


def tell(kind: str, **facts: Any) -> None:
    """Print a line."""
    os.write(1, (json.dumps({"type": kind, **facts}) + "\n").encode())


def kept(output: IO[bytes], end: list[bytes]) -> None:
    """Pass on what the command prints, and keep the end of it."""
    while piece := os.read(output.fileno(), 65536):
        os.write(2, piece)
        end[0] = (end[0] + piece)[-SAID_MAX:]


def main(database: str, *command: str) -> int:
    """Run the command; return its exit code."""
    messages, end = Messages(database), [b""]
    messages.fresh()
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)  # noqa: S603  what it is for
    keeping = threading.Thread(target=kept, args=(process.stdout, end), daemon=True)
    keeping.start()
    is_over = False
    while not is_over:
        try:
            process.wait(POLL_S)
            is_over = True
        except subprocess.TimeoutExpired:
            pass
        for row in messages.fresh():
            tell("message", **row)
    keeping.join(POLL_S)
    tell("ended", exit_code=process.returncode, said=end[0].decode(errors="replace").strip())
    return process.returncode if process.returncode >= 0 else 1


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
