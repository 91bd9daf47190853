"""By what a process of this host is known, so that another one can tell whether it is dead."""

from __future__ import annotations

import os
from pathlib import Path


def started(pid: int) -> str | None:
    """Return when a process started, in ticks since boot (proc(5), field 22 of stat); None if it is dead, reaped or not."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return fields[19] if fields[0] not in "ZX" else None


def boot() -> str:
    """Return the id of this boot of the kernel."""
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def pid_namespace() -> str:
    """Return the name of our pid namespace: in another one our pid means nothing."""
    return os.readlink("/proc/self/ns/pid")  # noqa: PTH115  no path: `pid:[4026531836]`
