"""Questions in SQL over the bus: one read-only statement, bounded in time, memory, rows and bytes.

The statement runs on a cursor of its own in a read-only transaction. Access to files and to the network is switched
off for the whole database, and the settings are locked (`store.lock_down`).
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any, Final

import duckdb
import pydantic_core
from pydantic import Field, ValidationError

from gym_bus.errors import Permanent
from projections.store import Connection
from schemas.base import Frozen

REPLY_MAX_BYTES: Final = 900_000
SQL_MAX: Final = 100_000
ALLOWED: Final = frozenset({"SELECT", "EXPLAIN"})
"""What DuckDB takes a statement for: WITH, DESCRIBE, SUMMARIZE and SHOW are selects to it."""


class Question(Frozen):
    """What is asked. Rows beyond `offset` are returned, at most `max_rows` and as many as fit into a reply.

    `after_seq` asks to wait until the projection has taken in that much of each shard.
    """

    sql: str = Field(max_length=SQL_MAX)
    parameters: list[Any] = Field(default_factory=list)
    max_rows: int = Field(default=10_000, ge=0, le=1_000_000)
    offset: int = Field(default=0, ge=0)
    after_seq: dict[int, int] | None = None
    timeout_s: float = Field(default=10.0, gt=0, le=300)


def parse(body: bytes) -> Question:
    """Return the question of a request; raises `Permanent`."""
    try:
        return Question.model_validate_json(body)
    except ValidationError as error:
        first = error.errors()[0]
        msg = f"not a question: {'.'.join(str(part) for part in first['loc']) or 'body'}: {first['msg']}"
        raise Permanent(msg) from error


def covers(cursor: Mapping[int, int], wanted: Mapping[int, int]) -> bool:
    """Say whether a projection at `cursor` has taken in all that is `wanted` (shard to sequence)."""
    return all(cursor.get(shard, 0) >= sequence for shard, sequence in wanted.items())


def check(sql: str) -> None:
    """Raise `Permanent` unless `sql` is one statement that only reads."""
    try:
        statements = duckdb.extract_statements(sql)
    except duckdb.Error as error:
        raise Permanent(str(error)) from error
    if len(statements) != 1:
        msg = f"want one statement, found {len(statements)}"
        raise Permanent(msg)
    kind = statements[0].type.name
    if kind not in ALLOWED:
        msg = f"only statements that read are answered (SELECT, WITH, DESCRIBE, SUMMARIZE, EXPLAIN), not {kind}"
        raise Permanent(msg)


def answer(connection: Connection, question: Question) -> dict[str, Any]:
    """Return columns, types, rows and whether rows were left out; raises `Permanent`. For a thread of its own."""
    check(question.sql)
    try:
        cursor = connection.cursor()
    except duckdb.Error as error:
        msg = f"the projection is being opened again: ask once more ({error})"
        raise Permanent(msg) from error
    late = threading.Timer(question.timeout_s, cursor.interrupt)
    try:
        late.start()
        cursor.execute("begin transaction read only")
        cursor.execute(question.sql, question.parameters)
        description = cursor.description or []
        if question.offset:
            cursor.fetchmany(question.offset)
        rows = cursor.fetchmany(question.max_rows + 1)
        cursor.execute("rollback")
    except duckdb.InterruptException as error:
        msg = f"the query was ended after {question.timeout_s:g} s: ask for less, or for a part of the runs at a time"
        raise Permanent(msg) from error
    except (duckdb.Error, RuntimeError, ValueError, OverflowError) as error:
        raise Permanent(str(error)) from error
    finally:
        late.cancel()
        cursor.close()
    kept, is_whole = fit(rows[: question.max_rows])
    return {
        "columns": distinct([column[0] for column in description]),
        "types": [str(column[1]) for column in description],
        "rows": kept,
        "truncated": not is_whole or len(rows) > question.max_rows,
    }


def distinct(names: Sequence[str]) -> list[str]:
    """Return names of which no two are alike: the second `a` is `a_1`, as DuckDB's own tables have it."""
    found: dict[str, None] = {}
    for name in names:
        unique, n = name, 0
        while unique in found:
            n += 1
            unique = f"{name}_{n}"
        found[unique] = None
    return list(found)


def fit(rows: list[tuple[Any, ...]]) -> tuple[list[Any], bool]:
    """Return as many rows, in JSON's own types, as fit into one reply, and whether that is all.

    Raises `Permanent` if not even one fits.
    """
    kept: list[Any] = []
    size = 0
    for row in rows:
        cells = [float(cell) if isinstance(cell, Decimal) else cell for cell in row]
        plain = pydantic_core.to_jsonable_python(cells, bytes_mode="base64", fallback=str)
        text = pydantic_core.to_json(plain, inf_nan_mode="null")
        size += len(text) + 1
        if size > REPLY_MAX_BYTES:
            if not kept:
                msg = f"one row is {len(text)} bytes, more than a reply holds ({REPLY_MAX_BYTES}): select less of it"
                raise Permanent(msg)
            return kept, False
        kept.append(plain)
    return kept, True
