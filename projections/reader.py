"""Reading one shard of the log, in order, without a gap: an ephemeral pull consumer whose messages come to a callback.

A message costs the reader a tuple in a list. What was lost on the way (a reconnect, a server that forgot the
consumer) shows as a jump in the consumer's own count or as silence, and is read again from the last event that
arrived. Nothing is acknowledged: the cursor in the projection says what has been taken in.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import secrets
from typing import Any, Final

import structlog
from nats.aio.subscription import Subscription

from gym_bus.errors import BusUnavailable, GymBusError
from gym_bus.nats_bus import NatsBus
from gym_bus.nats_client import Received
from gym_bus.topology import event_stream, inbox_prefix
from projections.ingest import Batch, Item

log = structlog.get_logger(__name__)

BATCH_MAX: Final = 10_000
BATCH_BYTES: Final = 16 * 1024 * 1024
PULL: Final = 5_000
PULL_BYTES: Final = 16 * 1024 * 1024
AHEAD_MAX: Final = 20_000
AHEAD_BYTES: Final = 48 * 1024 * 1024
EXPIRES_S: Final = 30
HEARTBEAT_S: Final = 2
LOOK_EVERY_S: Final = 0.2
SILENCE_S: Final = 3 * HEARTBEAT_S
STATUS_DONE: Final = frozenset({"404", "408", "409"})
ACK_TOKENS: Final = 9
"""$JS.ACK.<stream>.<consumer>.<deliveries>.<stream sequence>.<consumer sequence>.<time>.<pending>"""


class ShardReader:
    """Events of one shard after a sequence; `run` fetches, `take` hands out."""

    def __init__(self, bus: NatsBus, shard: int, after: int, generation: str, arrived: asyncio.Event) -> None:
        """Read what is stored after `after`; set `arrived` when there is something to take."""
        self.shard = shard
        self.generation = generation
        self._last_reply = ".0"
        self.received = after
        self._bus = bus
        self._after = after
        self._arrived = arrived
        self._items: list[Item] = []
        self._bytes = 0
        self._life = 0
        self._name = ""
        self._inbox = ""
        self._outstanding = 0
        self._expected = 1
        self._heard_at = 0.0
        self._is_broken = False
        self._turn = asyncio.Event()
        self._subscription: Subscription | None = None

    @property
    def buffered(self) -> int:
        """Return how many events wait to be taken."""
        return len(self._items)

    @property
    def pending(self) -> int:
        """Return how many events of the log had not been sent when the last one was."""
        return int(self._last_reply.rpartition(".")[2])

    def take(self, most: int = BATCH_MAX) -> Batch:
        """Return the next events, perhaps none."""
        size = count = 0
        for _, _, body in self._items[:most]:
            if count and size + len(body) > BATCH_BYTES:
                break
            count, size = count + 1, size + len(body)
        items, self._items = self._items[:count], self._items[count:]
        self._bytes -= size
        batch = Batch(self.shard, self._after, items, self.generation)
        if items:
            self._after = items[-1][0]
        self._turn.set()
        return batch

    def rewind(self, after: int) -> None:
        """Read again from `after`."""
        self._items, self._bytes, self._after, self.received = [], 0, after, after
        self.restart()

    def restart(self) -> None:
        """Make the consumer anew, after the last event that arrived."""
        self._is_broken = True
        self._turn.set()

    async def run(self) -> None:
        """Fetch until cancelled."""
        try:
            while True:
                try:
                    await self._open()
                    await self._fetch()
                except GymBusError as error:
                    log.warning("reader_delayed", shard=self.shard, reason=str(error))
                    await asyncio.sleep(0.2)
        finally:
            await self._close()

    async def _close(self) -> None:
        if self._subscription:
            await self._bus.client.drop(self._subscription)
            self._subscription = None

    async def _open(self) -> None:
        await self._close()
        self._is_broken = False
        self._life += 1
        self._name = f"projector-{secrets.token_hex(6)}"
        self._inbox = f"{inbox_prefix('projector')}.{secrets.token_hex(6)}"
        self._outstanding, self._expected = 0, 1
        stream, life = event_stream(self.shard), self._life

        def on_message(message: Received) -> None:
            if life == self._life:
                self._on_message(message)

        try:
            self._subscription = await self._bus.client.receive(self._inbox, on_message)
        except Exception as error:
            msg = f"cannot subscribe: {str(error) or type(error).__name__}"
            raise BusUnavailable(msg) from error
        answer = await self._bus.api(f"CONSUMER.CREATE.{stream}.{self._name}", {
            "stream_name": stream, "action": "create", "config": self._config(),
        })  # fmt: skip
        if refused := answer.get("error"):
            msg = f"no consumer on {stream}: {refused.get('description')}"
            raise BusUnavailable(msg)
        self._last_reply = f".{answer.get('num_pending', 0)}"
        self._heard_at = asyncio.get_running_loop().time()

    def _config(self) -> dict[str, Any]:
        return {
            "name": self._name,
            "deliver_policy": "by_start_sequence",
            "opt_start_seq": self.received + 1,
            "ack_policy": "none",
            "replay_policy": "instant",
            "inactive_threshold": 60_000_000_000,
            "mem_storage": True,
            "num_replicas": 1,
        }

    async def _fetch(self) -> None:
        loop = asyncio.get_running_loop()
        while not self._is_broken:
            if self._outstanding < PULL and len(self._items) < AHEAD_MAX and self._bytes < AHEAD_BYTES:
                self._outstanding += PULL
                await self._pull()
            self._turn.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(LOOK_EVERY_S):
                    await self._turn.wait()
            if loop.time() - self._heard_at > SILENCE_S and self._outstanding:
                log.warning("reader_silent", shard=self.shard, after=self.received)
                return

    async def _pull(self) -> None:
        request = {
            "batch": PULL,
            "max_bytes": PULL_BYTES,
            "expires": EXPIRES_S * 1_000_000_000,
            "idle_heartbeat": HEARTBEAT_S * 1_000_000_000,
        }
        subject = f"$JS.API.CONSUMER.MSG.NEXT.{event_stream(self.shard)}.{self._name}"
        self._heard_at = asyncio.get_running_loop().time()
        try:
            await self._bus.client.publish(subject, json.dumps(request).encode(), reply=self._inbox)
        except Exception as error:
            msg = f"cannot send to the bus: {str(error) or type(error).__name__}"
            raise BusUnavailable(msg) from error

    def _on_message(self, message: Received) -> None:
        reply = message.reply.split(".")
        if len(reply) != ACK_TOKENS:
            self._on_status(message)
            return
        if int(reply[6]) != self._expected:
            log.warning("reader_gap", shard=self.shard, expected=self._expected, found=int(reply[6]))
            self._life += 1
            self.restart()
            return
        self._expected += 1
        self._outstanding -= 1
        if self._outstanding < PULL:
            self._turn.set()
        self.received = int(reply[5])
        self._last_reply = message.reply
        self._items.append((self.received, message.subject, message.data))
        self._bytes += len(message.data)
        if len(self._items) == 1 or len(self._items) >= BATCH_MAX:
            self._arrived.set()

    def _on_status(self, message: Received) -> None:
        self._heard_at = asyncio.get_running_loop().time()
        status = message.status
        if status not in STATUS_DONE:
            return
        self._outstanding = max(0, self._outstanding - int(message.header(b"Nats-Pending-Messages") or 0))
        if "deleted" in message.description.lower() or status == "404":
            self.restart()
