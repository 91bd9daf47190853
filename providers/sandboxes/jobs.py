"""Detached jobs of one box: commands that run beside others, and are asked about later.

What a job prints comes through a pipe and is kept in a file without a name on this host, up to a bound; what is beyond that is
counted, and slowed down. A job's processes are found by its mark (`marks.py`); a command that meets its deadline ends jobs too, because
everything in the box is killed then.
"""

from __future__ import annotations

import asyncio
import os
import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from typing import Final

from gym_bus.errors import Permanent
from providers.sandboxes.capabilities import JobStatus
from providers.sandboxes.marks import kill_marked
from providers.sandboxes.named_pipes import named_pipe
from providers.sandboxes.output import CHUNK_BYTES
from providers.sandboxes.processes import KILLED, refusal
from providers.sandboxes.side_shell import MARK, SAID_WITHIN_S, SideShell
from schemas.sandboxes import SandboxLimits

JOBS_MAX: Final = 64
"""In the life of a box, those that are over too: they can be asked about."""
SLOWED_S: Final = 0.01
"""Between two reads of output that is not kept."""
STOP_TRIES: Final = 100
STOP_PAUSE_S: Final = 0.1


class Jobs:
    """See the module. A job's id is the name of its pipe, which is its mark as well."""

    def __init__(self, side: SideShell, limits: SandboxLimits) -> None:
        self._side = side
        self._kept_bytes = limits.job_output_mib * 1024 * 1024
        self._jobs: dict[str, _Job] = {}

    async def start(self, command: str, timeout_s: float, starting: Callable[[], None]) -> str:
        """See `WithDetached`; `starting` is called before the process is."""
        if refused := refusal(command):
            raise Permanent(refused.output.strip())
        if len(self._jobs) >= JOBS_MAX:
            raise Permanent(f"a sandbox has at most {JOBS_MAX} jobs in its life")
        starting()
        job = _Job(self._side, self._kept_bytes)
        self._jobs[job.nonce] = job
        try:
            job.runs(await self._side.begin(command, job.nonce, is_bounded=True), timeout_s)
        except BaseException:
            del self._jobs[job.nonce]
            job.close()
            raise
        return job.nonce

    @property
    def is_running(self) -> bool:
        """Say whether any job has not ended."""
        return any(job.status().is_running for job in self._jobs.values())

    def status(self, job: str) -> JobStatus:
        """See `WithDetached`."""
        return self._of(job).status()

    async def output_of(self, job: str, offset: int, max_bytes: int) -> bytes:
        """See `WithDetached`."""
        found = self._of(job)
        return await asyncio.to_thread(found.output, max(offset, 0), max_bytes)

    async def stop(self, job: str) -> None:
        """See `WithDetached`."""
        await self._of(job).stop()

    def close(self) -> None:
        """Forget what they printed; they end with their box."""
        for job in self._jobs.values():
            job.close()
        self._jobs.clear()

    def _of(self, job: str) -> _Job:
        if job not in self._jobs:
            raise Permanent(f"the sandbox has no job {job!r}")
        return self._jobs[job]


class _Job:
    def __init__(self, side: SideShell, kept_bytes: int) -> None:
        self._loop = asyncio.get_running_loop()
        self._held = ExitStack()
        self.nonce, self._pipe = self._held.enter_context(named_pipe(side.room, "out"))
        self._kept = self._held.enter_context(tempfile.TemporaryFile(dir=side.room.path, buffering=0))  # noqa: SIM115
        self._kept_bytes = kept_bytes
        self._size = 0
        self._code: asyncio.Future[int | None] | None = None
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._listen()

    def runs(self, code: asyncio.Future[int | None], timeout_s: float) -> None:
        """Take what becomes its exit code; its processes end after `timeout_s`."""
        self._code = code
        self._timers["deadline"] = self._loop.call_later(timeout_s, self._end)

    def status(self) -> JobStatus:
        code = self._code.result() if self._code and self._code.done() else None
        is_running = not (self._code and self._code.done())
        exit_code = None if is_running else KILLED if code is None else code
        return JobStatus(is_running=is_running, exit_code=exit_code, output_bytes=self._size)

    def output(self, offset: int, max_bytes: int) -> bytes:
        """Return a part of what is kept. Blocking."""
        return os.pread(self._kept.fileno(), max_bytes, offset)

    async def stop(self) -> None:
        """Kill until it is over: what was just started has its mark a moment later."""
        for _ in range(STOP_TRIES):
            await asyncio.to_thread(kill_marked, f"{MARK}={self.nonce}")
            if not self._code or self._code.done():
                return
            await asyncio.wait([self._code], timeout=STOP_PAUSE_S)

    def close(self) -> None:
        for timer in self._timers.values():
            timer.cancel()
        self._ignore()
        if self._pipe >= 0:
            os.close(self._pipe)
            self._pipe = -1
        self._held.close()

    def _end(self) -> None:
        _ = self._loop.run_in_executor(None, kill_marked, f"{MARK}={self.nonce}")
        if self._code and not self._code.done():
            self._timers["deadline"] = self._loop.call_later(STOP_PAUSE_S, self._end)

    def _listen(self) -> None:
        self._loop.add_reader(self._pipe, self._read)

    def _ignore(self) -> None:
        self._loop.remove_reader(self._pipe)

    def _read(self) -> None:
        """Keep what was printed. The end of it without an exit code means that who would have said that was killed."""
        try:
            content = os.read(self._pipe, CHUNK_BYTES)
        except BlockingIOError:
            return
        if not content:
            self._ignore()
            self._timers["end"] = self._loop.call_later(SAID_WITHIN_S, self._is_gone)
            return
        if kept := content[: max(self._kept_bytes - self._size, 0)]:
            os.write(self._kept.fileno(), kept)
        self._size += len(content)
        if len(kept) < len(content):
            self._ignore()
            self._timers["slow"] = self._loop.call_later(SLOWED_S, self._listen)

    def _is_gone(self) -> None:
        if self._code and not self._code.done():
            self._code.set_result(None)
