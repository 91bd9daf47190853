"""Rows in a file, as JSON lines or Parquet: written row by row beside its name, and there as a whole or not at all."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, Final, Self

import duckdb

from gym_bus.errors import BadConfig, Retryable
from projections.samples.sample import TrainingRow

SUFFIXES: Final = (".jsonl", ".parquet")
ROW_GROUP_BYTES: Final = 64 * 1024 * 1024
LINE_MIN_BYTES: Final = 16 * 1024 * 1024

_SPAN: Final = (
    'struct(call_id varchar, "start" bigint, generated_start bigint, "end" bigint, stop_reason varchar, policy_versions varchar[], '
    "logprob_kind varchar, temperature double, top_p double, top_k bigint, is_trained boolean)[]"
)
COLUMNS: Final = {
    "sample_id": "varchar", "run_id": "varchar", "rollout_id": "varchar", "attempt": "bigint", "task_id": "varchar",
    "conversation": "varchar", "relation": "varchar", "follows": "varchar", "parent": "varchar", "parent_call_id": "varchar",
    "during": "varchar[]", "system_digest": "varchar", "tools_digest": "varchar", "asked_at": "bigint", "answered_at": "bigint",
    "call_ids": "varchar[]", "token_ids": "bigint[]", "loss_mask": "tinyint[]", "logprobs": "double[]", "spans": _SPAN,
    "gaps": "varchar[]", "prompt_length": "bigint", "state": "varchar", "counted_as": "varchar", "reward": "double",
}  # fmt: skip
"""The columns of a Parquet file, in the order of the fields of a row."""


def _quoted(text: object) -> str:
    """Return a text as SQL writes it."""
    return "'" + str(text).replace("'", "''") + "'"


class RowsFile:
    """Takes rows one by one; on leaving the context the file is put in its place, or nothing is if there was an error."""

    def __init__(self, path: Path) -> None:
        """Write to `path`; raises `BadConfig` for a name that says no format, or a place that is none."""
        if path.suffix not in SUFFIXES:
            msg = f"--out {path}: the name has to end in {' or '.join(SUFFIXES)}"
            raise BadConfig(msg)
        if not path.parent.is_dir() or path.is_dir():
            msg = (
                f"--out {path}: {path if path.is_dir() else path.parent} is {'a' if path.is_dir() else 'no'} directory"
            )
            raise BadConfig(msg)
        self._path = path
        self._lines = path.with_name(f".{path.name}.lines")
        self._table = path.with_name(f".{path.name}.table")
        self._longest = LINE_MIN_BYTES
        self._file: BinaryIO | None = None

    def __enter__(self) -> Self:
        """Begin; raises `Retryable` if the disk refuses."""
        try:
            self._file = self._lines.open("wb")
        except OSError as error:
            raise self._refused(error) from error
        return self

    def write(self, row: TrainingRow) -> None:
        """Add a row, in ASCII: no character of a text can end a line. Raises `Retryable` if the disk refuses."""
        text = row.model_dump_json()
        if not text.isascii():
            text = json.dumps(json.loads(text), ensure_ascii=True, allow_nan=False, separators=(",", ":"))
        line = text.encode() + b"\n"
        self._longest = max(self._longest, len(line))
        try:
            if self._file:
                self._file.write(line)
        except OSError as error:
            raise self._refused(error) from error

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Put the file in its place unless there was an error."""
        try:
            if self._file:
                self._file.close()
            if kind is None and self._path.suffix == ".parquet":
                self._as_table()
                self._table.replace(self._path)
            elif kind is None:
                self._lines.replace(self._path)
        except (OSError, duckdb.Error) as refused:
            raise self._refused(refused) from refused
        finally:
            for left in (self._lines, self._table):
                with contextlib.suppress(OSError):
                    left.unlink(missing_ok=True)

    def _as_table(self) -> None:
        """Write the lines as Parquet; as much is in memory as a row group has."""
        columns = ", ".join(f"{name}: {_quoted(kind)}" for name, kind in COLUMNS.items())
        with duckdb.connect(":memory:", config={"threads": 1}) as connection:
            connection.execute(
                "set preserve_insertion_order = false"
            )  # for row groups bounded in bytes; one thread keeps the order
            connection.execute(
                f"copy (select * from read_json({_quoted(self._lines)}, format = 'newline_delimited', "  # noqa: S608  our own paths
                f"columns = {{{columns}}}, maximum_object_size = {self._longest + 1})) "
                f"to {_quoted(self._table)} (format parquet, compression zstd, row_group_size_bytes {ROW_GROUP_BYTES})"
            )

    def _refused(self, error: Exception) -> Retryable:
        reason = getattr(error, "strerror", None) or str(error)
        return Retryable(f"the rows cannot be written to {self._path}: {reason}")
