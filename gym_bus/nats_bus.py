"""The bus as a NATS server with JetStream: one connection for one kind of actor."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import secrets
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, Final

import pydantic_core
import structlog

from gym_bus import boundary
from gym_bus.bus import Conflict, Listening, OnDelivery, OnStored, OnTold, Slots, Stored
from gym_bus.errors import BusUnavailable, Permanent, Retryable, StoreFull
from gym_bus.mailbox import Mailbox
from gym_bus.nats_client import GATHER_S, LeanClient, Received
from gym_bus.nats_work import PullLoop
from gym_bus.topology import event_stream, inbox_prefix

log = structlog.get_logger(__name__)

REQUEST_TIMEOUT_S: Final = 10.0
CLOSED_WITHIN_S: Final = 2.0
PAGE: Final = 256
CAS_FAILED: Final = 10071
FULL: Final = frozenset({10077, 10047, 10023, 10122})
_VIOLATION: Final = re.compile(r'permissions violation for publish to "([^"]+)"', re.IGNORECASE)


def _error_of(answer: dict[str, Any], subject: str) -> Exception | None:
    error = answer.get("error")
    if not error:
        return None
    code, text = error.get("err_code"), error.get("description", "")
    if code == CAS_FAILED:
        return Conflict(f"{subject}: {text}")
    if code in FULL:
        return StoreFull(f"the bus's store is full: {text}")
    return BusUnavailable(
        f"{subject}: {text} ({code})"
    )  # 10164, busy on a replicated stream, is one of these: try again


def _shard_of_pattern(pattern: str) -> int:
    return int(pattern.split(".", 3)[2])


def _stored(message: Received) -> Stored | None:
    """Return the event of a direct get's answer, None for a status message."""
    sequence = message.header(b"Nats-Sequence")
    return Stored(message.header(b"Nats-Subject") or "", message.data, int(sequence)) if sequence else None


class NatsBus:
    """See `gym_bus.bus.Bus`. Made by `connect`."""

    def __init__(self, client: LeanClient, mailbox: Mailbox, user: str) -> None:
        """Wrap a connected client."""
        self.client = client
        self.mailbox = mailbox
        self._kind = user
        self._loops: list[PullLoop] = []
        self._on_reconnect: list[Callable[[], None]] = []
        self.reconnects = 0

    def on_reconnect(self, call: Callable[[], None]) -> None:
        """Have `call` called after every reconnect."""
        self._on_reconnect.append(call)

    def reconnected(self) -> None:
        """Forget what an earlier server promised."""
        self.reconnects += 1
        for loop in self._loops:
            loop.forget()
        for call in self._on_reconnect:
            call()

    async def append(self, subject: str, body: bytes, *, fence: str, expected: int) -> int:
        """Store one event if nobody else wrote to the aggregate since `expected`."""
        headers = (
            f"Nats-Expected-Last-Subject-Sequence:{expected}\r\nNats-Expected-Last-Subject-Sequence-Subject:{fence}.>\r\n"
        ).encode()
        asked = self.mailbox.ask(subject, body, REQUEST_TIMEOUT_S, headers)
        if boundary.is_armed():
            asking = asyncio.ensure_future(asked)
            await asyncio.sleep(0)
            with contextlib.suppress(Exception):
                await self.client.flush(1)
            boundary.reach(self._kind, "append_sent")
            message = await asking
        else:
            message = await asked
        if not message.data:
            msg = f"{subject}: nothing stores this subject (are the streams created?)"
            raise BusUnavailable(msg)
        answer = pydantic_core.from_json(message.data)
        if error := _error_of(answer, subject):
            raise error
        return int(answer["seq"])

    async def api(self, name: str, request: dict[str, Any] | None = None, timeout_s: float = 5.0) -> dict[str, Any]:
        """Call the JetStream API `name`; errors come back in the answer."""
        body = json.dumps(request).encode() if request is not None else b""
        message = await self.mailbox.ask(f"$JS.API.{name}", body, timeout_s)
        if not message.data:
            msg = f"JetStream does not answer {name}: is it enabled on this server?"
            raise BusUnavailable(msg)
        answer: dict[str, Any] = pydantic_core.from_json(message.data)
        return answer

    async def last(self, pattern: str) -> Stored | None:
        """Return the newest event under `pattern`."""
        subject = f"$JS.API.DIRECT.GET.{event_stream(_shard_of_pattern(pattern))}"
        message = await self.mailbox.ask(subject, json.dumps({"last_by_subj": pattern}).encode(), REQUEST_TIMEOUT_S)
        if stored := _stored(message):
            return stored
        if message.status == "404":
            return None
        msg = f"cannot read {pattern}: {message.description or message.status or 'no answer'}"
        raise BusUnavailable(msg)

    async def read(self, pattern: str, *, after: int = 0, latest: bool = False) -> AsyncIterator[Stored]:
        """Yield what is stored under `pattern` above `after`, page by page; or the newest of each subject."""
        if latest:
            page, _ = await self._page(pattern, {"multi_last": [pattern]})
            for stored in sorted(page, key=lambda s: s.sequence):
                if stored.sequence > after:
                    yield stored
            return
        while True:
            page, has_more = await self._page(pattern, {"seq": after + 1, "batch": PAGE, "next_by_subj": pattern})
            for stored in page:
                yield stored
                after = stored.sequence
            if not has_more or not page:
                return

    async def _page(self, pattern: str, request: dict[str, Any]) -> tuple[list[Stored], bool]:
        subject = f"$JS.API.DIRECT.GET.{event_stream(_shard_of_pattern(pattern))}"
        messages: list[Stored] = []
        end: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        pending = 0

        def on_message(message: Received) -> None:
            nonlocal pending
            if stored := _stored(message):
                pending = int(message.header(b"Nats-Num-Pending") or 0)
                messages.append(stored)
            elif not end.done():
                if message.status in {"204", "404"}:
                    end.set_result(pending)
                else:
                    end.set_exception(BusUnavailable(f"cannot read {pattern}: {message.description or message.status}"))

        def fail(error: Exception) -> None:
            if not end.done():
                end.set_exception(error)

        reply = self.mailbox.expect(subject, REQUEST_TIMEOUT_S * 2, on_message, fail)
        try:
            try:
                await self.client.send(subject, json.dumps(request).encode(), reply)
            except Exception as error:  # nats-py raises many kinds; all mean the same to the caller
                msg = f"cannot send to the bus: {str(error) or type(error).__name__}"
                raise BusUnavailable(msg) from error
            return messages, await end > 0
        finally:
            self.mailbox.forget(reply)

    async def work(self, kind: str, place: str, slots: Slots, deliver: OnDelivery) -> None:
        """Take requests until cancelled."""
        loop = PullLoop(self.client, kind, place, slots, deliver, f"{inbox_prefix(self._kind)}.{secrets.token_hex(6)}")
        self._loops.append(loop)
        try:
            await loop.run()
        finally:
            self._loops.remove(loop)

    @asynccontextmanager
    async def _subscribed(self, pattern: str, on_message: Callable[[Received], None]) -> AsyncGenerator[None]:
        subscription = await self.client.receive(pattern, on_message)
        try:
            yield
        finally:
            await self.client.drop(subscription)

    def listen(self, pattern: str, on_stored: OnStored) -> Listening:
        """Hear stored events as the server republishes them."""

        def on_message(message: Received) -> None:
            on_stored(
                Stored("gym.evt." + message.subject[9:], message.data, int(message.header(b"Nats-Sequence") or 0))
            )

        return self._subscribed(pattern, on_message)

    async def tell(self, subject: str, body: bytes) -> None:
        """Publish without storing; a lost connection loses it."""
        try:
            await self.client.send(subject, body)
        except Exception as error:  # nats-py raises many kinds; all mean the same to the caller
            msg = f"cannot send to the bus: {str(error) or type(error).__name__}"
            raise BusUnavailable(msg) from error

    def hear(self, pattern: str, on_told: OnTold) -> Listening:
        """Hear what is told."""
        return self._subscribed(pattern, lambda message: on_told(message.subject, message.data))


