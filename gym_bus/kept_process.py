"""One child process kept alive: started, adopted when it already runs, started again with back-off when it ends.

A child lives in a session of its own and outlives its supervisor; the next supervisor finds it by the lock it holds.
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from gym_bus.locks import is_locked

BACKOFF_MIN_S: Final = 0.2
BACKOFF_MAX_S: Final = 10.0
STEADY_AFTER_S: Final = 30.0
KILLED_STEADY_AFTER_S: Final = 2.0
POLL_S: Final = 0.02
LOG_MAX_BYTES: Final = 10 * 1024 * 1024
PACKAGES: Final = Path(__file__).resolve().parent.parent
"""Where our packages lie. Children start there: no folder of the user's (`tools`, `schemas`) hides one of ours."""
SECRET_WORDS: Final = ("KEY", "TOKEN", "SECRET", "PASSWORD", "CREDENTIAL")


class Backoff:
    """How long to wait before the next start: 0.2 s, doubled up to 10 s; short again after a life that was long enough.

    Whoever was killed from outside (SIGKILL) did not fall over by itself, so two seconds of life are enough then.
    """

    def __init__(self) -> None:
        """Start short."""
        self._next_s = BACKOFF_MIN_S

    def after(self, lived_s: float, exit_code: int | None) -> float:
        """Return the seconds to wait after a life of `lived_s`; `exit_code` is None if unknown."""
        is_killed = exit_code is None or exit_code == -signal.SIGKILL
        if lived_s >= (KILLED_STEADY_AFTER_S if is_killed else STEADY_AFTER_S):
            self._next_s = BACKOFF_MIN_S
        wait_s, self._next_s = self._next_s, min(self._next_s * 2, BACKOFF_MAX_S)
        return wait_s


def owner_pid(lock: Path) -> int | None:
    """Return the process that wrote itself into a lock file (`… pid N`), None if nobody holds it."""
    if not is_locked(lock):
        return None
    words = lock.read_text(encoding="utf-8", errors="replace").split()
    return int(words[-1]) if words and words[-1].isdigit() else None


def children_environment(environ: Mapping[str, str], data_dir: Path) -> dict[str, str]:
    """Return what children see of the environment: no secrets but gym-bus's own settings; they read keys by name."""
    kept = {
        name: value
        for name, value in environ.items()
        if name.startswith("GYM_BUS_") or not any(word in name.upper() for word in SECRET_WORDS)
    }
    return {**kept, "GYM_BUS_DATA_DIR": str(data_dir)}


def open_log(path: Path) -> int:
    """Return a descriptor that appends to `path`; what is there already is set aside when it is large."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    with suppress(FileNotFoundError):
        if path.stat().st_size > LOG_MAX_BYTES:
            path.replace(path.with_suffix(".log.1"))
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)


def spawn_detached(argv: Sequence[str], environment: Mapping[str, str], log_path: Path) -> subprocess.Popen[bytes]:
    """Start a process in a session of its own, its output appended to `log_path`."""
    output = open_log(log_path)
    try:
        return subprocess.Popen(  # noqa: S603  our own command line
            list(argv),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
            cwd=PACKAGES,
            env=dict(environment),
        )
    finally:
        os.close(output)


class KeptProcess:
    """Keeps the process that holds `lock` alive. `start` starts one; it has to take the lock by itself."""

    def __init__(self, name: str, lock: Path, start: Callable[[], subprocess.Popen[bytes]]) -> None:
        """Look after the process called `name`; nothing happens before `keep`."""
        self.name = name
        self.state = "not started"
        self.pid: int | None = None
        self.restarts = 0
        self.last_exit: int | None = None
        self._lock = lock
        self._start = start
        self._process: subprocess.Popen[bytes] | None = None
        self._stopping = asyncio.Event()

    def status(self) -> dict[str, Any]:
        """Return what is known, for the status file."""
        return {"pid": self.pid, "state": self.state, "restarts": self.restarts, "last_exit": self.last_exit}

    async def keep(self) -> None:
        """Start or adopt the process, and start it again whenever it has ended, until `stop` or cancelled."""
        backoff = Backoff()
        while not self._stopping.is_set():  # it may have been told to while it waited
            began = time.monotonic()
            self.last_exit = await self._one_life()
            if self._stopping.is_set():
                break
            self.pid, self.state = None, "waiting to be started again"
            await asyncio.sleep(backoff.after(time.monotonic() - began, self.last_exit))
            self.restarts += 1
        self.pid, self.state = None, "stopped"

    async def _one_life(self) -> int | None:
        if (pid := owner_pid(self._lock)) is not None:
            self.pid, self.state = pid, "running (adopted)"
            while is_locked(self._lock):  # noqa: ASYNC110  another process does it
                await asyncio.sleep(POLL_S * 2)
            return None
        try:
            process = self._process = self._start()
        except OSError:
            return None
        self.pid, self.state = process.pid, "running"
        while (code := process.poll()) is None:  # noqa: ASYNC110  another process does it
            await asyncio.sleep(POLL_S)
        self._process = None
        return code

    async def stop(self, grace_s: float) -> None:
        """End the process: SIGTERM, at most `grace_s` to drain, then SIGKILL."""
        self._stopping.set()
        for number, wait_s in ((signal.SIGTERM, grace_s), (signal.SIGKILL, 5.0)):
            if not self._is_alive():
                break
            self.state = "stopping"
            if self.pid is not None:
                with suppress(ProcessLookupError):
                    os.kill(self.pid, number)
            deadline = time.monotonic() + wait_s
            while self._is_alive() and time.monotonic() < deadline:  # noqa: ASYNC110  another process does it
                await asyncio.sleep(POLL_S)
        self.state = "stopped"

    def _is_alive(self) -> bool:
        if self._process is not None:
            return self._process.poll() is None
        return self.pid is not None and is_locked(self._lock)
