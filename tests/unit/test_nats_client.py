"""What the lean client relies on in nats-py, and how it reads what comes off the wire."""

from __future__ import annotations

import asyncio
import inspect
from importlib.metadata import version
from typing import Any

import pytest
from nats.aio.client import Client
from nats.aio.subscription import Subscription
from nats.errors import ConnectionClosedError, MaxPayloadError
from nats.protocol.parser import Parser

from gym_bus.nats_client import ALONE, GATHER_S, LeanClient, Received

EXPECTED: dict[str, list[str]] = {
    "_process_msg": ["self", "sid", "subject", "reply", "data", "headers"],
    "_send_command": ["self", "cmd", "priority"],
    "_flush_pending": ["self", "force_flush"],
    "_connect_to_server": ["self", "s"],
}


@pytest.mark.parametrize("name", sorted(EXPECTED))
def test_nats_py_has_the_internals_that_are_relied_on(name: str) -> None:
    """In the installed version each one is a coroutine with the parameters it is called with."""
    method = getattr(Client, name, None)
    assert inspect.iscoroutinefunction(method), f"nats-py {version('nats-py')} has no coroutine {name}"
    assert list(inspect.signature(method).parameters) == EXPECTED[name]
    parameters = inspect.signature(method).parameters
    defaults = [p.name for p in parameters.values() if p.default is not inspect.Parameter.empty]
    assert defaults == {"_send_command": ["priority"], "_flush_pending": ["force_flush"]}.get(name, [])


def test_nats_py_publishes_the_way_it_is_imitated() -> None:
    """Its own `publish` sends one command, and kicks the flusher only if its queue is empty; the bound on payloads is where it was."""
    source = inspect.getsource(Client._send_publish)
    assert "await self._send_command(" in source
    assert "if self._flush_queue is not None and self._flush_queue.empty():" in source
    assert "await self._flush_pending()" in source
    client = Client()
    assert client._flush_queue is None
    assert client._max_payload > 0
    assert client._transport is None


def test_nats_py_numbers_subscriptions_as_the_server_does() -> None:
    """A message's `sid` is its subscription's `_id`; the parser hands messages to `_process_msg`."""
    assert "self._id = id" in inspect.getsource(Subscription.__init__)
    assert "await self.nc._process_msg(" in inspect.getsource(Parser.parse)


class Wire(LeanClient):
    """A client that writes down what it would send."""

    def __init__(self) -> None:
        super().__init__()
        self.sent: list[bytes] = []
        self._max_payload = 100

    async def _send_command(self, cmd: bytes, priority: bool = False) -> None:
        self.sent.append(cmd)


async def test_messages_are_framed_by_the_protocol() -> None:
    """With and without headers, with and without a reply; lengths count bytes."""
    wire = Wire()
    await wire.send("a.b", "ü".encode())
    await wire.send("a.b", b"xy", "in.box")
    await wire.send("a.b", b"xyz", "in.box", b"K:v\r\n")
    assert wire.sent == [
        b"PUB a.b  2\r\n\xc3\xbc\r\n",
        b"PUB a.b in.box 2\r\nxy\r\n",
        b"HPUB a.b in.box 17 20\r\nNATS/1.0\r\nK:v\r\n\r\nxyz\r\n",
    ]


async def test_what_is_too_large_is_refused_before_it_is_sent() -> None:
    """The bound is the server's, headers included."""
    wire = Wire()
    await wire.send("a", b"x" * 100)
    for body, headers in ((b"x" * 101, b""), (b"x" * 98, b"K:v")):
        with pytest.raises(MaxPayloadError):
            await wire.send("a", body, "", headers)
    assert len(wire.sent) == 1


async def test_a_closed_client_sends_nothing() -> None:
    """It says so instead."""
    wire = Wire()
    wire._status = Client.CLOSED
    with pytest.raises(ConnectionClosedError):
        await wire.send("a", b"x")


