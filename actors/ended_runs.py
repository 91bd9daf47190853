"""Runs that had machines at somebody else's made by this host: remembered in a file, and cleared away when they are over.

A machine is ended by who holds it, and an orphan by the reaper. What is left then is one that this very process still keeps, because
its end did not come about: it would be renewed, and paid for, until it is too old.
"""

from __future__ import annotations

import asyncio
import os
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final, Protocol, runtime_checkable

import structlog
from pydantic import ValidationError

from gym_bus.bus import Bus
from gym_bus.errors import GymBusError
from gym_bus.subjects import event_subject, run_aggregate
from providers.sandboxes.base import SandboxProvider
from schemas.base import Frozen
from schemas.events import RunFinished
from schemas.sandboxes import RemoteSandbox, SandboxConfig

log = structlog.get_logger(__name__)

KEPT: Final = 512
TRIES: Final = 30
AT_ONCE: Final = 16
REMOVED_WITHIN_S: Final = 120.0


async def is_run_over(bus: Bus, run_id: str) -> bool:
    """Say whether the log holds the run's end; raises `Retryable`. A run that was cancelled ends as well."""
    return await bus.last(event_subject(run_aggregate(run_id), RunFinished.subject_kind())) is not None


@runtime_checkable
class ClearsRuns(SandboxProvider, Protocol):
    """A provider whose machines of one run can be found and removed."""

    async def remove_run(self, run: str) -> int:
        """Remove every machine that this host made for `run`; return how many."""
        ...


class UsedBy(Frozen):
    """A run, and a kind of machine that was made for it."""

    run_id: str
    sandbox: SandboxConfig


class EndedRuns:
    """See the module."""

    def __init__(self, path: Path, provider_for: Callable[[SandboxConfig], SandboxProvider]) -> None:
        """Remember runs in `path`, one a line, the last `KEPT` of them; ask what `provider_for` returns to clear them away."""
        self._path = path
        self._provider_for = provider_for
        self._known: dict[str, UsedBy] | None = None
        self._tries: Counter[str] = Counter()

    def add(self, run_id: str, sandbox: SandboxConfig) -> None:
        """Remember a run before a machine is made for it; one of this host's own leaves nothing that the reaper does not find."""
        if not isinstance(sandbox, RemoteSandbox):
            return
        used = UsedBy(run_id=run_id, sandbox=sandbox)
        line = used.model_dump_json()
        if line not in self._lines():
            self._lines()[line] = used
            self._write()

    async def clear(self, is_over: Callable[[str], Awaitable[bool]]) -> int:
        """Remove what is left of runs that are over, at most `AT_ONCE` of them; return how many machines that were.

        What cannot be removed is tried again the next time, `TRIES` times in a life; after that machines end unrenewed.
        """
        count = tried = 0
        for line, used in list(self._lines().items()):
            try:
                if tried == AT_ONCE or not await is_over(used.run_id):
                    continue
                tried += 1
                count += await self._removed(used)
            except (GymBusError, OSError, TimeoutError) as error:
                self._tries[line] += 1
                reason = str(error) or "out of time"
                log.warning("run_not_cleared", run_id=used.run_id, tries=self._tries[line], reason=reason)
                if self._tries[line] < TRIES:
                    continue
            self._lines().pop(line, None)
            self._write()
        return count

    async def _removed(self, used: UsedBy) -> int:
        provider = self._provider_for(used.sandbox)
        if not isinstance(provider, ClearsRuns):
            return 0
        async with asyncio.timeout(REMOVED_WITHIN_S):
            count = await provider.remove_run(used.run_id)
        log.info("run_cleared", run_id=used.run_id, provider=provider.name, machines=count)
        return count

    def _lines(self) -> dict[str, UsedBy]:
        if self._known is None:
            self._known = {}
            text = self._path.read_text(encoding="utf-8") if self._path.exists() else ""
            for line in text.splitlines()[-KEPT:]:
                try:
                    self._known[line] = UsedBy.model_validate_json(line)
                except ValidationError as error:
                    log.warning("used_sandbox_unreadable", path=str(self._path), reason=str(error)[:200])
        return self._known

    def _write(self) -> None:
        lines = list(self._lines())
        for line in lines[:-KEPT]:
            self._lines().pop(line)
        self._path.parent.mkdir(parents=True, exist_ok=True)
        beside = self._path.with_suffix(".tmp")
        beside.write_text("".join(f"{line}\n" for line in lines[-KEPT:]), encoding="utf-8")
        os.replace(beside, self._path)  # noqa: PTH105  the same in one word
