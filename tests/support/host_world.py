"""Things on this host that no box may reach, real ones, and the words by which a probe is told where to look for them."""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import secrets
import shutil
import socket
import subprocess
import tempfile
import threading
import time
from collections.abc import Generator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from gym_bus.engine_socket import DEFAULT_SOCKET
from gym_bus.server import EmbeddedServer
from tests.support.engine import PODMAN_SOCKET
from tests.support.own_address import own_address

PROBE: Final = Path(__file__).resolve().parents[1] / "security" / "probe.sh"
SHARED: Final = ("net", "pid", "mnt", "ipc", "uts")
"""The namespaces that no box shares with the host; engines without user mapping share those of users, cgroups and time."""
_IPC_CREAT: Final = 0o1000
_NUMBERS: Final = {"mq_open": (240, 180), "mq_unlink": (241, 181), "add_key": (248, 217), "keyctl": (250, 219)}
_LIBC: Final = ctypes.CDLL(None, use_errno=True)


@dataclass
class HostWorld:
    """`targets` is what the probe is told; `word` is in the names, commands and environments of things on this host."""

    word: str
    directory: Path
    targets: list[str] = field(default_factory=list)


def system_call(name: str, *arguments: int | bytes) -> int:
    """Make a system call; raises `OSError`."""
    number = _NUMBERS[name][{"x86_64": 0, "aarch64": 1}[platform.machine()]]
    passed = [ctypes.c_char_p(a) if isinstance(a, bytes) else ctypes.c_long(a) for a in arguments]
    result = int(_LIBC.syscall(ctypes.c_long(number), *passed))
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return result


@contextmanager
def host_world(data_dir: Path) -> Generator[HostWorld, None, None]:
    """Start everything, and end it; files for all to read are in a directory that all may enter, as careless services have them."""
    word = f"canary{secrets.token_hex(6)}"
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix=word)))
        directory.chmod(0o777)
        world = HostWorld(word, directory, [f"word={word}"])
        _files(world, data_dir)
        _bus(world, data_dir, stack)
        _inet(world, stack)
        _unix(world, stack)
        _process(world, stack)
        _memory(world, stack)
        _key(world, stack)
        world.targets += [f"ns={os.readlink(f'/proc/self/ns/{kind}')}" for kind in SHARED]  # noqa: PTH115  no path
        world.targets += [f"unix={path}" for path in (DEFAULT_SOCKET, PODMAN_SOCKET) if _answers(path)]
        yield world


def _answers(path: str) -> bool:
    """Whether somebody listens at this socket; a killed engine leaves the file behind."""
    with socket.socket(socket.AF_UNIX) as one:
        return one.connect_ex(path) == 0


def _files(world: HostWorld, data_dir: Path) -> None:
    (data_dir / "secrets").mkdir(parents=True)
    for path in (world.directory / f"{world.word}.txt", data_dir / "secrets" / f"{world.word}-key"):
        path.write_text(world.word)
        path.chmod(0o666)
        world.targets.append(f"file={path}")


def _bus(world: HostWorld, data_dir: Path, stack: ExitStack) -> None:
    server = EmbeddedServer(data_dir / "bus")
    address = server.ensure()
    stack.callback(server.stop, kill=True)
    for url in (address.url, address.monitoring or address.url):
        world.targets.append(f"tcp={url.partition('://')[2]}")
    world.targets += [f"word={password}" for password in address.passwords.values()]


def _inet(world: HostWorld, stack: ExitStack) -> None:
    hosts = [("127.0.0.1", socket.AF_INET), (own_address(), socket.AF_INET), ("::1", socket.AF_INET6)]
    for host, family in hosts:
        try:
            listening = stack.enter_context(socket.create_server((host, 0), family=family))
        except OSError as error:
            if family == socket.AF_INET6 and error.errno in {errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT}:
                continue  # this machine has none of it, so there is nothing to be reached
            raise
        port = listening.getsockname()[1]
        world.targets.append(f"tcp=[{host}]:{port}" if ":" in host else f"tcp={host}:{port}")
    answering = stack.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
    answering.bind(("0.0.0.0", 0))
    threading.Thread(target=_echo, args=(answering,), daemon=True).start()
    world.targets += [f"udp={host}:{answering.getsockname()[1]}" for host in ("127.0.0.1", own_address())]


def _echo(answering: socket.socket) -> None:
    with suppress(OSError):
        while True:
            said, whose = answering.recvfrom(100)
            answering.sendto(said, whose)


def _unix(world: HostWorld, stack: ExitStack) -> None:
    for name, target in (
        (f"\0{world.word}", f"abstract={world.word}"),
        (str(world.directory / f"{world.word}.sock"), f"unix={world.directory / f'{world.word}.sock'}"),
    ):
        listening = stack.enter_context(socket.socket(socket.AF_UNIX))
        listening.bind(name)
        listening.listen(100)
        world.targets.append(target)
    (world.directory / f"{world.word}.sock").chmod(0o777)


def _process(world: HostWorld, stack: ExitStack) -> None:
    sleep = shutil.which("sleep") or "/bin/sleep"
    process = stack.enter_context(
        subprocess.Popen([sleep, "600"], env={"MODEL_API_KEY": world.word}, start_new_session=True)
    )
    stack.callback(process.kill)
    deadline = time.monotonic() + 10
    while world.word.encode() not in Path(f"/proc/{process.pid}/environ").read_bytes():
        assert time.monotonic() < deadline, "the process has not started"


def _memory(world: HostWorld, stack: ExitStack) -> None:
    path = Path("/dev/shm") / world.word
    path.write_text(world.word)
    path.chmod(0o666)
    stack.callback(path.unlink)
    world.targets.append(f"file={path}")
    key = 0x60000000 + secrets.randbelow(0x1000000)
    segment = _LIBC.shmget(key, 4096, _IPC_CREAT | 0o666)
    assert segment >= 0
    stack.callback(_LIBC.shmctl, segment, 0, None)
    world.targets.append(f"shm={key}")
    name = world.word.encode()
    os.close(system_call("mq_open", name, os.O_CREAT | os.O_RDWR, 0o666, 0))
    stack.callback(system_call, "mq_unlink", name)
    world.targets.append(f"queue={world.word}")


def _key(world: HostWorld, stack: ExitStack) -> None:
    """Put a key for everybody into this user's keyring, if whatever this process is in itself lets it."""
    try:
        key = system_call("add_key", b"user", world.word.encode(), b"x", 1, -4)
        system_call("keyctl", 5, key, 0x3F3F3F3F)
    except OSError as error:
        if error.errno in {errno.EPERM, errno.ENOSYS}:
            return
        raise
    stack.callback(system_call, "keyctl", 9, key, -4)
    world.targets.append(f"key={world.word}")
