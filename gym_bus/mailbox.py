"""Requests and their answers over one subscription of a NATS connection.

nats-py's own request costs a future, a timer and a task each; here a sweep ends what has waited too long, and a refused publish
fails the call that made it at once instead of letting it time out.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from gym_bus.errors import BusRefused, BusUnavailable
from gym_bus.nats_client import LeanClient, OnReceived, Received

SWEEP_S: Final = 0.1


class _Asked:
    """One open request with one answer: where it went, until when it waits, and the future that is waited for."""

    __slots__ = ("deadline", "future", "subject")

    def __init__(self, subject: str, deadline: float, future: asyncio.Future[Received]) -> None:
        self.subject = subject
        self.deadline = deadline
        self.future = future

    def on_message(self, message: Received) -> None:
        if not self.future.done():
            self.future.set_result(message)

    def fail(self, error: Exception) -> None:
        if not self.future.done():
            self.future.set_exception(error)


class _Expected:
    """One open request with many answers, each handed to a callback."""

    __slots__ = ("deadline", "fail", "on_message", "subject")

    def __init__(
        self, subject: str, deadline: float, on_message: OnReceived, fail: Callable[[Exception], None]
    ) -> None:
        self.subject = subject
        self.deadline = deadline
        self.on_message = on_message
        self.fail = fail


class Mailbox:
    """Sends requests and hands answers to whoever waits for them."""

    def __init__(self, client: LeanClient, inbox: str) -> None:
        """Use the private inbox `inbox` on `client`; call `open` before anything else."""
        self._client = client
        self._inbox = inbox
        self._waiting: dict[str, _Asked | _Expected] = {}
        self._count = 0
        self._sweeper: asyncio.TimerHandle | None = None

    async def open(self) -> None:
        """Subscribe to the inbox."""
        await self._client.receive(f"{self._inbox}.*", self._on_message)
        self._sweep()

    def close(self) -> None:
        """End the sweep and fail everything that still waits."""
        if self._sweeper:
            self._sweeper.cancel()
        self.fail_all("the connection to the bus was closed")

    def fail_all(self, reason: str) -> None:
        """Fail everything that waits: its answers will not come."""
        waiting, self._waiting = self._waiting, {}
        for one in waiting.values():
            one.fail(BusUnavailable(f"{reason} ({one.subject})"))

    def _on_message(self, message: Received) -> None:
        waiting = self._waiting.get(message.subject)
        if waiting is None:
            return
        if isinstance(waiting, _Asked):
            del self._waiting[message.subject]
            self._client.in_flight = len(self._waiting)
        waiting.on_message(message)

    def _sweep(self) -> None:
        loop = asyncio.get_running_loop()
        now = loop.time()
        late = [reply for reply, waiting in self._waiting.items() if waiting.deadline <= now]
        for reply in late:
            waiting = self._waiting.pop(reply)
            waiting.fail(BusUnavailable(f"no answer from the bus to {waiting.subject}"))
        self._sweeper = loop.call_later(SWEEP_S, self._sweep)

    def refuse(self, subject: str) -> None:
        """Fail what waits for an answer to `subject`: the bus user may not publish there."""
        for reply, waiting in list(self._waiting.items()):
            if waiting.subject.lower() == subject.lower():  # nats-py hands its error on in lower case
                del self._waiting[reply]
                waiting.fail(BusRefused(f"this bus user may not publish to {subject}: see gym_bus.topology.rights"))

    def expect(self, subject: str, timeout_s: float, on_message: OnReceived, fail: Callable[[Exception], None]) -> str:
        """Return a reply subject; `on_message` gets every answer until `forget`, `fail` is called at the deadline."""
        self._count += 1
        reply = f"{self._inbox}.{self._count}"
        deadline = asyncio.get_running_loop().time() + timeout_s
        self._waiting[reply] = _Expected(subject, deadline, on_message, fail)
        return reply

    def forget(self, reply: str) -> None:
        """Stop waiting at `reply`."""
        self._waiting.pop(reply, None)

    async def ask(self, subject: str, body: bytes, timeout_s: float, headers: bytes = b"") -> Received:
        """Send one request and return its first answer; raises `BusUnavailable` or `BusRefused`."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Received] = loop.create_future()
        self._count += 1
        reply = f"{self._inbox}.{self._count}"
        self._waiting[reply] = _Asked(subject, loop.time() + timeout_s, future)
        self._client.in_flight = len(self._waiting)
        try:
            try:
                await self._client.send(subject, body, reply, headers)
            except Exception as error:  # nats-py raises many kinds; all mean the same to the caller
                msg = f"cannot send to the bus: {str(error) or type(error).__name__}"
                raise BusUnavailable(msg) from error
            return await future
        finally:
            self._waiting.pop(reply, None)
            self._client.in_flight = len(self._waiting)
