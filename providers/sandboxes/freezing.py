"""A box of namespaces stopped where it is: by the kernel's freezer, or by signals where there is none.

The freezer is seen by nobody in the box. Signals are: a shell may notice that its child was stopped; but who was stopped already
before stays so, and who was not goes on.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final, Protocol

from providers.sandboxes.base import BoxLost
from providers.sandboxes.control_groups import BoxGroup

TRIES: Final = 500
PAUSE_S: Final = 0.01
WAITS: Final = 50
"""Who waits in the kernel for so many looks waits for another that was stopped, as who forked it does until it is a program."""


class Freezer(Protocol):
    """Stops the processes of one box, and lets them go on."""

    async def freeze(self) -> None:
        """Stop all; raises `BoxLost` if one cannot be stopped."""
        ...

    async def thaw(self) -> None:
        """Let go on what was stopped here."""
        ...


class GroupFreezer:
    """Freezes the control group of a box; processes that are not in it yet are taken in."""

    def __init__(self, group: BoxGroup, pids: Callable[[], list[int]]) -> None:
        self._group = group
        self._pids = pids

    async def freeze(self) -> None:
        """See `Freezer`."""
        for _ in range(TRIES):
            strangers = set(self._pids()) - self._group.members()
            if not strangers:
                break
            await asyncio.to_thread(self._group.add, sorted(strangers))
            await self._group.freeze(is_frozen=True)
        if not await self._group.freeze(is_frozen=True):
            await self.thaw()
            raise BoxLost("its processes cannot be stopped")

    async def thaw(self) -> None:
        """See `Freezer`."""
        await self._group.freeze(is_frozen=False)


class SignalFreezer:
    """Stops each process with a signal that cannot be refused."""

    def __init__(self, pids: Callable[[], list[int]]) -> None:
        self._pids = pids
        self._stopped: dict[int, str] = {}

    async def freeze(self) -> None:
        """See `Freezer`."""
        left_alone: set[int] = set()
        waits = 0
        for _ in range(TRIES):
            found = {pid: _state(pid) for pid in self._pids()}
            running = {pid for pid, (state, _) in found.items() if state not in "TtZX" and pid not in left_alone}
            waits = waits + 1 if all(found[pid][0] == "D" and pid in self._stopped for pid in running) else 0
            if not running or waits > WAITS:
                return
            left_alone |= {pid for pid, (state, _) in found.items() if state in "Tt" and pid not in self._stopped}
            for pid in running - self._stopped.keys():
                self._stopped[pid] = found[pid][1]
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGSTOP)
            await asyncio.sleep(PAUSE_S)
        await self.thaw()
        raise BoxLost("its processes cannot be stopped")

    async def thaw(self) -> None:
        """See `Freezer`."""
        for pid, started in self._stopped.items():
            if _state(pid)[1] == started:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGCONT)
        self._stopped.clear()


def _state(pid: int) -> tuple[str, str]:
    """Return a process's state and when it started (proc(5), fields 3 and 22 of stat)."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return "X", ""
    return fields[0], fields[19]
