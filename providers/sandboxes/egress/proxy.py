"""A forward proxy for one box, on a unix socket of this host: HTTP CONNECT, and plain requests for http:// addresses.

Only names on the allow list are looked up at all, so that names tell nobody anything. What a name stands for is looked up here,
checked, and connected to as it was checked: no second answer comes between. A list can change at any time; what is open and no longer
allowed is cut. The proxy does not look into TLS: in there a host can be asked for that shares an address with an allowed one.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from types import TracebackType
from typing import Final

import h11

from providers.sandboxes.egress.addresses import why_not
from providers.sandboxes.egress.attempts import Attempt, Attempts
from providers.sandboxes.egress.bounds import EgressBounds
from providers.sandboxes.egress.carrying import End, Traffic, carry_request, carry_tunnel
from providers.sandboxes.egress.heads import Refused, Target, read_request, refusal, target_of
from schemas.network import Host

NO_LONGER: Final = "no longer allowed"
CLOSED: Final = "the box or its proxy is gone"


@dataclass(eq=False)
class _Open:
    """What is known so far of a connection that is under way."""

    task: asyncio.Task[None]
    started: float
    phase: str
    traffic: Traffic
    target: Target | None = None
    address: str | None = None
    is_allowed: bool = False
    reason: str = ""


class EgressProxy:
    """See the module. `private` are hosts whose addresses may be loopback or private; they have to be allowed as well."""

    def __init__(
        self,
        *,
        private: Sequence[Host] = (),
        bounds: EgressBounds | None = None,
        on_attempt: Callable[[Attempt], None] | None = None,
    ) -> None:
        self._private = tuple(private)
        self._bounds = bounds or EgressBounds()
        self.attempts = Attempts(self._bounds.attempts, on_attempt)
        self._hosts: tuple[Host, ...] = ()
        self._phase = ""
        self._server: asyncio.Server | None = None
        self._open: set[_Open] = set()

    async def start(self, path: Path) -> None:
        """Take connections at the unix socket `path`."""
        limit = self._bounds.head_bytes
        self._server = await asyncio.start_unix_server(self._connected, str(path), limit=limit)

    def allow(self, hosts: Sequence[Host], phase: str = "") -> None:
        """Let `hosts` through from now on, and nothing else, in what is called `phase`; cut what is open to others."""
        self._hosts = tuple(hosts)
        self._phase = phase
        for one in self._open:
            if one.is_allowed and one.target and not self._covers(one.target):
                self._cut(one, NO_LONGER)

    async def close(self) -> None:
        """End every connection, and take no more; safe to repeat."""
        if self._server is not None:
            self._server.close()
            self._server = None
        tasks = [one.task for one in self._open]
        for one in list(self._open):
            self._cut(one, CLOSED)
        await asyncio.gather(*tasks, return_exceptions=True)

    def _cut(self, one: _Open, reason: str) -> None:
        one.reason = one.reason or reason
        one.task.cancel()

    def _covers(self, target: Target) -> bool:
        return any(host.covers(target.host, target.port) for host in self._hosts)

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task, loop = asyncio.current_task(), asyncio.get_running_loop()
        if task is None or self._server is None:  # one that was taken just before the end
            writer.close()
            return
        one = _Open(task, loop.time(), self._phase, Traffic(self._bounds.idle_s))
        is_crowded = len(self._open) >= self._bounds.connections
        self._open.add(one)
        try:
            async with asyncio.timeout(self._bounds.total_s):
                await self._answer(one, reader, writer, is_crowded=is_crowded)
        except TimeoutError:
            one.reason = one.reason or f"longer than {self._bounds.total_s:g} s"
        except asyncio.CancelledError:
            one.reason = one.reason or CLOSED
        except OSError as error:
            one.reason = one.reason or f"broken off: {error}"
        finally:
            self._open.discard(one)
            writer.close()
            self._write_down(one, loop.time() - one.started)

    async def _answer(
        self, one: _Open, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, is_crowded: bool
    ) -> None:
        connection = h11.Connection(h11.SERVER, max_incomplete_event_size=self._bounds.head_bytes)
        try:
            async with _within(self._bounds.head_s, HTTPStatus.REQUEST_TIMEOUT, "no whole request"):
                request = await read_request(reader, connection)
            one.target = target_of(request)
            host = await self._connect(one, one.target, is_crowded=is_crowded)
        except Refused as refused:
            one.reason = refused.reason
            writer.write(refusal(connection, refused))
            await writer.drain()
            return
        box = End(reader, writer)
        try:
            if one.target.path is None:
                await carry_tunnel(connection, box, host, one.traffic)
            else:
                await carry_request(connection, request, one.target, box, host, one.traffic)
        except TimeoutError:
            one.reason = f"silent for {self._bounds.idle_s:g} s"
        finally:
            host.writer.close()

    async def _connect(self, one: _Open, target: Target, *, is_crowded: bool) -> End:
        """Return a connection to an address of the target that was checked; raises `Refused`."""
        where = f"{target.host}:{target.port}"
        if is_crowded:
            reason = f"more than {self._bounds.connections} connections at once"
            raise Refused(HTTPStatus.SERVICE_UNAVAILABLE, reason)
        if not self._covers(target):
            raise Refused(HTTPStatus.FORBIDDEN, f"{where} is refused: it is not on the list of allowed hosts")
        found = await self._addresses(target)
        is_private = any(host.covers(target.host, target.port) for host in self._private)
        judged = [(address, None if is_private else why_not(address[1][0])) for address in found]
        usable = [address for address, trouble in judged if trouble is None]
        if not usable:
            trouble = judged[0][1] if judged else "its name stands for no address"
            raise Refused(HTTPStatus.FORBIDDEN, f"{where} is refused: {trouble}")
        async with _within(self._bounds.connect_s, HTTPStatus.GATEWAY_TIMEOUT, f"{where} does not answer"):
            connected = await _first(usable, where)
        try:
            one.address = address = str(connected.getpeername()[0])
            self._check(target, connected, address, is_private=is_private)
            one.is_allowed = True
            return End(*await asyncio.open_connection(sock=connected))
        except BaseException:
            connected.close()
            raise

    def _check(self, target: Target, connected: socket.socket, address: str, *, is_private: bool) -> None:
        """Raise `Refused` if what has been connected to may not be used after all."""
        where = f"{target.host}:{target.port}"
        if not is_private and connected.getsockname()[0] == address:
            raise Refused(HTTPStatus.FORBIDDEN, f"{where} is refused: {address} is this machine itself")
        if not self._covers(target):  # the list changed meanwhile
            raise Refused(HTTPStatus.FORBIDDEN, f"{where} is refused: {NO_LONGER}")

    async def _addresses(self, target: Target) -> list[tuple[socket.AddressFamily, tuple[str, int]]]:
        """Return where a name leads, in the order in which to try."""
        where = f"{target.host}:{target.port}"
        loop = asyncio.get_running_loop()
        try:
            async with _within(self._bounds.resolve_s, HTTPStatus.GATEWAY_TIMEOUT, f"{where} could not be looked up"):
                found = await loop.getaddrinfo(target.host, target.port, type=socket.SOCK_STREAM)
        except OSError as error:
            raise Refused(HTTPStatus.BAD_GATEWAY, f"{where} could not be looked up: {error}") from error
        return [(family, (str(address[0]), target.port)) for family, _, _, _, address in found]

    def _write_down(self, one: _Open, duration_s: float) -> None:
        host, port = (one.target.host, one.target.port) if one.target else ("", 0)
        self.attempts.add(
            Attempt(
                host=host,
                port=port,
                address=one.address,
                is_allowed=one.is_allowed,
                reason=one.reason,
                sent_bytes=one.traffic.sent_bytes,
                received_bytes=one.traffic.received_bytes,
                duration_s=duration_s,
                phase=one.phase,
            )
        )


class _within:  # noqa: N801  reads as a word
    """A deadline whose passing is a refusal."""

    def __init__(self, seconds: float, status: HTTPStatus, what: str) -> None:
        self._timeout = asyncio.timeout(seconds)
        self._refused = Refused(status, f"{what} within {seconds:g} s")

    async def __aenter__(self) -> None:
        await self._timeout.__aenter__()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            await self._timeout.__aexit__(kind, error, trace)
        except TimeoutError:
            raise self._refused from error


async def _first(usable: Sequence[tuple[socket.AddressFamily, tuple[str, int]]], where: str) -> socket.socket:
    """Return a connection to the first address that takes one."""
    trouble: OSError | None = None
    for family, address in usable:
        connecting = socket.socket(family, socket.SOCK_STREAM)
        connecting.setblocking(False)  # noqa: FBT003  the library's
        try:
            await asyncio.get_running_loop().sock_connect(connecting, address)
        except OSError as error:
            connecting.close()
            trouble = error
        except BaseException:
            connecting.close()
            raise
        else:
            return connecting
    raise Refused(HTTPStatus.BAD_GATEWAY, f"{where} could not be reached: {trouble}")
