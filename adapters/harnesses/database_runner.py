"""Runs an agent that keeps its conversation in an SQLite database, and prints each row of it as a JSON line once it is there.

Carried into the machine as text; its arguments are the database, a query of what comes after `?` by its first column, and the command.
What the command prints goes to the error output.
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


class Rows:
    """Those of a query that were not told yet."""

    def __init__(self, path: str, query: str) -> None:
        self._path = Path(path)
        self._query = query
        self._last = -1

    def fresh(self) -> list[dict[str, Any]]:
        """Return what came since the last time; nothing while there is no database, or no table in it."""
        if not self._path.exists():
            return []
        try:
            with closing(sqlite3.connect(f"file:{self._path}?mode=ro", uri=True, timeout=BUSY_S)) as connection:
                connection.row_factory = sqlite3.Row
                found = connection.execute(self._query, (self._last,)).fetchall()
        except sqlite3.OperationalError:
            return []
        if found:
            self._last = found[-1][0]
        return [dict(row) for row in found]


def tell(kind: str, **facts: Any) -> None:
    """Print a line."""
    os.write(1, (json.dumps({"type": kind, **facts}) + "\n").encode())


def kept(output: IO[bytes], end: list[bytes]) -> None:
    """Pass on what the command prints, and keep the end of it."""
    while piece := os.read(output.fileno(), 65536):
        os.write(2, piece)
        end[0] = (end[0] + piece)[-SAID_MAX:]


def main(database: str, query: str, *command: str) -> int:
    """Run the command; return its exit code. Rows that were there before are not told."""
    rows, end = Rows(database, query), [b""]
    rows.fresh()
    process = subprocess.Popen(command, stdout=subprocess.PIPE)  # noqa: S603  what it is for
    keeping = threading.Thread(target=kept, args=(process.stdout, end), daemon=True)
    keeping.start()
    is_over = False
    while not is_over:
        try:
            process.wait(POLL_S)
            is_over = True
        except subprocess.TimeoutExpired:
            pass
        for row in rows.fresh():
            tell("row", **row)
    keeping.join(POLL_S)
    tell("ended", exit_code=process.returncode, said=end[0].decode(errors="replace").strip())
    return process.returncode if process.returncode >= 0 else 1


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
