"""Orders for launches in a machine, and what comes of them."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

from adapters.harnesses.launching import Launch, LaunchBox, Order, Receipt
from schemas.sandboxes import SandboxLimits

LIMITS = SandboxLimits(processes=128, file_mib=64)


def order(*argv: str, **changes: object) -> Order:
    said = {"launch_id": "l1", "argv": argv, "environment": {"PATH": "/usr/bin:/bin"}, "cwd": "/box", "timeout_s": 30}
    return Order.model_validate({**said, "grace_s": 0.5, **changes})


def shell(script: str, **changes: object) -> Order:
    return order("/bin/sh", "-c", script, **changes)


async def receipt_of(box: LaunchBox, ordered: Order, within_s: float = 20) -> Receipt:
    launch = Launch(box, "l1")
    await launch.start(ordered)
    found = await launch.wait(within_s)
    assert found is not None
    return found


async def until_printed(launch: Launch, wanted: bytes, name: str = "stdout") -> bytes:
    async with asyncio.timeout(20):
        while wanted not in (content := await launch.read(name, 0)):
            await asyncio.sleep(0.05)
    return content


def on_this_host(text: str) -> int:
    """Return the pid, as this host sees it, of the one process of ours whose command line holds `text`, what it forked left out."""
    found = [
        int(entry.name)
        for entry in os.scandir("/proc")
        if entry.name.isdecimal() and text.encode() in _line(int(entry.name)) and _is_ours(int(entry.name))
    ]
    first = [pid for pid in found if _parent(pid) not in found]
    assert len(first) == 1, found
    return first[0]


def _parent(pid: int) -> int:
    """Return the parent of a process; 0 if it is gone."""
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return 0


def _is_ours(pid: int) -> bool:
    """Say whether a process descends from this one: others may run the same tests at the same time."""
    while pid > 1:
        pid = _parent(pid)
        if pid == os.getpid():
            return True
    return False


def _line(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ")
    except OSError:
        return b""
