"""Machines that are made ahead of being asked for: some of each run's, on each host, each given to one aggregate once.

A machine is of one run and one configuration and has a label of its own, `<run>.warm.<host>.<boot>.<n>`, written on it before it is
made as every label is; nothing has been done in it. It is never taken back. What becomes of making them fails nobody.
Whoever waits for room goes before them, and they make way.
"""

from __future__ import annotations

import asyncio
import itertools
from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

import structlog

from actors.sandbox.admission import Admission
from gym_bus.errors import GymBusError
from providers.sandboxes.base import Box, SandboxProvider
from schemas.sandboxes import Inline, SandboxConfig

log = structlog.get_logger(__name__)

IDLE_S: Final = 60.0
LOOK_S: Final = 5.0
MOST: Final = 64
MADE_WITHIN_S: Final = 900.0
FINISHED_WITHIN_S: Final = 10.0
ANSWERS_WITHIN_S: Final = 10.0
ENDED_WITHIN_S: Final = 60.0
TRIED_AFTER_S: Final = (1.0, 5.0, 30.0, 120.0, 600.0)
"""Waits after a machine could not be made, or ended, each after one failure more."""


@dataclass(frozen=True, slots=True)
class Made:
    """A machine that nobody has got yet."""

    label: str
    box: Box
    provider: SandboxProvider


@dataclass(slots=True, eq=False)
class Pool:
    """The machines of one run and one configuration: `wanted` of them are to be `ready`. Times are the loop's."""

    run_id: str
    sandbox: SandboxConfig
    wanted: int
    asked_at: float
    ready: deque[Made] = field(default_factory=deque)
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    failures: int = 0
    next_try_at: float = 0.0
    looked_at: float = 0.0


