"""Taking requests from a queue: one long-lived pull loop, and the deliveries it hands out.

The loop counts what it has asked for and not yet got, and forgets it when a pull expires or the connection was lost: a loop that
asks again only when many slots are free stalls at full load, and one that never forgets stalls after a server restart.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from typing import Final

import structlog

from gym_bus.bus import OnDelivery, Slots, Stored
from gym_bus.nats_client import LeanClient, Received
from gym_bus.subjects import event_subject_of_queued
from gym_bus.topology import consumer_of, queue_stream

log = structlog.get_logger(__name__)

PULL_EXPIRES_S: Final = 10.0
PULL_MAX: Final = 256


class NatsDelivery:
    """One request out of a queue; see `gym_bus.bus.Delivery`."""

    __slots__ = ("_client", "_reply", "stored")

    def __init__(self, client: LeanClient, message: Received) -> None:
        """Wrap a message whose reply subject takes acknowledgements."""
        source = (message.header(b"Nats-Stream-Source") or "0 0").split(" ")
        self.stored = Stored(event_subject_of_queued(message.subject), message.data, int(source[1]))
        self._client = client
        self._reply = message.reply

    def _send(self, body: bytes) -> None:
        coroutine = self._client.send(self._reply, body)
        try:
            coroutine.send(None)  # sending only waits when the buffer is full: nearly always done at once
        except StopIteration:
            return
        except Exception as error:  # noqa: BLE001  a lost acknowledgement only causes a redelivery
            log.debug("ack_lost", error=str(error) or type(error).__name__)
            return
        coroutine.close()

    def ack(self) -> None:
        """Acknowledge, once: if it is lost the request comes again and is recognised as answered."""
        self._send(b"+ACK")

    def in_progress(self) -> None:
        """Ask for another `ack_wait`."""
        self._send(b"+WPI")

    def later(self, delay_s: float) -> None:
        """Ask for the request again after `delay_s`."""
        self._send(b'-NAK {"delay": %d}' % int(delay_s * 1e9))


class PullLoop:
    """Fetches for free slots only."""

    def __init__(
        self, client: LeanClient, kind: str, place: str, slots: Slots, deliver: OnDelivery, inbox: str
    ) -> None:
        """Take from the queue of `kind` at `place` through the private `inbox`."""
        self._client = client
        self._subject = f"$JS.API.CONSUMER.MSG.NEXT.{queue_stream(kind)}.{consumer_of(place)}"
        self._slots = slots
        self._deliver = deliver
        self._inbox = inbox
        self._pulls: dict[str, tuple[int, float]] = {}
        self._asked = 0
        self._count = 0

    def forget(self) -> None:
        """Take back every promise of an earlier server and ask again."""
        self._pulls.clear()
        self._asked = 0
        self._slots.changed.set()

    async def run(self) -> None:
        """Fetch until cancelled."""
        subscription = await self._client.receive(f"{self._inbox}.*", self._on_message)
        try:
            while True:
                self._slots.changed.clear()
                self._expire()
                free = self._slots.free
                if free and self._asked < (free + 1) // 2:
                    await self._pull(min(free - self._asked, PULL_MAX))
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(1.0):
                        await self._slots.changed.wait()
        finally:
            await self._client.drop(subscription)

    def _expire(self) -> None:
        now = asyncio.get_running_loop().time()
        for reply, (_, deadline) in list(self._pulls.items()):
            if deadline <= now:
                self._settle(reply)

    def _settle(self, reply: str) -> None:
        self._pulls.pop(reply, None)
        if not self._pulls:
            self._asked = 0

    async def _pull(self, batch: int) -> None:
        self._count += 1
        reply = f"{self._inbox}.{self._count}"
        request = {"batch": batch, "expires": int(PULL_EXPIRES_S * 1e9)}
        try:
            await self._client.send(self._subject, json.dumps(request).encode(), reply)
        except Exception as error:  # noqa: BLE001  disconnected: the loop asks again within a second
            log.debug("pull_failed", error=str(error) or type(error).__name__)
            return
        self._pulls[reply] = (batch, asyncio.get_running_loop().time() + PULL_EXPIRES_S + 1)
        self._asked += batch

    def _on_message(self, message: Received) -> None:
        if message.subject.startswith("gym.cmd."):
            self._asked = max(0, self._asked - 1)
            self._slots.take()
            self._slots.changed.set()
            try:
                self._deliver(NatsDelivery(self._client, message))
            except Exception:
                self._slots.give()
                log.exception("delivery_failed", subject=message.subject)
            return
        left = int(message.header(b"Nats-Pending-Messages") or 0)
        if message.subject in self._pulls:
            self._asked = max(0, self._asked - left)
            self._settle(message.subject)
            if message.status in {"404", "408"}:
                self._slots.changed.set()
            else:  # the loop asks again within a second
                log.debug("pull_ended", status=message.status, description=message.description)
