"""Commands that an agent has its client run."""

from __future__ import annotations

import asyncio
import os
import signal
from asyncio.subprocess import DEVNULL, PIPE, STDOUT, Process
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

OUTPUT_MAX_BYTES = 1024 * 1024
READ_WITHIN_S = 1.0
NAMES = {number.value: number.name for number in signal.Signals}


class Terminal:
    """A command that the agent has us run: its end, and the end of its output."""

    def __init__(self, process: Process, most: int) -> None:
        """Keep the last `most` bytes of what `process` writes."""
        self._process = process
        self._most = most
        self._kept = bytearray()
        self._reading = asyncio.create_task(self._read())
        self.is_cut = False

    @classmethod
    async def started(
        cls, argv: Sequence[str], environment: Mapping[str, str], cwd: Path, most: int = OUTPUT_MAX_BYTES
    ) -> Terminal:
        """Start a command; raises `OSError`, `ValueError`."""
        process = await asyncio.create_subprocess_exec(
            *argv, cwd=cwd, env=environment, stdin=DEVNULL, stdout=PIPE, stderr=STDOUT, start_new_session=True
        )
        return cls(process, min(most, OUTPUT_MAX_BYTES))

    @property
    def text(self) -> str:
        """Return what is kept of its output."""
        return self._kept.decode(errors="ignore")

    @property
    def exit_code(self) -> int | None:
        """Return its exit code, None while it runs or if a signal ended it."""
        code = self._process.returncode
        return code if code is not None and code >= 0 else None

    @property
    def signal(self) -> str | None:
        """Return the signal that ended it."""
        code = self._process.returncode
        if code is None or code >= 0:
            return None
        return NAMES.get(-code, f"signal {-code}")  # those between SIGRTMIN and SIGRTMAX have no names

    @property
    def is_over(self) -> bool:
        """Say whether it has ended."""
        return self._process.returncode is not None

    async def wait(self) -> None:
        """Wait for its end, and for all that it wrote."""
        await self._process.wait()
        await asyncio.wait({self._reading}, timeout=READ_WITHIN_S)

    def kill(self) -> None:
        """End it, and what it started."""
        if not self.is_over:
            with suppress(ProcessLookupError):  # it has just ended
                os.killpg(self._process.pid, signal.SIGKILL)

    async def _read(self) -> None:
        output = self._process.stdout
        while output is not None and (piece := await output.read(65536)):
            self._kept += piece
            if len(self._kept) > self._most:
                self.is_cut = True
                del self._kept[: len(self._kept) - self._most]