async def test_messages_go_straight_to_their_callback() -> None:
    """A direct subscription's messages come with their raw parts; other subscriptions go nats-py's way."""
    wire = Wire()
    got: list[Received] = []
    wire._direct[7] = got.append
    await wire._process_msg(7, b"a.b", b"", b"body", b"")
    await wire._process_msg(7, b"a.b", b"in.box", b"", b"NATS/1.0\r\nK: v\r\n\r\n")
    await wire._process_msg(8, b"a.b", b"", b"nobody's", b"")
    assert [(m.subject, m.reply, m.data) for m in got] == [("a.b", "", b"body"), ("a.b", "in.box", b"")]
    assert [m.header(b"K") for m in got] == [None, "v"]


async def test_with_much_under_way_what_is_sent_is_gathered(monkeypatch: pytest.MonkeyPatch) -> None:
    """With few open requests every send kicks the flusher; with many one kick, a few milliseconds later, does for all."""
    wire, kicks = Wire(), 0

    async def flush(force_flush: bool = False) -> None:
        nonlocal kicks
        kicks += 1

    monkeypatch.setattr(wire, "_flush_pending", flush)
    wire._flush_queue = asyncio.Queue()
    wire.in_flight = ALONE
    await wire.send("a", b"1")
    assert kicks == 1
    wire.in_flight = ALONE + 100
    for _ in range(5):
        await wire.send("a", b"2")
    assert kicks == 1
    await asyncio.sleep(GATHER_S * 3)
    assert (kicks, len(wire.sent)) == (2, 6)
    wire.in_flight = 0
    await wire.send("a", b"3")
    assert kicks == 3


async def test_a_dropped_subscription_hears_nothing_more() -> None:
    """What the server sent before it knew is not handed out."""

    class Subscribed:
        _id = 7

        async def unsubscribe(self) -> None:
            msg = "not connected"
            raise ConnectionClosedError(msg)

    wire, got = Wire(), []
    wire._direct[7] = got.append
    await wire.drop(Subscribed())
    await wire._process_msg(7, b"a.b", b"", b"late", b"")
    assert got == []


def received(headers: bytes) -> Received:
    return Received("s", "", b"", headers)


@pytest.mark.parametrize(
    ("headers", "status", "description"),
    [
        (b"", "", ""),
        (b"NATS/1.0\r\nA: 1\r\n\r\n", "", ""),
        (b"NATS/1.0 404 Message Not Found\r\n\r\n", "404", "Message Not Found"),
        (b"NATS/1.0 204 EOB\r\nNats-Num-Pending: 3\r\n\r\n", "204", "EOB"),
        (b"NATS/1.0 503\r\n\r\n", "503", ""),
        (b"NATS/1.0 409 Consumer Deleted\xff\r\n\r\n", "409", "Consumer Deleted\ufffd"),
    ],
)
def test_the_status_line_is_read(headers: bytes, status: str, description: str) -> None:
    """Code and words, both of them perhaps missing."""
    message = received(headers)
    assert (message.status, message.description) == (status, description)


def test_headers_are_found_by_their_whole_name() -> None:
    """Not by a prefix, not by a suffix, not inside of a value; with or without a space; the last one, too."""
    message = received(
        b"NATS/1.0\r\nNats-Sequence-More: 1\r\nX-Nats-Sequence: 2\r\nOther: Nats-Sequence:3\r\nNats-Sequence:4\r\n"
        b"Nats-Subject:  a.b \r\nEmpty:\r\nLast: z\r\n\r\n"
    )
    assert message.header(b"Nats-Sequence") == "4"
    assert message.header(b"Nats-Subject") == "a.b"
    assert message.header(b"Empty") == ""
    assert message.header(b"Last") == "z"
    assert message.header(b"Missing") is None


async def test_receiving_registers_before_anything_can_arrive(monkeypatch: pytest.MonkeyPatch) -> None:
    """The subscription's id leads to the callback as soon as `receive` returns."""

    class Subscribed:
        _id = 5

    async def subscribe(self: Any, pattern: str, cb: Any) -> Subscribed:
        await cb(None)
        return Subscribed()

    monkeypatch.setattr(Client, "subscribe", subscribe)
    wire = Wire()
    got: list[Received] = []
    assert (await wire.receive("a.>", got.append))._id == 5
    await wire._process_msg(5, b"a.b", b"", b"1", b"")
    await asyncio.sleep(0)
    assert [m.data for m in got] == [b"1"]
