"""The results of a run as files: `rollouts.jsonl`, `failures.jsonl`, `metrics.json`, and last of all `manifest.json`.

The bytes depend on the log alone: writing them again gives the same files. Each file is written beside its name,
fsynced and renamed; a manifest that is there says that everything else is.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final

from gym_bus.errors import Permanent, Retryable
from projections import queries
from projections.metrics import metrics_of
from projections.store import Connection
from schemas.config import RunConfig

MANIFEST: Final = "manifest.json"
FORMAT: Final = "gym-bus-results.v1"
PAGE: Final = 1_000


def finished_runs(connection: Connection) -> list[tuple[str, Path]]:
    """Return the runs that are over, oldest first, with their output directories."""
    rows = connection.execute(queries.text("results_finished")).fetchall()
    return [(run_id, Path(output_dir)) for run_id, output_dir in rows]


def export(connection: Connection, run_id: str) -> dict[str, str]:
    """Write the results of a run as they stand; return the paths by name. Raises `Permanent`, `Retryable`."""
    cursor = connection.execute(queries.text("results_run"), [run_id])
    row = cursor.fetchone()
    if row is None:
        msg = f"run {run_id} is not known to the projection"
        raise Permanent(msg)
    run = dict(zip([column[0] for column in cursor.description or []], row, strict=True))
    directory = Path(run["output_dir"])
    if not directory.is_absolute():
        msg = f"run {run_id} names {str(directory)!r} for its results, which is no absolute path"
        raise Permanent(msg)
    try:
        directory.mkdir(parents=True, exist_ok=True)
        (directory / MANIFEST).unlink(missing_ok=True)
        digests = {
            "rollouts.jsonl": _write(directory / "rollouts.jsonl", _lines(_rollouts(connection, run))),
            "failures.jsonl": _write(directory / "failures.jsonl", _lines(_failures(connection, run_id))),
            "metrics.json": _write(directory / "metrics.json", [_pretty(metrics_of(connection, run_id))]),
        }
        _write(directory / MANIFEST, [_pretty(_manifest(connection, run, digests))])
    except OSError as error:
        msg = f"the results of run {run_id} cannot be written to {directory}: {error.strerror or error}"
        raise Retryable(msg) from error
    return {name: str(directory / name) for name in (*digests, MANIFEST)}


def _rows(connection: Connection, name: str, run_id: str) -> Iterator[dict[str, Any]]:
    """Yield the rows of a query about a run as dictionaries, page by page."""
    cursor = connection.execute(queries.text(name), [run_id])
    columns = [column[0] for column in cursor.description or []]
    while page := cursor.fetchmany(PAGE):
        for row in page:
            yield dict(zip(columns, row, strict=True))


def _rollouts(connection: Connection, run: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield one row a scored or masked rollout, by task and repeat."""
    for row in _rows(connection, "results_rollouts", run["run_id"]):
        components = row.pop("components")
        usage = {name: row.pop(name) for name in ("input_tokens", "output_tokens", "cached_tokens", "reasoning_tokens")}
        yield {
            **row,
            "model": run["model"],
            "agent": run["agent"],
            "components": json.loads(components) if components else {},
            "usage": usage,
            "_ng_task_index": row["task_index"],
            "_ng_rollout_index": row["repeat"],
        }


def _failures(connection: Connection, run_id: str) -> Iterator[dict[str, Any]]:
    """Yield one row a rollout that has no reward because something failed."""
    for row in _rows(connection, "results_failures", run_id):
        yield {
            **row,
            "_ng_task_index": row["task_index"],
            "_ng_rollout_index": row["repeat"],
            "_ng_failure_class": row["failure_kind"],
        }


def _manifest(connection: Connection, run: dict[str, Any], digests: dict[str, str]) -> dict[str, Any]:
    """Return what the files are about; the logged configuration names secrets and never holds them."""
    run_id = run["run_id"]
    counts = connection.execute(queries.text("results_counts"), [run_id]).fetchall()
    positions = connection.execute(queries.text("results_positions"), [run_id]).fetchall()
    numbers = ("planned", "scored", "failed", "masked", "missing")
    times = ("requested_at", "started", "finished")
    return {
        "format": FORMAT,
        "run_id": run_id,
        "state": run["state"],
        "model": run["model"],
        "agent": run["agent"],
        "counts": {name: run[name] for name in numbers},
        "config": _resolved(run["config"]),
        "config_digest": run["config_digest"],
        "taskset_digest": run["taskset_digest"],
        "versions": json.loads(run["versions"] or "{}"),
        **{name: _plain(run[name]) for name in times},
        "failure": {"kind": run["failure_kind"], "message": run["failure_message"]} if run["failure_kind"] else None,
        "event_counts": dict(counts),
        "stream_positions": {str(shard): {"first": first, "last": last} for shard, first, last in positions},
        "files": {name: {"sha256": digest} for name, digest in digests.items()},
    }


def _resolved(config: str) -> dict[str, Any]:
    """Return the logged configuration with the defaults that the log leaves out."""
    return RunConfig.model_validate_json(config).model_dump(mode="json")


def _plain(value: Any) -> Any:
    return f"{value.isoformat(timespec='milliseconds')}Z" if hasattr(value, "isoformat") else value


def _lines(rows: Iterable[dict[str, Any]]) -> Iterator[bytes]:
    """Yield JSON lines in ASCII: no character of a payload can end a line."""
    for row in rows:
        plain = {name: _plain(value) for name, value in row.items()}
        yield json.dumps(plain, ensure_ascii=True, allow_nan=False, separators=(",", ":")).encode() + b"\n"


def _pretty(value: dict[str, Any]) -> bytes:
    return json.dumps(value, ensure_ascii=True, allow_nan=False, indent=2).encode() + b"\n"


def _write(path: Path, parts: Iterable[bytes]) -> str:
    """Write `path` as a whole or not at all; return the SHA-256 of its content."""
    digest, temporary = hashlib.sha256(), path.with_name(f".{path.name}.new")
    with temporary.open("wb") as file:
        for part in parts:
            digest.update(part)
            file.write(part)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)
    directory = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)
    return digest.hexdigest()
