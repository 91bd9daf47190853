"""The model gateway kept alive for as long as somebody has asked for it: the wish is a file, so that it outlives whoever keeps it."""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from gym_bus.gateway_file import GATEWAY
from gym_bus.kept_process import KeptProcess
from gym_bus.status_file import gateway_wish, host_lock

LOOK_EVERY_S: Final = 0.1


def ask_for_gateway(data_dir: Path) -> None:
    """Wish for a gateway; the supervisor of `data_dir`, this one or the next, keeps one from now on. Safe to repeat."""
    wish = gateway_wish(data_dir)
    wish.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    wish.touch(mode=0o600)


def give_up_gateway(data_dir: Path) -> None:
    """Wish for no gateway any more; safe to repeat."""
    gateway_wish(data_dir).unlink(missing_ok=True)


def is_gateway_wanted(data_dir: Path) -> bool:
    """Say whether a gateway was asked for."""
    return gateway_wish(data_dir).exists()


class KeptGateway:
    """Keeps a gateway while one is wanted. `start` starts its process, which takes its lock by itself."""

    def __init__(self, data_dir: Path, start: Callable[[], subprocess.Popen[bytes]], grace_s: float) -> None:
        """Look after the gateway of `data_dir`; one that is wanted no more has `grace_s` to end."""
        self._data_dir = data_dir
        self._start = start
        self._grace_s = grace_s
        self._is_stopping = False
        self._process: KeptProcess | None = None

    def status(self) -> dict[str, dict[str, Any]]:
        """Return what is known of its process by its name, for the status file; nothing while none is wanted."""
        return {GATEWAY: self._process.status()} if self._process else {}

    async def follow(self) -> None:
        """Do what is wished, until cancelled."""
        while True:
            if self._is_wanted():
                await self._keep()
            await asyncio.sleep(LOOK_EVERY_S)

    async def stop(self) -> None:
        """End it, and leave the wish to the next supervisor."""
        self._is_stopping = True
        if self._process is not None:
            await self._process.stop(self._grace_s)

    def _is_wanted(self) -> bool:
        return not self._is_stopping and is_gateway_wanted(self._data_dir)

    async def _keep(self) -> None:
        process = self._process = KeptProcess(GATEWAY, host_lock(self._data_dir, GATEWAY), self._start_if_wanted)
        async with asyncio.TaskGroup() as group:
            keeping = group.create_task(process.keep())
            while self._is_wanted():  # noqa: ASYNC110  another process says so
                await asyncio.sleep(LOOK_EVERY_S)
            await process.stop(self._grace_s)
            keeping.cancel()
        self._process = None

    def _start_if_wanted(self) -> subprocess.Popen[bytes]:
        """Start none that was just given up; raises `OSError` then."""
        if not self._is_wanted():
            msg = "no gateway is wanted"
            raise FileNotFoundError(msg)
        return self._start()
