"""The DuckDB file: opened by its one writer, checked, set aside when it cannot be used, and made again from the log.

Nothing in the file is precious. A file that is corrupt, of another schema version, or ahead of the log is renamed and
rebuilt; a file that another process holds, or a disk that is full, is waited for.
"""

from __future__ import annotations

import hashlib
import re
from pathlib import Path
from typing import Final

import duckdb
import structlog

from gym_bus.errors import Retryable
from projections import queries

log = structlog.get_logger(__name__)

SCHEMA_VERSION: Final = 4
"""Raise it with every change of `sql/schema.sql` or of `sql/ingest`: older files are then rebuilt."""

MEMORY_LIMIT: Final = "1GB"
THREADS: Final = 1
"""One thread takes batches in a fifth cheaper than two, and leaves a run its processors."""
FINGERPRINTED: Final = (
    "runs",
    "rollouts",
    "diagnostics",
    "resume_state",
    "model_calls",
    "tool_calls",
    "sandboxes",
    "verdicts",
    "quarantine",
)
_OUTSIDE: Final = re.compile(
    r"set lock|no space left|disk quota|permission denied|too many open files|cannot open file"
    r"|different configuration|configuration has been locked",  # a cursor of this process still has the file
    re.IGNORECASE,
)

Connection = duckdb.DuckDBPyConnection


def is_outside(error: duckdb.Error) -> bool:
    """Say whether an error comes from around the file (a lock, a full disk) and not from what is in it."""
    return bool(_OUTSIDE.search(str(error)))


def open_store(path: Path, *, memory_limit: str = MEMORY_LIMIT, threads: int = THREADS) -> Connection:
    """Return a connection to the projection at `path`, made anew if it cannot be used. Raises `Retryable`."""
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        if reason := _unusable(path, memory_limit, threads):
            set_aside(path, reason)
        connection = _connect(path, memory_limit, threads)
        if _version(connection) is None:
            _create(connection)
    except (duckdb.Error, OSError) as error:
        msg = f"the projection {path} cannot be opened ({error}): is another projector running, or the disk full?"
        raise Retryable(msg) from error
    _make_views(connection)
    return connection


def memory_store() -> Connection:
    """Return an empty projection in memory."""
    connection = duckdb.connect(":memory:", config={"threads": 1})
    connection.execute("set timezone = 'UTC'")
    _create(connection)
    _make_views(connection)
    return connection


def _connect(path: Path, memory_limit: str, threads: int) -> Connection:
    connection = duckdb.connect(
        str(path),
        config={
            "memory_limit": memory_limit,
            "threads": threads,
            "temp_directory": str(path.with_suffix(".tmp")),
            "checkpoint_threshold": "256MB",
            "autoinstall_known_extensions": False,
            "autoload_known_extensions": False,
        },
    )
    connection.execute("set timezone = 'UTC'")
    connection.execute("set preserve_insertion_order = false")
    return connection


def lock_down(connection: Connection) -> None:
    """From now on, for every cursor: no files, no network, no change of settings."""
    connection.execute("set enable_external_access = false")
    connection.execute("set lock_configuration = true")


def _version(connection: Connection) -> int | None:
    found = connection.execute("select 1 from duckdb_tables() where table_name = 'projection_meta'").fetchone()
    if not found:
        return None
    row = connection.execute("select version from projection_meta").fetchone()
    return int(row[0]) if row else None


def _unusable(path: Path, memory_limit: str, threads: int) -> str | None:
    """Say why the file at `path` cannot be used; None if it can. Raises DuckDB's errors from around the file."""
    if not path.exists():
        path.with_name(path.name + ".wal").unlink(missing_ok=True)
        return None
    try:
        with _connect(path, memory_limit, threads) as connection:
            tables = connection.execute("select count(*) from duckdb_tables()").fetchone()
            version = _version(connection)
            if version != SCHEMA_VERSION and tables != (0,):
                return f"its schema version is {version}, this program's is {SCHEMA_VERSION}"
            if version is not None:
                connection.execute("select count(*), max(seq) from events").fetchone()
                connection.execute("select * from projection_cursor").fetchall()
    except duckdb.Error as error:
        if is_outside(error):
            raise
        return f"it cannot be read: {error}"
    return None


def set_aside(path: Path, reason: str) -> Path:
    """Rename the file (and its write-ahead log) so that a fresh one takes its place; return the new name."""
    number = 1
    while (aside := path.with_name(f"{path.name}.aside-{number}")).exists():
        number += 1
    path.rename(aside)
    wal = path.with_name(path.name + ".wal")
    if wal.exists():
        wal.rename(aside.with_name(aside.name + ".wal"))
    log.warning(
        "projection_set_aside", path=str(path), moved_to=str(aside), reason=reason, next="rebuilding it from the log"
    )
    return aside


def _create(connection: Connection) -> None:
    connection.execute("begin")
    connection.execute(queries.text("schema"))
    connection.execute("insert into projection_meta values (?)", [SCHEMA_VERSION])
    connection.execute("commit")


def _make_views(connection: Connection) -> None:
    """Make the views anew: they are code, not data."""
    connection.execute("begin")
    for name in queries.names("views"):
        connection.execute(queries.text(f"views/{name}"))
    connection.execute("commit")


def cursors(connection: Connection) -> dict[int, tuple[int, str]]:
    """Return per shard the last sequence that was taken in, and the stream's generation."""
    rows = connection.execute("select shard, seq, generation from projection_cursor").fetchall()
    return {int(shard): (int(seq), str(generation)) for shard, seq, generation in rows}


def fingerprint(connection: Connection) -> str:
    """Return a hash over what the views say: equal for equal logs, however the events arrived."""
    digest = hashlib.sha256()
    for name in FINGERPRINTED:
        rows = connection.execute(f"select * from {name}").fetchall()  # noqa: S608  names from the literal above
        digest.update(name.encode())
        for line in sorted(repr(row) for row in rows):
            digest.update(line.encode() + b"\n")
    return digest.hexdigest()
