"""The one way out of a sandbox on this host: a port on its own loopback, whose connections are carried to the gateway's unix socket.

A listening socket stays in the network namespace in which it was made, whoever holds it. So a helper that lives for a moment enters the
box's namespace, makes the socket there and hands it to us. Nothing of ours runs in the box, nothing is mounted into it, and
the address exists for this box alone.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import sys
from pathlib import Path
from typing import Final

from providers.sandboxes.base import BoxLost

PORT: Final = 8089
MADE_WITHIN_S: Final = 15.0
CONNECT_S: Final = 5.0
CONNECTIONS_MAX: Final = 128
CHUNK: Final = 64 * 1024

_LISTEN: Final = """
import ctypes, fcntl, os, socket, sys
pid, port, channel = map(int, sys.argv[1:])
net = os.open(f"/proc/{pid}/ns/net", os.O_RDONLY)
if os.fstat(net).st_ino == os.stat("/proc/self/ns/net").st_ino:
    sys.exit("the sandbox has no network namespace of its own")
libc = ctypes.CDLL(None, use_errno=True)
def enter(fd, kind):
    if libc.setns(fd, kind):
        sys.exit(f"setns: {os.strerror(ctypes.get_errno())}")
if os.geteuid():
    enter(fcntl.ioctl(net, 0xB701), 0x10000000)  # NS_GET_USERNS: whose owner we are; CLONE_NEWUSER
enter(net, 0x40000000)  # CLONE_NEWNET
listening = socket.create_server(("127.0.0.1", port), backlog=128)
socket.send_fds(socket.socket(fileno=channel), [b"."], [listening.fileno()])
"""


class WayOut:
    """See the module. At most `CONNECTIONS_MAX` connections at once are carried; more wait in the socket's queue."""

    def __init__(self, listening: socket.socket, gateway: Path) -> None:
        """Carry what connects to `listening` to the unix socket `gateway`, as soon as `start` says so."""
        self._listening = listening
        self._gateway = gateway
        self._room = asyncio.Semaphore(CONNECTIONS_MAX)
        self._server: asyncio.Server | None = None
        self._carrying: set[asyncio.Task[None]] = set()

    @classmethod
    async def open(cls, pid: int, gateway: Path, port: int = PORT) -> WayOut:
        """Listen at `port` of the loopback that process `pid` sees; raises `BoxLost` if that cannot be done."""
        way = cls(await _listening_in(pid, port), gateway)
        await way.start()
        return way

    async def start(self) -> None:
        """Take connections."""
        self._server = await asyncio.start_server(self._connected, sock=self._listening, limit=CHUNK)

    async def close(self) -> None:
        """End every connection, and take no more; safe to repeat."""
        if self._server is not None:
            self._server.close()
            self._server = None
        for task in list(self._carrying):
            task.cancel()
        await asyncio.gather(*self._carrying, return_exceptions=True)

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        if task is None or self._server is None:  # one that was taken just before the end
            writer.close()
            return
        self._carrying.add(task)
        try:
            async with self._room:
                await self._carry(reader, writer)
        except (OSError, TimeoutError, asyncio.CancelledError):
            pass  # the gateway is away, or somebody broke off: the other side sees a closed connection
        finally:
            self._carrying.discard(task)
            writer.close()

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        async with asyncio.timeout(CONNECT_S):
            from_gateway, to_gateway = await asyncio.open_unix_connection(str(self._gateway), limit=CHUNK)
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(_pump(reader, to_gateway))
                group.create_task(_pump(from_gateway, writer))
        except* OSError:
            pass
        finally:
            to_gateway.close()


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Copy until the end, and pass the end on: the other direction may go on."""
    while data := await reader.read(CHUNK):
        writer.write(data)
        await writer.drain()
    with contextlib.suppress(OSError):
        writer.write_eof()


async def _listening_in(pid: int, port: int) -> socket.socket:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        helper = await asyncio.create_subprocess_exec(
            *(sys.executable, "-I", "-S", "-c", _LISTEN, str(pid), str(port), str(theirs.fileno())),
            pass_fds=(theirs.fileno(),),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.PIPE,
        )
        try:
            async with asyncio.timeout(MADE_WITHIN_S):
                _, said = await helper.communicate()
        except TimeoutError as error:
            helper.kill()
            raise BoxLost(f"no way out was made within {MADE_WITHIN_S:g} s") from error
        if helper.returncode != 0:
            raise BoxLost(f"no way out could be made: {said.decode(errors='replace').strip()[-300:]}")
        _, descriptors, _, _ = socket.recv_fds(ours, 1, 1)
    return socket.socket(fileno=descriptors[0])