class WarmPools:
    """The pools of one host. They are there while `run` runs."""

    def __init__(
        self,
        provider_for: Callable[[SandboxConfig], SandboxProvider],
        admission: Admission,
        worker: str,
        is_over: Callable[[str], Awaitable[bool]],
        idle_s: float = IDLE_S,
    ) -> None:
        """Make machines with what `provider_for` returns while `admission` has room; `is_over` says whether a run is.

        `worker` is this process's name among all lives of all hosts.
        """
        self._provider_for = provider_for
        self._admission = admission
        self._worker = worker
        self._is_over = is_over
        self._idle_s = idle_s
        self._pools: dict[tuple[str, str], Pool] = {}
        self._numbers = itertools.count(1)
        self._making = 0
        self._ending: dict[str, Made] = {}
        self._group: asyncio.TaskGroup | None = None
        admission.on_short = self.give_up_one

    async def run(self) -> None:
        """Keep the pools full until cancelled, then end every machine that nobody has got."""
        try:
            async with asyncio.TaskGroup() as group:
                self._group = group
                try:
                    await asyncio.Event().wait()
                finally:
                    self._group = None
        finally:
            left = [*self._ending.values(), *(made for pool in self._pools.values() for made in pool.ready)]
            self._pools.clear()
            await asyncio.gather(*(self._is_ended(made) for made in left))

    async def take(self, run_id: str, sandbox: SandboxConfig, wanted: int) -> Made | None:
        """Return a machine that answers, None if there is none in `ANSWERS_WITHIN_S`; from now on `wanted` of the run's are kept."""
        if not wanted or isinstance(sandbox, Inline) or self._group is None:
            return None
        pool = self._pool(self._group, run_id, sandbox, wanted)
        deadline = pool.asked_at + ANSWERS_WITHIN_S
        try:
            while pool.ready and (left_s := deadline - asyncio.get_running_loop().time()) > 0:
                made = pool.ready.popleft()
                if await self._answers(made, left_s):
                    return made
                log.warning("warm_sandbox_dead", sandbox=made.label)
                self._give_back(made)
            return None
        finally:
            pool.changed.set()

    def give_up_one(self) -> None:
        """End the machine that has been wanted least lately, because somebody waits for room."""
        if pool := min((p for p in self._pools.values() if p.ready), key=lambda p: p.asked_at, default=None):
            self._give_back(pool.ready.pop())

    def _pool(self, group: asyncio.TaskGroup, run_id: str, sandbox: SandboxConfig, wanted: int) -> Pool:
        key, now = (run_id, sandbox.model_dump_json()), asyncio.get_running_loop().time()
        pool = self._pools.get(key)
        if pool is None:
            pool = self._pools[key] = Pool(run_id, sandbox, wanted, now)
            group.create_task(self._keep_full(key, pool))
        pool.wanted, pool.asked_at = wanted, now
        return pool

    async def _keep_full(self, key: tuple[str, str], pool: Pool) -> None:
        """Make one machine after the other while some are missing, until the pool is idle or its run over; then empty it."""
        while not await self._is_done(pool):
            if self._has_room(pool) and await self._make(pool):
                continue
            pool.changed.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(LOOK_S):
                    await pool.changed.wait()
        if self._pools.get(key) is pool:
            del self._pools[key]
        while pool.ready:
            self._give_back(pool.ready.popleft())

    async def _is_done(self, pool: Pool) -> bool:
        now = asyncio.get_running_loop().time()
        if now - pool.asked_at >= self._idle_s:
            return True
        if now - pool.looked_at < LOOK_S:
            return False
        pool.looked_at = now
        try:
            return await self._is_over(pool.run_id)
        except GymBusError as error:
            log.info("run_not_looked_up", run_id=pool.run_id, reason=str(error))
            return False

    def _has_room(self, pool: Pool) -> bool:
        count = self._making + sum(len(p.ready) for p in self._pools.values())
        is_time = asyncio.get_running_loop().time() >= pool.next_try_at
        return len(pool.ready) < pool.wanted and count < MOST and is_time

    async def _make(self, pool: Pool) -> bool:
        """Make a machine for the pool; return whether there is one more."""
        label = f"{pool.run_id}.warm.{self._worker}.{next(self._numbers)}"
        if not self._admission.try_enter(label, pool.sandbox):
            return False
        self._making += 1
        try:
            provider = self._provider_for(pool.sandbox)
            made = Made(label, await self._created(provider, label), provider)
        except Exception as error:  # noqa: BLE001  whatever it is, nobody has asked for this machine
            self._admission.leave(label)
            wait_s = TRIED_AFTER_S[min(pool.failures, len(TRIED_AFTER_S) - 1)]
            pool.failures += 1
            pool.next_try_at = asyncio.get_running_loop().time() + wait_s
            log.warning("sandbox_not_warmed", sandbox=label, reason=str(error) or "out of time", next_try_in_s=wait_s)
            return False
        except BaseException:
            self._admission.leave(label)
            raise
        finally:
            self._making -= 1
        pool.failures = 0
        pool.ready.append(made)
        if self._admission.is_short:
            self.give_up_one()
        return True

    async def _created(self, provider: SandboxProvider, label: str) -> Box:
        """Make a machine. Who is cancelled meanwhile waits a little: what was made can be ended for sure, what is half made cannot."""
        creating = asyncio.get_running_loop().create_task(provider.create(label))
        try:
            async with asyncio.timeout(MADE_WITHIN_S):
                return await asyncio.shield(creating)
        except BaseException:
            await asyncio.wait({creating}, timeout=FINISHED_WITHIN_S)
            if creating.done() and not creating.cancelled() and creating.exception() is None:
                self._give_back(Made(label, creating.result(), provider))
            elif creating.cancel():
                await asyncio.wait({creating}, timeout=FINISHED_WITHIN_S)
            raise

    async def _answers(self, made: Made, within_s: float) -> bool:
        """Say whether the machine does what it is told; what was killed idly is noticed by nobody before."""
        try:
            async with asyncio.timeout(within_s):
                done = await made.box.exec(":", key=made.label, timeout_s=within_s)
        except (GymBusError, OSError, TimeoutError):
            return False
        except BaseException:
            self._give_back(made)
            raise
        return done.exit_code == 0

    def _give_back(self, made: Made) -> None:
        """End a machine in the background, or, when all is ending, leave it to `run`."""
        self._ending[made.label] = made
        if self._group is not None:
            self._group.create_task(self._end(made))

    async def _end(self, made: Made) -> None:
        """End a machine, however long that takes to come about; after our death it is the reaper's."""
        for wait_s in TRIED_AFTER_S:
            if await self._is_ended(made):
                return
            await asyncio.sleep(wait_s)

    async def _is_ended(self, made: Made) -> bool:
        try:
            async with asyncio.timeout(ENDED_WITHIN_S):
                await made.box.destroy()
        except Exception as error:  # noqa: BLE001  the same
            log.warning("sandbox_not_ended", sandbox=made.label, reason=str(error) or "out of time")
            return False
        self._ending.pop(made.label, None)
        self._admission.leave(made.label)
        return True
