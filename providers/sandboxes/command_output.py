"""The named pipe through which one command's output comes out of a box; its name is the command's nonce."""

from __future__ import annotations

import os
import secrets
from collections.abc import Generator
from contextlib import contextmanager, suppress

from providers.sandboxes.output import PipeReader
from providers.sandboxes.rooms import Room


@contextmanager
def command_output(room: Room, limit: int) -> Generator[tuple[str, PipeReader], None, None]:
    """Make a pipe in `room.pipes` that only the box's user can write to; yield its name and its reader. Both go afterwards."""
    nonce = secrets.token_hex(8)
    path = room.pipes / nonce
    if room.uid == os.getuid():
        os.mkfifo(path, 0o600)
    else:
        os.mkfifo(path, 0o200)
        os.chown(path, room.uid, room.uid)
    reader = PipeReader(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), limit)
    try:
        yield nonce, reader
    finally:
        reader.close()
        with suppress(FileNotFoundError):
            path.unlink()
