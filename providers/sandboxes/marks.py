"""Processes that carry a mark in their environment, so that also what left its parent and its session is found and killed.

A program that cleans its environment, leaves its parent and then forks is missed: it ends with its box.
"""

from __future__ import annotations

import os
import re
import signal
import time
from contextlib import suppress
from pathlib import Path
from typing import Final

from providers.sandboxes.processes import descendants

ROUNDS: Final = 40
QUIET_ROUNDS: Final = 3
QUIET_S: Final = 0.005


def marked(mark: str) -> list[int]:
    """Return the processes whose environment holds `mark`, a `NAME=value` or the beginning of one. Blocking."""
    pattern = re.compile(rb"(^|\0)" + re.escape(mark.encode()))
    found: list[int] = []
    with os.scandir("/proc") as entries:
        pids = [int(entry.name) for entry in entries if entry.name.isdecimal()]
    for pid in pids:
        with suppress(OSError):
            if pattern.search(Path(f"/proc/{pid}/environ").read_bytes()):
                found.append(pid)
    return found


def kill_marked(mark: str) -> None:
    """Kill the processes of `mark` and what descends from them, until there are none. Blocking.

    All are stopped before the first is killed, so that they start nothing meanwhile; what they had started is found in the next round.
    A process that is just becoming another program shows no environment: so nothing has to be found several times.
    """
    quiet = 0
    for _ in range(ROUNDS):
        found = set(marked(mark))
        for pid in list(found):
            found |= set(descendants(pid))
        if not found:
            quiet += 1
            if quiet == QUIET_ROUNDS:
                return
            time.sleep(QUIET_S)
            continue
        quiet = 0
        for number in (signal.SIGSTOP, signal.SIGKILL):
            for pid in found:
                with suppress(ProcessLookupError, PermissionError):
                    os.kill(pid, number)
