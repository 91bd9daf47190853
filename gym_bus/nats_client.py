"""nats-py's client with a short way for what happens twenty times a rollout.

nats-py validates and parses every header of every message character by character and passes each one through a queue and a task: two
thirds of its cost here. This client hands messages of chosen subscriptions straight to a callback, with headers parsed when they are
asked for, and sends what was put together from checked tokens without checking it again. Connecting, reconnecting, buffering and the
protocol stay nats-py's, which forgets connections that came to nothing: they are closed here. It relies on six of its internals
(`_process_msg`, `_send_command`, `_flush_queue`, `_flush_pending`, `_connect_to_server`, `_transport`), which
`tests/unit/test_nats_client.py` holds against the pinned version.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import Any, Final

from nats.aio.client import Client
from nats.errors import ConnectionClosedError, MaxPayloadError

ALONE: Final = 6
GATHER_S: Final = 0.003
"""With more than `ALONE` requests waiting for an answer, what is sent is gathered for 3 ms: fewer and larger writes cost both sides
less (64 rollouts in flight: a fifth more of them a second, a fifth less processor for each), and with so much under way nobody waits
for a single answer. With few, every request goes out at once. Shorter gathers little; longer bounds what 64 appends at once can do."""


class Received:
    """A message as it came off the wire."""

    __slots__ = ("data", "raw_headers", "reply", "subject")

    def __init__(self, subject: str, reply: str, data: bytes, raw_headers: bytes) -> None:
        """Keep the parts; `raw_headers` is the header block with its status line."""
        self.subject = subject
        self.reply = reply
        self.data = data
        self.raw_headers = raw_headers

    def header(self, name: bytes) -> str | None:
        """Return the value of a header, None if it is not there."""
        start = self.raw_headers.find(b"\r\n" + name + b":")
        if start < 0:
            return None
        start += len(name) + 3
        return self.raw_headers[start : self.raw_headers.index(b"\r\n", start)].strip().decode()

    @property
    def status(self) -> str:
        """Return the status code of a status message, else nothing."""
        line = self.raw_headers[: self.raw_headers.find(b"\r\n")].split(b" ", 2)
        return line[1].decode() if len(line) > 1 else ""

    @property
    def description(self) -> str:
        """Return the words behind the status code."""
        line = self.raw_headers[: self.raw_headers.find(b"\r\n")].split(b" ", 2)
        return line[2].decode(errors="replace") if len(line) > 2 else ""  # noqa: PLR2004  version, code, words


OnReceived = Callable[[Received], None]


async def _unused(_: Any) -> None:
    """Stand in for a callback that is never called."""


class LeanClient(Client):
    """See the module."""

    def __init__(self, gather_s: float = GATHER_S) -> None:
        """Start without a connection; with `gather_s` 0 nothing is ever held back."""
        super().__init__()
        self._direct: dict[int, OnReceived] = {}
        self._gather_s = gather_s
        self._is_gathering = False
        self.in_flight = 0

    async def end(self, within_s: float) -> None:
        """Close the connection within `within_s` seconds, also if whoever waits for that is cancelled. Nothing stays open."""
        try:
            with contextlib.suppress(Exception):
                async with asyncio.timeout(within_s):
                    await self.close()
        finally:
            self._let_go()

    async def _connect_to_server(self, s: Any) -> None:
        self._let_go()  # of a try before, to which the server said nothing of use
        await super()._connect_to_server(s)

    def _let_go(self) -> None:
        if self._transport is not None:
            self._transport.close()  # type: ignore[no-untyped-call]

    async def receive(self, pattern: str, on_received: OnReceived) -> Any:
        """Subscribe to `pattern`; `on_received` is called from the read loop, so it must be short and must not raise."""
        subscription = await self.subscribe(pattern, cb=_unused)
        self._direct[subscription._id] = on_received  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]
        return subscription

    async def drop(self, subscription: Any) -> None:
        """End a subscription made by `receive`: nothing is handed out any more, not even what is on its way already."""
        self._direct.pop(subscription._id, None)  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]
        with contextlib.suppress(Exception):  # the connection may be gone, and the subscription with it
            await subscription.unsubscribe()

    async def _process_msg(self, sid: int, subject: bytes, reply: bytes, data: bytes, headers: bytes) -> None:
        on_received = self._direct.get(sid)
        if on_received is None:
            await super()._process_msg(sid, subject, reply, data, headers)
            return
        on_received(Received(subject.decode(), reply.decode() if reply else "", data, headers or b""))

    async def send(self, subject: str, body: bytes, reply: str = "", headers: bytes = b"") -> None:
        """Publish; `headers` are whole lines, each with its line end. Raises nats-py's errors."""
        if self.is_closed:
            raise ConnectionClosedError
        if len(body) + len(headers) > self._max_payload:
            raise MaxPayloadError
        if headers:
            block = b"NATS/1.0\r\n%b\r\n" % headers
            head = f"HPUB {subject} {reply} {len(block)} {len(block) + len(body)}\r\n".encode()
            command = b"%b%b%b\r\n" % (head, block, body)
        else:
            command = f"PUB {subject} {reply} {len(body)}\r\n".encode() + body + b"\r\n"
        await self._send_command(command)
        if self._is_gathering:
            return
        if self._gather_s and self.in_flight > ALONE:
            self._is_gathering = True
            asyncio.get_running_loop().call_later(self._gather_s, self._flush_gathered)
        else:
            await self._kick_flusher()

    async def _kick_flusher(self) -> None:
        if self._flush_queue is not None and self._flush_queue.empty():
            await self._flush_pending()

    def _flush_gathered(self) -> None:
        self._is_gathering = False
        kicking = self._kick_flusher()
        with contextlib.suppress(StopIteration):  # its queue is empty, so that it never waits
            kicking.send(None)
        kicking.close()
