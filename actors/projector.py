"""The projector: the one writer of `<data_dir>/projections.duckdb`, and who answers questions about it.

Everything DuckDB writes is written in one thread of its own; questions have two more, results one. It serves

    gym.query    {"sql", "parameters", "max_rows", "offset", "after_seq", "timeout_s"} -> columns, types, rows,
    truncated, cursor, lag
    gym.export   see actors.exports

An answer that does not fit into one message (900 KB) ends early with `truncated`; asked again with `offset`, it goes
on there.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, Final

import duckdb
import structlog

from actors.exports import Exports
from gym_bus import boundary
from gym_bus.blobs import DirectoryBlobs
from gym_bus.errors import BusUnavailable, GymBusError, Retryable
from gym_bus.nats_bus import NatsBus, connect
from gym_bus.server import BusAddress
from gym_bus.settings import Settings
from gym_bus.topology import EVENT_STREAM
from projections import ask, results, store
from projections.desk import Desk
from projections.ingest import Applied, Batch, Gap, Ingest
from projections.reader import BATCH_MAX, ShardReader

log = structlog.get_logger(__name__)

LINGER_S: Final = 0.1
LINGER_SHARE: Final = 8.0
LINGER_MAX_S: Final = 0.8
HEARTBEAT_S: Final = 1.0
IDLE_CHECKPOINT_S: Final = 2.0
AFTER_SEQ_WAIT_S: Final = 5.0
BACKOFF_MIN_S: Final = 0.1
BACKOFF_MAX_S: Final = 5.0


class Projector:
    """See the module. One a data directory: a second one waits for the file's lock."""

    def __init__(self, bus: NatsBus, data_dir: Path, host_id: str) -> None:
        """Project what `bus` holds into `data_dir`; show a pulse as `host_id`."""
        self._bus = bus
        self._path = data_dir / "projections.duckdb"
        self._blobs = DirectoryBlobs(data_dir / "blobs")
        self._pulse_subject = f"gym.hb.projector.{host_id}"
        self._worker = host_id
        self._writer = ThreadPoolExecutor(1, "projector")
        self._askers = ThreadPoolExecutor(2, "questions")
        self._connection: store.Connection | None = None
        self._ingest: Ingest | None = None
        self._readers: dict[int, ShardReader] = {}
        self._arrived = asyncio.Event()
        self._advanced = asyncio.Condition()
        self._exports = Exports(lambda: self.position, lambda: self._connection, self._ends, self._advanced)

    async def run(self) -> None:
        """Run until cancelled."""
        try:
            await self._open()
            async with AsyncExitStack() as stack, asyncio.TaskGroup() as group:
                self._bus.on_reconnect(self._reconnected)
                for shard, (_, generation) in (await self._streams()).items():
                    after = self.position.get(shard, 0)
                    self._readers[shard] = ShardReader(self._bus, shard, after, generation, self._arrived)
                    group.create_task(self._readers[shard].run())
                desk = Desk(self._bus, group)
                await stack.enter_async_context(desk.open("gym.query", self._answer))
                await stack.enter_async_context(desk.open("gym.export", self._exports.answer))
                group.create_task(self._beat())
                group.create_task(self._exports.run(await self._finished()))
                log.info("projector_ready", path=str(self._path), cursor=self.position)
                await self._project()
        finally:
            await asyncio.to_thread(self._exports.shutdown)
            await asyncio.get_running_loop().run_in_executor(self._writer, self._close)
            self._writer.shutdown(wait=False)
            self._askers.shutdown(wait=False, cancel_futures=True)

    # -- the file ------------------------------------------------------------------------------------------------------

    @property
    def position(self) -> dict[int, int]:
        """Return per shard the last sequence whose row is committed."""
        return dict(self._ingest.cursor) if self._ingest else {}

    async def _open(self) -> None:
        """Open the file, or make it anew if it is of another log; wait as long as the disk or its lock refuses."""
        loop, wait_s = asyncio.get_running_loop(), BACKOFF_MIN_S
        while True:
            try:
                streams = await self._streams()
                await loop.run_in_executor(self._writer, self._open_file, streams)
            except Retryable as error:
                log.warning("projection_delayed", reason=str(error), wait_s=wait_s)
                await asyncio.sleep(wait_s)
                wait_s = min(wait_s * 2, BACKOFF_MAX_S)
            else:
                return

    def _open_file(self, streams: dict[int, tuple[int, str]]) -> None:
        self._close()
        connection = store.open_store(self._path)
        try:
            if reason := _foreign(store.cursors(connection), streams):
                connection.close()
                store.set_aside(self._path, reason)
                connection = store.open_store(self._path)
            self._ingest = Ingest(connection, self._blobs)
            store.lock_down(connection)
        except (duckdb.Error, OSError) as error:
            connection.close()
            msg = f"the projection {self._path} cannot be prepared: {error}"
            raise Retryable(msg) from error
        self._connection = connection

    def _close(self) -> None:
        if self._connection is not None:
            with contextlib.suppress(duckdb.Error):  # what was not written is read from the log again
                self._connection.close()
        self._connection = self._ingest = None

    async def _streams(self) -> dict[int, tuple[int, str]]:
        """Return last sequence and generation (when it was made) of every shard there is."""
        found: dict[int, tuple[int, str]] = {}
        listed = await self._bus.api("STREAM.NAMES", {"subject": "gym.evt.>"})
        for name in listed.get("streams") or []:
            info = await self._bus.api(f"STREAM.INFO.{name}")
            if name.startswith(EVENT_STREAM) and "error" not in info:
                found[int(name.removeprefix(EVENT_STREAM))] = (int(info["state"]["last_seq"]), str(info["created"]))
        if not found:
            msg = "there is no event stream yet: `gym-bus bus up` makes it"
            raise BusUnavailable(msg)
        return found

    async def _ends(self) -> dict[int, int]:
        """Return where every shard ends."""
        return {shard: last for shard, (last, _) in (await self._streams()).items()}

    async def _finished(self) -> list[tuple[str, Path]]:
        """Return the runs that the projection knows to be over."""
        if self._connection is None:
            return []
        return await asyncio.get_running_loop().run_in_executor(self._writer, results.finished_runs, self._connection)

    def _reconnected(self) -> None:
        for reader in self._readers.values():
            reader.restart()

    # -- projecting ----------------------------------------------------------------------------------------------------

    async def _project(self) -> None:
        """Take in what arrives; when nothing does, let DuckDB tidy up.

        A batch costs DuckDB some 50 ms however small it is, so the next one is waited for several times as long as the last took:
        a busy log is taken in large batches, and a run keeps its processors.
        """
        is_tidy, linger_s, clock = True, LINGER_S, asyncio.get_running_loop()
        while True:
            try:
                async with asyncio.timeout(None if is_tidy else IDLE_CHECKPOINT_S):
                    await self._arrived.wait()
            except TimeoutError:
                await asyncio.get_running_loop().run_in_executor(self._writer, self._checkpoint)
                is_tidy = True
                continue
            self._arrived.clear()
            await self._linger(linger_s)
            began, is_tidy = clock.time(), False
            for reader in self._readers.values():
                if reader.buffered:
                    await self._take_in(reader, reader.take())
                if reader.buffered:
                    self._arrived.set()
            linger_s = min(max(LINGER_S, LINGER_SHARE * (clock.time() - began)), LINGER_MAX_S)

    async def _linger(self, most_s: float) -> None:
        """Wait until a batch is full, at most `most_s`."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(most_s):
                while all(reader.buffered < BATCH_MAX for reader in self._readers.values()):
                    self._arrived.clear()
                    await self._arrived.wait()

    async def _take_in(self, reader: ShardReader, batch: Batch) -> None:
        """Take one batch in, however long the disk refuses."""
        loop, wait_s = asyncio.get_running_loop(), BACKOFF_MIN_S
        while True:
            try:
                applied = await loop.run_in_executor(self._writer, self._apply, batch)
                break
            except Gap as error:
                log.warning("projection_gap", reason=str(error))
                reader.rewind(self.position.get(batch.shard, 0))
                return
            except (duckdb.Error, OSError) as error:
                log.warning("projection_delayed", reason=str(error)[:500], wait_s=wait_s)
                await asyncio.sleep(wait_s)
                wait_s = min(wait_s * 2, BACKOFF_MAX_S)
                await self._open()
        if applied.finished_runs:
            await self._exports.note_finished(applied.finished_runs)
        async with self._advanced:
            self._advanced.notify_all()

    def _apply(self, batch: Batch) -> Applied:
        boundary.reach("projector", "batch_received")
        if self._ingest is None:
            msg = "the projection is closed"
            raise OSError(msg)
        return self._ingest.apply(batch)

    def _checkpoint(self) -> None:
        with contextlib.suppress(duckdb.Error):  # a reader's transaction or a full disk: the next quiet moment will do
            if self._connection is not None:
                self._connection.execute("checkpoint")

    # -- questions -----------------------------------------------------------------------------------------------------

    async def _answer(self, body: bytes) -> dict[str, Any]:
        question = ask.parse(body)
        if question.after_seq:
            await self._reach(question.after_seq)
        if self._connection is None:
            msg = "the projection is being opened again: ask once more"
            raise Retryable(msg)
        cursor = self.position
        found = await asyncio.get_running_loop().run_in_executor(self._askers, ask.answer, self._connection, question)
        lag = sum(reader.pending + reader.received - cursor.get(shard, 0) for shard, reader in self._readers.items())
        return {**found, "cursor": cursor, "lag": lag}

    async def _reach(self, wanted: dict[int, int]) -> None:
        """Wait until the projection has taken in what is wanted; after 5 s answer with what there is."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(AFTER_SEQ_WAIT_S), self._advanced:
                await self._advanced.wait_for(lambda: ask.covers(self.position, wanted))

    async def _beat(self) -> None:
        while True:
            with contextlib.suppress(GymBusError):
                await self._bus.tell(self._pulse_subject, self._worker.encode())
            await asyncio.sleep(HEARTBEAT_S)


def _foreign(cursors: dict[int, tuple[int, str]], streams: dict[int, tuple[int, str]]) -> str | None:
    """Say why the projection is not one of this log: it has seen more of it than there is, or another one."""
    for shard, (seq, generation) in cursors.items():
        last, created = streams.get(shard, (0, ""))
        if generation != created:
            return f"shard {shard} was made at {generation or '?'}, the log's at {created or '(it is not there)'}"
        if seq > last:
            return f"shard {shard} was read up to {seq}, the log ends at {last}"
    return None


async def run_projector(settings: Settings, host_id: str, address: BusAddress) -> None:
    """Run a projector until SIGTERM."""
    stopping = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stopping.set)
    async with connect(address.url, "projector", address.passwords["projector"], name=f"{host_id}/projector") as bus:
        projecting = asyncio.ensure_future(Projector(bus, settings.data_dir, host_id).run())
        stopped = asyncio.ensure_future(stopping.wait())
        await asyncio.wait({projecting, stopped}, return_when=asyncio.FIRST_COMPLETED)
        stopped.cancel()
        projecting.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await projecting
