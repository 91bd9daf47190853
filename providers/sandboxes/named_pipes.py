"""Named pipes between this process and a box, in a directory that the box can neither list nor change; and waiting for them."""

from __future__ import annotations

import asyncio
import fcntl
import os
import secrets
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from typing import Final, Literal

from providers.sandboxes.processes import settle
from providers.sandboxes.rooms import Room

PIPE_BYTES: Final = 1024 * 1024
"""What a pipe for content holds, if this host lets it."""
_SET_SIZE: Final = 1031  # F_SETPIPE_SZ, fcntl(2)


@contextmanager
def named_pipe(room: Room, direction: Literal["in", "out"]) -> Generator[tuple[str, int], None, None]:
    """Make a pipe `in`to the box or `out` of it, for the box's user alone; yield its name and our end, which does not block.

    Our end of a pipe into the box reads as well, so that it can be opened before anybody is there. The caller closes it.
    """
    nonce = secrets.token_hex(8)
    path = room.pipes / nonce
    if room.uid == os.getuid():
        os.mkfifo(path, 0o600)
    else:
        os.mkfifo(path, 0o200 if direction == "out" else 0o400)
        os.chown(path, room.uid, room.uid)
    flags = os.O_RDONLY if direction == "out" else os.O_RDWR
    try:
        yield nonce, os.open(path, flags | os.O_NONBLOCK | os.O_CLOEXEC)
    finally:
        with suppress(FileNotFoundError):
            path.unlink()


def widen(fd: int) -> None:
    """Let a pipe hold more at a time; that the host refuses is fine."""
    with suppress(OSError):
        fcntl.fcntl(fd, _SET_SIZE, PIPE_BYTES)


async def readable(fd: int, *, or_done: asyncio.Future[int | None]) -> None:
    """Wait until there is something to read from `fd`, or its end, or until `or_done` is."""
    loop = asyncio.get_running_loop()
    await _either(or_done, lambda ready: loop.add_reader(fd, settle, ready), lambda: loop.remove_reader(fd))


async def write_all(fd: int, content: bytes, *, or_done: asyncio.Future[int | None] | None = None) -> bool:
    """Write all of `content`; return whether that was before `or_done`. Raises `BrokenPipeError`; the caller sets a deadline."""
    loop = asyncio.get_running_loop()
    left = memoryview(content)
    while left:
        if or_done and or_done.done():
            return False
        try:
            left = left[os.write(fd, left) :]
        except BlockingIOError:
            await _either(or_done, lambda ready: loop.add_writer(fd, settle, ready), lambda: loop.remove_writer(fd))
    return True


async def _either(
    done: asyncio.Future[int | None] | None,
    listen: Callable[[asyncio.Future[None]], None],
    ignore: Callable[[], object],
) -> None:
    ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def wake(_: asyncio.Future[int | None]) -> None:
        settle(ready)

    if done:
        done.add_done_callback(wake)
    listen(ready)
    try:
        await ready
    finally:
        ignore()
        if done:
            done.remove_done_callback(wake)