@asynccontextmanager
async def connect(  # noqa: C901  one callback for each thing that happens to a connection
    url: str, user: str, password: str | None, *, name: str = "", gather_s: float = GATHER_S
) -> AsyncGenerator[NatsBus]:
    """Connect as `user`; raises `Retryable` if the server does not answer within 5 s.

    What is sent is gathered for `gather_s` when much waits for answers (see `gym_bus.nats_client`).
    """
    client = LeanClient(gather_s)
    bus: NatsBus | None = None

    refused = asyncio.Event()

    async def on_error(error: Exception) -> None:
        if "authorization violation" in str(error).lower():
            refused.set()
        if (violation := _VIOLATION.search(str(error))) and bus:
            bus.mailbox.refuse(violation.group(1))
            log.error("bus_refused", user=user, subject=violation.group(1))
        else:
            log.debug("bus_error", user=user, error=str(error) or type(error).__name__)

    async def on_reconnect() -> None:
        if bus:
            bus.reconnected()

    async def on_disconnect() -> None:
        if bus:
            bus.mailbox.fail_all("the connection to the bus was lost")

    async def on_close() -> None:
        if bus:
            bus.mailbox.fail_all("the connection to the bus was closed")

    try:
        async with asyncio.timeout(5):
            await client.connect(
                url,
                name=name or user,
                user=user if password else None,
                password=password,
                inbox_prefix=inbox_prefix(user),
                max_reconnect_attempts=-1,
                reconnect_time_wait=0.1,  # type: ignore[arg-type]  # nats-py only sleeps for it
                connect_timeout=2,
                ping_interval=10,
                max_outstanding_pings=2,
                allow_reconnect=True,
                error_cb=on_error,
                reconnected_cb=on_reconnect,
                disconnected_cb=on_disconnect,
                closed_cb=on_close,
                pending_size=64 * 1024 * 1024,
            )
    except BaseException as error:
        await client.end(CLOSED_WITHIN_S)
        if not isinstance(error, Exception):
            raise
        if refused.is_set():
            msg = f"the bus at {url} refuses the user {user!r}: the password is wrong, or the server was set up by another gym-bus"
            raise Permanent(msg) from error
        msg = f"the bus at {url} does not answer ({str(error) or type(error).__name__}): is it up? See `gym-bus bus status`"
        raise Retryable(msg) from error
    mailbox = Mailbox(client, f"{inbox_prefix(user)}.{secrets.token_hex(6)}")
    bus = NatsBus(client, mailbox, user)
    try:
        await mailbox.open()
        yield bus
    finally:
        mailbox.close()
        try:
            with contextlib.suppress(Exception):
                async with asyncio.timeout(CLOSED_WITHIN_S):
                    await client.flush(1)
        finally:
            await client.end(CLOSED_WITHIN_S)
