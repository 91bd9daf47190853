"""A gateway as a process: on TCP, and on a unix socket that a sandbox without a network can be given."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import socket
from collections.abc import Callable, Generator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Final

import structlog
import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from actors.gateway.app import Gateway
from actors.gateway.backends import Backends
from actors.gateway.grants import gateway_key
from actors.open_files import allow_many_files
from gym_bus.blobs import DirectoryBlobs
from gym_bus.clock import SystemClock
from gym_bus.codec import Codec
from gym_bus.errors import Permanent
from gym_bus.event_log import EventLog
from gym_bus.gateway_file import SOCKET_FILE, GatewayAddress, gateway_directory, read_address, write_address
from gym_bus.nats_bus import connect
from gym_bus.reach import listen_at, url_of
from gym_bus.redaction import Redactor
from gym_bus.runtime.presence import Presence
from gym_bus.runtime.pulse import pulse
from gym_bus.secrets_store import SecretsStore
from gym_bus.server import BusAddress
from gym_bus.settings import Settings

log = structlog.get_logger(__name__)

USER: Final = "model"
BACKLOG: Final = 2048
GRACE_S: Final = 5
RECORDED_WITHIN_S: Final = 3.0
OTHER_PLACE: Final = (
    "GYM_BUS_GATEWAY_PORT (0: any that is free) and GYM_BUS_GATEWAY_HOST name another place, "
    "and are read when the supervisor starts: `gym-bus bus down`, then again"
)
HEAD_MAX_BYTES: Final = 256 * 1024
HEAD_WITHIN_S: Final = 30.0


class _Server(uvicorn.Server):
    """Uvicorn without its signal handlers: the process has its own."""

    @contextmanager
    def capture_signals(self) -> Generator[None]:
        """Leave signals alone."""
        yield


class _Protocol(HttpToolsProtocol):
    """Uvicorn's, with bounds on a request's head: on its size, before it is put together, and on how long it takes to come."""

    _head = 0
    _is_in_body = False
    _late: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Expect a head."""
        super().connection_made(transport)
        self._late = self.loop.call_later(HEAD_WITHIN_S, self._give_up)

    def connection_lost(self, exc: Exception | None) -> None:
        """Expect nothing more."""
        self._expect_nothing()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Take in what came, unless the head has become too large."""
        if not self._is_in_body:
            self._head += len(data)
            if self._late is None:
                self._late = self.loop.call_later(HEAD_WITHIN_S, self._give_up)
            if self._head > HEAD_MAX_BYTES and len(data) < self._head:
                self._give_up()
                return
        super().data_received(data)

    def on_headers_complete(self) -> None:
        """Let the body come."""
        self._is_in_body = True
        self._expect_nothing()
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        """Expect the next head."""
        self._is_in_body, self._head = False, 0
        super().on_message_complete()

    def _expect_nothing(self) -> None:
        if self._late is not None:
            self._late.cancel()
            self._late = None

    def _give_up(self) -> None:
        self._late = None
        if not self._is_in_body and not self.transport.is_closing():
            self.transport.abort()


@contextmanager
def listening(settings: Settings, directory: Path) -> Generator[tuple[list[socket.socket], dict[str, str]]]:
    """Give bound sockets, and where they are: `url`, `socket`, and with a `default_host` what others reach: `remote_url`.

    Ports that nobody chose are those of the last time, if they are free: what is in a sandbox outlives a gateway. Whoever gets a
    connection at the unix socket finds the addresses written down. Its file is removed afterwards.
    """
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / SOCKET_FILE
    path.unlink(missing_ok=True)
    last, remote_url = read_address(directory), None
    sockets: list[socket.socket] = []
    try:
        sockets.append(_listen(_listen_here(settings.gateway_host), settings.gateway_port, last.url if last else None))
        if default_host := settings.default_host:
            there = partial(listen_at, default_host, backlog=BACKLOG)
            sockets.append(_listen(there, settings.gateway_port, last.remote_url if last else None))
            remote_url = url_of(sockets[-1])
        address = GatewayAddress(url_of(sockets[0]), str(path), remote_url)
        unix = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        sockets.append(unix)
        unix.bind(str(path))
        path.chmod(0o600)
        write_address(directory, address)
        unix.listen(BACKLOG)
        yield sockets, address.said()
    finally:
        for listener in sockets:
            listener.close()
        path.unlink(missing_ok=True)


def _listen_here(host: str) -> Callable[[int], socket.socket]:
    def listen(port: int) -> socket.socket:
        try:
            return socket.create_server((host, port), backlog=BACKLOG)
        except (OSError, UnicodeError) as error:
            said, _, _ = str(getattr(error, "strerror", None) or error).partition(" (while ")  # and where, once more
            msg = f"it cannot listen at {host}, port {port}: {said}. {OTHER_PLACE}"
            raise Permanent(msg) from error

    return listen


def _listen(listen: Callable[[int], socket.socket], port: int, last_url: str | None) -> socket.socket:
    """Listen at `port`; if that is any, at the one of `last_url`, else at any."""
    last_port = "" if port or last_url is None else last_url.rpartition(":")[2]
    if last_port.isdigit():
        with contextlib.suppress(OSError, Permanent):
            return listen(int(last_port))
    return listen(port)


def server_for(gateway: Gateway) -> uvicorn.Server:
    """Return the server of a gateway; it serves on sockets that it is given."""
    config = uvicorn.Config(
        gateway.app,
        lifespan="off",
        log_config=None,
        access_log=False,
        http=_Protocol,
        timeout_keep_alive=75,
        timeout_graceful_shutdown=GRACE_S,
        server_header=False,
        proxy_headers=False,
        date_header=False,
    )
    return _Server(config)


async def run_gateway(settings: Settings, host_id: str, worker: str, address: BusAddress) -> None:
    """Serve until SIGTERM; calls that are under way get a few seconds."""
    allow_many_files()
    stopping = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stopping.set)
    secrets_store = SecretsStore(settings.data_dir / "secrets")
    redactor = Redactor(secrets_store.all_values())
    codec = Codec(DirectoryBlobs(settings.data_dir / "blobs"), redactor)
    clock = SystemClock()
    backends = Backends(secrets_store, redactor, settings.session_slots)
    directory = gateway_directory(settings.data_dir, host_id)
    # A client waits for two appends of each call: the time that gathering saves the processors is not the gateway's to spend.
    name = f"{worker}/{USER}"
    async with connect(address.url, USER, address.passwords[USER], name=name, gather_s=0.0) as bus:
        event_log = EventLog(bus, codec, clock, worker=worker, patience_s=settings.append_patience_s)
        presence = Presence(clock, worker, settings.lease_s)
        key = gateway_key(settings.data_dir / "keys")
        gateway = Gateway(event_log, clock, key, backends.backend_for, presence)
        server = server_for(gateway)
        with listening(settings, directory) as (sockets, where):
            async with pulse(bus, USER, presence, settings.heartbeat_s), asyncio.TaskGroup() as group:
                calls = group.create_task(gateway.run())
                serving = group.create_task(server.serve(sockets=sockets))
                log.info("gateway_ready", host=host_id, **where)
                await stopping.wait()
                server.should_exit = True
                await asyncio.wait({serving}, timeout=GRACE_S - 1)  # those that end soon end by themselves
                await gateway.stop(RECORDED_WITHIN_S)
                await serving
                calls.cancel()
    with contextlib.suppress(Exception):
        await backends.aclose()
