"""No connection to the bus stays open that nobody uses: not of a try that came to nothing, and not when whoever connects is stopped."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import pytest

from gym_bus.errors import Retryable
from gym_bus.nats_bus import connect

INFO = b'INFO {"server_id":"x","version":"2.12.0","proto":1,"headers":true,"max_payload":1048576,"port":%d}\r\n'
Manners = Callable[["Server", asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@dataclass
class Server:
    """Something that listens where a bus should be; `open` counts the connections that have not been closed from the other side."""

    manners: list[Manners]
    taken: int = 0
    open: set[int] = field(default_factory=set)
    port: int = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Behave to each connection as the next of `manners` says, and to all that follow as the last; then wait for its end."""
        number = self.taken
        self.taken += 1
        self.open.add(number)
        try:
            await self.manners[min(number, len(self.manners) - 1)](self, reader, writer)
            while await reader.read(65536):
                pass
        except ConnectionError:
            pass
        finally:
            self.open.discard(number)
            writer.close()

    async def closed(self, but: int = 0) -> None:
        """Wait until no more than `but` are open."""
        async with asyncio.timeout(10):
            while len(self.open) > but:
                await asyncio.sleep(0.01)

    async def seen(self, count: int) -> None:
        """Wait until so many have come."""
        async with asyncio.timeout(30):
            while self.taken < count:
                await asyncio.sleep(0.01)


async def says_nothing(server: Server, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Take the connection, and be busy with something else."""


async def greets(server: Server, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Say who one is, and answer the first question."""
    writer.write(INFO % server.port)
    while not (await reader.readline()).startswith(b"PING"):
        pass
    writer.write(b"PONG\r\n")


async def talks(server: Server, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Be a server, of which nothing is asked but whether it is there."""
    await greets(server, reader, writer)
    while line := await reader.readline():
        if line.startswith(b"PING"):
            writer.write(b"PONG\r\n")


async def greets_and_goes(server: Server, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Be a server that dies a moment later."""
    await greets(server, reader, writer)
    await asyncio.sleep(0.05)
    writer.close()


async def babbles(server: Server, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Say what no server says, and keep the connection."""
    writer.write(b"HELLO\r\n")


@asynccontextmanager
async def serving(*manners: Manners) -> AsyncIterator[Server]:
    server = Server(list(manners))
    listening = await asyncio.start_server(server.serve, "127.0.0.1", 0)
    server.port = listening.sockets[0].getsockname()[1]
    try:
        yield server
    finally:
        listening.close()


async def test_a_try_that_came_to_nothing_is_closed() -> None:
    """Each of them, while the client goes on trying, as it does in an outage; else a day of it uses up a host's descriptors."""
    async with serving(greets_and_goes, babbles, babbles, babbles, talks) as server:
        async with connect(f"nats://127.0.0.1:{server.port}", "u", None):
            await server.seen(5)
            await server.closed(but=1)
        await server.closed()


@pytest.mark.parametrize("after_s", [0.0, 0.02, 0.2])
async def test_who_is_stopped_while_connecting_leaves_nothing(after_s: float) -> None:
    """A host that is stopped during an outage."""

    async def use(server: Server) -> None:
        async with connect(f"nats://127.0.0.1:{server.port}", "u", None):
            raise AssertionError

    async with serving(says_nothing) as server:
        using = asyncio.create_task(use(server))
        await asyncio.sleep(after_s)
        using.cancel()
        await asyncio.wait({using})
        assert using.cancelled()
        await server.closed()


async def test_who_is_stopped_while_closing_leaves_nothing() -> None:
    """Twice told to stop, as a second Ctrl-C does."""

    async def use(server: Server) -> None:
        async with connect(f"nats://127.0.0.1:{server.port}", "u", None):
            await asyncio.sleep(0.05)

    async with serving(greets) as server:  # which answers no further question: what is to be flushed is waited for
        using = asyncio.create_task(use(server))
        await server.seen(1)
        await asyncio.sleep(0.3)
        assert not using.done()
        using.cancel()
        await asyncio.wait({using})
        await server.closed()


async def test_a_server_that_does_not_answer_is_an_error_and_closed() -> None:
    """As ever."""
    async with serving(says_nothing) as server:
        with pytest.raises(Retryable, match="does not answer"):
            async with connect(f"nats://127.0.0.1:{server.port}", "u", None):
                raise AssertionError
        await server.closed()
