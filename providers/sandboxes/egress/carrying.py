"""Carrying bytes between a box and a host, counted, until both have ended or neither has said anything for too long."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final

import h11

from providers.sandboxes.egress.heads import READ_BYTES, Target, onward

CHUNK: Final = 64 * 1024


@dataclass(frozen=True, slots=True)
class End:
    """What is read from and written to on one side."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter


class Traffic:
    """Bytes to the host, and from it, and how long it has been since the last of them."""

    def __init__(self, idle_s: float) -> None:
        self.sent_bytes = 0
        self.received_bytes = 0
        self._idle_s = idle_s
        self._silence = asyncio.timeout(None)

    @asynccontextmanager
    async def not_silent(self) -> AsyncGenerator[None]:
        """Raise `TimeoutError` after `idle_s` without a byte."""
        async with self._silence:
            self._heard()
            yield

    async def to_host(self, writer: asyncio.StreamWriter, data: bytes) -> None:
        """Write to the host, and wait for room."""
        self.sent_bytes += len(data)
        await self._write(writer, data)

    async def to_box(self, writer: asyncio.StreamWriter, data: bytes) -> None:
        """Write to the box, and wait for room."""
        self.received_bytes += len(data)
        await self._write(writer, data)

    async def _write(self, writer: asyncio.StreamWriter, data: bytes) -> None:
        self._heard()
        writer.write(data)
        await writer.drain()

    def _heard(self) -> None:
        self._silence.reschedule(asyncio.get_running_loop().time() + self._idle_s)


async def carry_tunnel(connection: h11.Connection, box: End, host: End, traffic: Traffic) -> None:
    """Say that the tunnel stands, and carry whatever goes through it; raises `TimeoutError` after too much silence."""
    box.writer.write(
        connection.send(h11.Response(status_code=200, headers=[], reason=b"Connection established")) or b""
    )
    early = connection.trailing_data[0]

    async def out() -> None:
        await traffic.to_host(host.writer, early)
        while data := await box.reader.read(CHUNK):
            await traffic.to_host(host.writer, data)
        _end(host.writer)

    async with traffic.not_silent():
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(out())
                group.create_task(_back(host, box, traffic))
        except* OSError:
            pass  # one of the two has broken off


async def carry_request(
    connection: h11.Connection, request: h11.Request, target: Target, box: End, host: End, traffic: Traffic
) -> None:
    """Ask the host what was asked, once, and carry its answer back; raises `TimeoutError` after too much silence."""
    asking = h11.Connection(h11.CLIENT)

    async def out() -> None:
        await traffic.to_host(host.writer, asking.send(onward(request, target)) or b"")
        while not isinstance(event := connection.next_event(), h11.EndOfMessage):
            if isinstance(event, h11.Data):
                await traffic.to_host(host.writer, asking.send(event) or b"")
                continue
            if connection.they_are_waiting_for_100_continue:
                box.writer.write(connection.send(h11.InformationalResponse(status_code=100, headers=[])) or b"")
            connection.receive_data(await box.reader.read(READ_BYTES))
        await traffic.to_host(host.writer, asking.send(event) or b"")

    async with traffic.not_silent():
        try:
            async with asyncio.TaskGroup() as group:
                asked = group.create_task(out())
                await _back(host, box, traffic)
                asked.cancel()
        except* (OSError, h11.ProtocolError):
            pass  # one of the two has broken off, or what the box says is no body


async def _back(host: End, box: End, traffic: Traffic) -> None:
    while data := await host.reader.read(CHUNK):
        await traffic.to_box(box.writer, data)
    _end(box.writer)


def _end(writer: asyncio.StreamWriter) -> None:
    """Pass the end on: the other direction may go on."""
    with contextlib.suppress(OSError):
        writer.write_eof()
