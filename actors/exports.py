"""Writing the results of runs: of each when it is over, and whenever somebody asks.

Whoever asks joins what is being written already, if it knows enough of the log, and is told every two seconds that it is going on: a
projector that dies meanwhile is found out by its silence, however long the writing takes.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import duckdb
import structlog
from pydantic import Field

from gym_bus import boundary
from gym_bus.errors import GymBusError, Retryable
from projections import results, store
from projections.ask import covers
from schemas.base import Frozen

log = structlog.get_logger(__name__)

SAY_EVERY_S: Final = 2.0
LOOK_EVERY_S: Final = 1.0
RETRY_S: Final = 30.0

Cursor = dict[int, int]
"""Per shard a sequence."""


class ExportRequest(Frozen):
    """Wanted: the results of a run, from a projection that has the log up to `after_seq` (shard to sequence)."""

    run_id: str
    after_seq: Cursor = Field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Job:
    """Results being written, and what of the log they know at least."""

    cursor: Cursor
    writing: asyncio.Task[dict[str, str]]


class Exports:
    """See the module. Everything is written by one thread."""

    def __init__(
        self,
        position: Callable[[], Cursor],
        connection: Callable[[], store.Connection | None],
        ends: Callable[[], Awaitable[Cursor]],
        advanced: asyncio.Condition,
    ) -> None:
        """Read through `connection`, which knows the log up to `position`; `ends` says where the log ends now."""
        self._position = position
        self._connection = connection
        self._ends = ends
        self._advanced = advanced
        self._thread = ThreadPoolExecutor(1, "results")
        self._jobs: dict[str, _Job] = {}
        self._due: dict[str, Cursor] = {}

    def shutdown(self) -> None:
        """Wait for what is being written; begin nothing more."""
        self._thread.shutdown(cancel_futures=True)

    async def note_finished(self, run_ids: list[str]) -> None:
        """Have results written once everything is here that was in the log when the run's end was seen."""
        try:
            ends = await self._ends()
        except GymBusError:
            ends = {}
        self._due.update(dict.fromkeys(run_ids, ends))

    async def run(self, finished: list[tuple[str, Path]]) -> None:
        """Write the results of every run that is over and has no manifest, `finished` ones first, until cancelled."""
        for run_id, directory in finished:
            if not await asyncio.to_thread((directory / results.MANIFEST).exists):
                self._due[run_id] = {}
        while True:
            for run_id in [run_id for run_id, wanted in self._due.items() if covers(self._position(), wanted)]:
                await self._write_due(run_id, self._due.pop(run_id))
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(LOOK_EVERY_S), self._advanced:
                    await self._advanced.wait()

    async def _write_due(self, run_id: str, wanted: Cursor) -> None:
        try:
            await self._job(run_id, wanted)
        except Retryable as error:
            log.warning("results_delayed", run_id=run_id, reason=str(error), wait_s=RETRY_S)
            asyncio.get_running_loop().call_later(RETRY_S, self._due.__setitem__, run_id, wanted)
        except GymBusError as error:
            log.warning("results_refused", run_id=run_id, reason=str(error))

    async def answer(self, body: bytes) -> dict[str, Any]:
        """Answer an `ExportRequest` with `{"paths": {name: path}}`, or with `{"pending": true}`: ask again."""
        asked = ExportRequest.model_validate_json(body)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(SAY_EVERY_S), self._advanced:
                await self._advanced.wait_for(lambda: covers(self._position(), asked.after_seq))
        if not covers(self._position(), asked.after_seq):
            return {"pending": True}
        job = self._job(asked.run_id, asked.after_seq)
        done, _ = await asyncio.wait({job}, timeout=SAY_EVERY_S)
        return {"paths": job.result()} if done else {"pending": True}

    def _job(self, run_id: str, wanted: Cursor) -> asyncio.Task[dict[str, str]]:
        """Return the task that writes the results of a run from a projection that has all that is `wanted`."""
        job = self._jobs.get(run_id)
        if job is None or job.writing.done() or not covers(job.cursor, wanted):
            job = _Job(self._position(), asyncio.get_running_loop().create_task(self._export(run_id)))
            self._jobs[run_id] = job
            job.writing.add_done_callback(lambda _: self._forget(run_id, job))
        return job.writing

    def _forget(self, run_id: str, job: _Job) -> None:
        if not job.writing.cancelled():
            job.writing.exception()  # whoever waited has seen it; nobody may have
        if self._jobs.get(run_id) is job:
            del self._jobs[run_id]

    async def _export(self, run_id: str) -> dict[str, str]:
        return await asyncio.get_running_loop().run_in_executor(self._thread, self._write, run_id)

    def _write(self, run_id: str) -> dict[str, str]:
        connection = self._connection()
        if connection is None:
            msg = "the projection is being opened again"
            raise Retryable(msg)
        boundary.reach("projector", "before_export")
        try:
            with connection.cursor() as cursor:
                cursor.execute("begin transaction read only")
                paths = results.export(cursor, run_id)
                cursor.execute("rollback")
        except duckdb.Error as error:
            msg = f"the results of run {run_id} cannot be read: {error}"
            raise Retryable(msg) from error
        boundary.reach("projector", "exported")
        log.info("results_written", run_id=run_id, manifest=paths[results.MANIFEST])
        return paths
