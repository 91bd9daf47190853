"""Stopping everything of a data directory, whether or not a supervisor runs."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from contextlib import suppress
from pathlib import Path
from typing import Final

from gym_bus.errors import Retryable
from gym_bus.kept_process import owner_pid
from gym_bus.server import EmbeddedServer
from gym_bus.settings import Settings
from gym_bus.status_file import supervisor_lock

POLL_S: Final = 0.05
MARGIN_S: Final = 45.0


async def stop_everything(settings: Settings) -> list[str]:
    """Stop the supervisor (which stops all else), then what was left without one; return what was stopped."""
    stopped = []
    if await end_holder(supervisor_lock(settings.data_dir), 2 * settings.drain_s + MARGIN_S):
        stopped.append("supervisor and what it kept")
    hosts = sorted((settings.data_dir / "hosts").glob("*/lock"))
    ended = await asyncio.gather(*(end_holder(lock, settings.drain_s + MARGIN_S) for lock in hosts))
    stopped += [lock.parent.name for lock, was_running in zip(hosts, ended, strict=True) if was_running]
    if not settings.bus_url and await asyncio.to_thread(EmbeddedServer(settings.data_dir / "bus").stop):
        stopped.append("bus")
    return stopped


async def end_holder(lock: Path, patience_s: float) -> bool:
    """End the holder of a lock and wait for it; say whether there was one. Raises `Retryable` if it does not end."""
    pid = owner_pid(lock)
    if pid is None:
        return False
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGTERM)
    deadline = time.monotonic() + patience_s
    while owner_pid(lock) is not None:
        if time.monotonic() > deadline:
            msg = f"process {pid} ({lock}) did not end within {patience_s:.0f} s: `kill -9 {pid}` loses nothing"
            raise Retryable(msg)
        await asyncio.sleep(POLL_S)
    return True
