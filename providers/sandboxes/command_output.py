"""The named pipe through which one command's output comes out of a box; its name is the command's nonce."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager

from providers.sandboxes.named_pipes import named_pipe
from providers.sandboxes.output import PipeReader
from providers.sandboxes.rooms import Room


@contextmanager
def command_output(room: Room, limit: int) -> Generator[tuple[str, PipeReader], None, None]:
    """Make a pipe out of the box; yield its name and its reader. Both go afterwards."""
    with named_pipe(room, "out") as (nonce, fd):
        reader = PipeReader(fd, limit)
        try:
            yield nonce, reader
        finally:
            reader.close()
