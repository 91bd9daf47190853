"""The named pipe through which one command's output comes out of a box; its name is the command's nonce."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager

from providers.sandboxes.named_pipes import named_pipe
from providers.sandboxes.output import PipeReader
from providers.sandboxes.rooms import Room


@contextmanager
def command_output(
    room: Room, limit: int, *, is_for_all: bool = False
) -> Generator[tuple[str, PipeReader], None, None]:
    """Make a pipe out of the box, for its user or for all; yield its name and its reader. Both go afterwards."""
    with named_pipe(room, "out") as (nonce, fd):
        if is_for_all:
            (room.pipes / nonce).chmod(0o222)
        reader = PipeReader(fd, limit)
        try:
            yield nonce, reader
        finally:
            reader.close()
