"""Handing a filter over to a program that reads it from a file descriptor, as bubblewrap does."""

from __future__ import annotations

import os
import platform
from collections.abc import Generator
from contextlib import contextmanager

from providers.sandboxes.base import SandboxUnavailable
from providers.sandboxes.seccomp.policy import COLUMNS
from providers.sandboxes.seccomp.program import program_for


@contextmanager
def filter_to_read() -> Generator[int, None, None]:
    """Yield a pipe's end from which the filter for this machine can be read once; raises `SandboxUnavailable` on one without."""
    machine = platform.machine()
    if machine not in COLUMNS:
        raise SandboxUnavailable(
            f"no filter of system calls is known for {machine}, only for {', '.join(COLUMNS)}: use sandbox.type=docker"
        )
    read_end, write_end = os.pipe2(os.O_CLOEXEC)
    try:
        try:
            os.write(write_end, program_for(machine))  # less than a pipe takes at once
        finally:
            os.close(write_end)
        yield read_end
    finally:
        os.close(read_end)
