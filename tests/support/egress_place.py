"""An upstream on this machine's loopback, a proxy before it, and names that lead where a test says."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from providers.sandboxes.egress import Attempt, EgressBounds, EgressProxy
from schemas.network import parse_hosts


@dataclass
class Upstream:
    """Answers HTTP with what it was asked, and echoes anything else; `heard` is what each connection began with."""

    port: int = 0
    heard: list[bytes] = field(default_factory=list)

    async def connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one connection."""
        try:
            data = await reader.read(65536)
            self.heard.append(data)
            if data.startswith((b"GET", b"POST", b"PUT")):
                while b"\r\n0\r\n" not in data and b"chunked" in data:
                    data += await reader.read(65536)
                self.heard[-1] = data
                body = b"the upstream's answer"
                writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\nconnection: close\r\n\r\n" % len(body) + body)
            else:
                while data:
                    writer.write(data)
                    await writer.drain()
                    data = await reader.read(65536)
            await writer.drain()
        except OSError:
            pass
        finally:
            writer.close()


@dataclass
class EgressPlace:
    """`ended` are the attempts that were handed over, in order."""

    proxy: EgressProxy
    path: Path
    upstream: Upstream
    ended: list[Attempt]

    async def ask(self, head: str, body: bytes = b"", *, until_end: bool = True) -> bytes:
        """Send a request to the proxy and return all of the answer, or its head."""
        reader, writer = await self.open()
        writer.write(head.replace("\n", "\r\n").encode() + b"\r\n\r\n" + body)
        try:
            async with asyncio.timeout(20):
                return await (reader.read(-1) if until_end else reader.readuntil(b"\r\n\r\n"))
        finally:
            writer.close()

    async def open(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Connect to the proxy."""
        return await asyncio.open_unix_connection(str(self.path))

    async def tunnel(self, where: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Return a tunnel that stands."""
        reader, writer = await self.open()
        writer.write(f"CONNECT {where} HTTP/1.1\r\nHost: {where}\r\n\r\n".encode())
        async with asyncio.timeout(20):
            head = await reader.readuntil(b"\r\n\r\n")
        assert b" 200 " in head, head
        return reader, writer

    async def last(self) -> Attempt:
        """Return the next attempt that ends, and forget it."""
        async with asyncio.timeout(20):
            while not self.ended:
                await asyncio.sleep(0.005)
        return self.ended.pop(0)


@asynccontextmanager
async def egress_place(
    path: Path, *hosts: str, private: tuple[str, ...] = ("*.test:PORT",), bounds: EgressBounds | None = None
) -> AsyncIterator[EgressPlace]:
    """Give a proxy that allows `hosts`; PORT in names is the upstream's."""
    upstream = Upstream()
    server = await asyncio.start_server(upstream.connected, "127.0.0.1", 0)
    upstream.port = server.sockets[0].getsockname()[1]
    ended: list[Attempt] = []
    named = parse_hosts(one.replace("PORT", str(upstream.port)) for one in private)
    proxy = EgressProxy(private=named, bounds=bounds, on_attempt=ended.append)
    await proxy.start(path / "p.sock")
    proxy.allow(parse_hosts(one.replace("PORT", str(upstream.port)) for one in hosts), "agent")
    try:
        yield EgressPlace(proxy, path / "p.sock", upstream, ended)
    finally:
        await proxy.close()
        server.close()


@contextmanager
def names(table: Mapping[str, list[str]]) -> Iterator[list[str]]:
    """Let names lead to addresses, in this loop; yield which were looked up. Others are unknown."""
    loop, looked_up = asyncio.get_running_loop(), []

    async def getaddrinfo(host: str, port: int, **_: object) -> list[tuple[object, ...]]:
        looked_up.append(host)
        if host not in table:
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        family = {True: socket.AF_INET6, False: socket.AF_INET}
        return [(family[":" in one], socket.SOCK_STREAM, 6, "", (one, port)) for one in table[host]]

    usual = loop.getaddrinfo
    loop.getaddrinfo = getaddrinfo  # type: ignore[method-assign,assignment]
    try:
        yield looked_up
    finally:
        loop.getaddrinfo = usual  # type: ignore[method-assign]
