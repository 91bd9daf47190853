"""What the processes of one data directory use, read from /proc, and their end.

A process belongs to a data directory if it was started with it in its environment or on its command line, or descends
from one that was. Nothing else is ever counted or killed.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from pathlib import Path
from typing import Final

TICK_S: Final = 1 / os.sysconf("SC_CLK_TCK")
END_TIMEOUT_S: Final = 10.0


def _read(pid: int, name: str) -> bytes:
    try:
        return Path(f"/proc/{pid}/{name}").read_bytes()
    except OSError:
        return b""


def _stat(pid: int) -> list[str]:
    """Return the fields of /proc/PID/stat from the state on; nothing if it has ended."""
    return _read(pid, "stat").decode(errors="replace").rpartition(")")[2].split()


def pids_of(data_dir: Path) -> list[int]:
    """Return the living processes of a data directory, ourselves excepted."""
    mark = str(data_dir).encode()
    stats = {int(p.name): _stat(int(p.name)) for p in Path("/proc").iterdir() if p.name.isdigit()}
    parents = {pid: int(stat[1]) for pid, stat in stats.items() if stat and stat[0] != "Z"}
    own = os.getpid()
    found = {pid for pid in parents if pid != own and (mark in _read(pid, "environ") or mark in _read(pid, "cmdline"))}
    while more := {pid for pid, parent in parents.items() if parent in found and pid not in found}:
        found |= more
    return sorted(found)


def cpu_s(pids: list[int]) -> float:
    """Return the processor time of `pids` in seconds, that of the children they have waited for included."""
    return sum(int(field) for pid in pids for field in _stat(pid)[11:15]) * TICK_S


def memory_mb(pids: list[int]) -> float:
    """Return the memory of `pids` in MB (10^6 bytes), shared pages divided among those who share them."""
    return sum(_memory_kib(pid) for pid in pids) * 1024 / 1e6


def _memory_kib(pid: int) -> int:
    for line in _read(pid, "smaps_rollup").split(b"\n"):
        if line.startswith(b"Pss:"):
            return int(line.split()[1])
    fields = _read(pid, "statm").split()
    return int(fields[1]) * os.sysconf("SC_PAGE_SIZE") // 1024 if fields else 0


def most_at_once(changes: list[tuple[float, int]]) -> int:
    """Return the highest sum of changes (time, +1 or -1), in the order of time."""
    open_now = most = 0
    for _, change in sorted(changes):
        open_now += change
        most = max(most, open_now)
    return most


def kill_all(data_dir: Path) -> None:
    """Kill -9 every process of a data directory at once, and wait until none is left."""
    deadline = time.monotonic() + END_TIMEOUT_S
    while pids := pids_of(data_dir):
        if time.monotonic() > deadline:
            msg = f"processes {pids} of {data_dir} do not end"
            raise RuntimeError(msg)
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        reap()
        time.sleep(0.01)


def reap() -> None:
    """Wait for our own children that have ended."""
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
